"""Build the image of a role from this machine's interpreter: no Nix, no network, no registry, no root.

    images/role_image.py --role NAME --output FILE [--revision TEXT]

Writes FILE, an OCI archive for `podman load`, and prints the image's ID and its tag, which is made from its content.
Runs under the interpreter that goes into the image (.state/venv/bin/python). Roles: the tables of images/roles.toml.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Build the image; 1 where something that it is made of is missing."""
    # In place of this directory, whose modules are named from the root: images.
    sys.path[:1] = [str(Path(__file__).resolve().parents[1])]
    from images import build, table

    roles = table.roles()
    parser = argparse.ArgumentParser(prog="role_image.py", description="Build a role's image as an OCI archive.")
    parser.add_argument("--role", choices=tuple(roles), required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--revision", metavar="TEXT", help="what stands in the label; default: the sources' commit")
    given = parser.parse_args(argv)
    built = build.write(roles[given.role], given.output, given.revision, made_by="images/role_image.py")
    if built is None:
        return 1
    print(built.identity, built.name.rpartition(":")[2])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
