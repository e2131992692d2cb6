"""One log file a process and a start: `name.log` is this start's, `name.log.1` the one before it.

Writes: the log directory. Invariant: at most KEPT files a name; a start never appends to another's file.
"""

from pathlib import Path
from typing import BinaryIO

from bxcore import logs

KEPT = 5
_TAIL_BYTES = 65_536


def begin(path: Path) -> BinaryIO:
    """Move the older files on by one, forget the oldest, and return the new empty one, open for writing."""
    for number in reversed(range(1, KEPT)):
        older = path if number == 1 else numbered(path, number - 1)
        if older.exists():
            older.replace(numbered(path, number))
    return path.open("xb")


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines, made safe to show on a terminal; none where there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            untrusted = file.read()
    except FileNotFoundError:
        return []
    return [logs.escape(line) for line in untrusted.decode("utf-8", "replace").splitlines()[-count:]]


def numbered(path: Path, number: int) -> Path:
    """Return where the log of so many starts ago lies."""
    return path.with_name(f"{path.name}.{number}")
