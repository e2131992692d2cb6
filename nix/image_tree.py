"""Write the root of one image into a directory: what images/contents.py decides, with the places that Nix has for it.

    nix/image_tree.py --image NAME --packages DIR --output DIR [--busybox FILE --certificates FILE --zones DIR]

Runs under the interpreter that goes into the image; `--packages` is a directory of installed Python packages. Reads:
images/, python/ and what it is told. The same sources give the same files. nix/images.nix then points the interpreter
to the libraries that lie in the image, and makes an image of the directory.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from images.oci import Entry
    from images.table import Image

ROOT = Path(__file__).resolve().parents[1]


def main(argv: Sequence[str]) -> int:
    """Write the tree."""
    # In place of this directory, whose modules are named from the root: images.
    sys.path[:1] = [str(ROOT)]
    from images import table

    parser = argparse.ArgumentParser(prog="image_tree.py", description="Write the root of an image into a directory.")
    parser.add_argument("--image", required=True, metavar="NAME")
    parser.add_argument("--packages", type=Path, required=True, metavar="DIR")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--busybox", type=Path, metavar="FILE")
    parser.add_argument("--certificates", type=Path, metavar="FILE")
    parser.add_argument("--zones", type=Path, metavar="DIR")
    given = parser.parse_args(argv)
    image = table.image(given.image)
    write(entries(image, given.packages, given.busybox, given.certificates, given.zones), given.output)
    return 0


def entries(
    image: "Image", packages: Path, busybox: Path | None, certificates: Path | None, zones: Path | None
) -> "Mapping[str, Entry]":
    """Return the whole image. What is not code would be looked for where Debian has it, so it comes from the caller."""
    from images import contents

    places = contents.Places(
        busybox=_named(busybox, "--busybox") if image.shell else None,
        certificates=_named(certificates, "--certificates") if image.certificates else None,
        time_zones=_named(zones, "--zones").resolve() if image.time_zones else None,
    )
    return contents.tree(image, ROOT / "python", packages, places)


def write(tree: "Mapping[str, Entry]", output: Path) -> None:
    """Write the entries. Modes but for the bit that runs a program are the image's matter."""
    from images.oci import Directory, File

    for name, entry in sorted(tree.items()):
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry, Directory):
            path.mkdir(exist_ok=True)
        elif isinstance(entry, File):
            path.write_bytes(entry.content)
            path.chmod(0o755 if entry.runs else 0o644)
        else:
            path.symlink_to(entry.target)


def _named(given: Path | None, option: str) -> Path:
    if given is None:
        raise SystemExit(f"image_tree.py: this image needs {option}")
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
