"""Build the tool image from this machine's interpreter: no Nix, no network, no registry, no root.

    images/tool_image.py --output FILE [--revision TEXT]

Writes FILE, an OCI archive for `podman load`, and prints the image's ID. Runs under the interpreter that goes into the
image (.state/venv/bin/python). images/README.md says what is in it and why.
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

    parser = argparse.ArgumentParser(prog="tool_image.py", description="Build the tool image as an OCI archive.")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--revision", metavar="TEXT", help="what stands in the label; default: the sources' commit")
    given = parser.parse_args(argv)
    built = build.write(table.image(table.TOOLS), given.output, given.revision, made_by="images/tool_image.py")
    if built is None:
        return 1
    print(built.identity)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
