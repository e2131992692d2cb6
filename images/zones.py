"""The rules of time zones, as an image has them. Reads: the machine's directory of them."""

import os
from pathlib import Path

from images import layout
from images.oci import Entry, File, Link

_MAGIC = b"TZif"
_DOUBLES = ("posix", "right")  # the same again, and with leap seconds


def entries(top: Path) -> dict[str, Entry]:
    """Return every zone. What is linked out of the directory is this machine's own zone, and stays away."""
    files = (path for path in sorted(top.rglob("*")) if path.relative_to(top).parts[0] not in _DOUBLES)
    return {
        f"{layout.TIME_ZONES}/{path.relative_to(top)}": _entry(path)
        for path in files
        if path.is_file() and _leads_to(path).is_relative_to(top) and path.read_bytes().startswith(_MAGIC)
    }


def _leads_to(path: Path) -> Path:
    return Path(os.path.normpath(path.parent / path.readlink())) if path.is_symlink() else path


def _entry(path: Path) -> Entry:
    return Link(str(path.readlink())) if path.is_symlink() else File(path.read_bytes())
