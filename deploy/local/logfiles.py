"""One log file a process and a start: `name.log` is this start's, `name.log.1` the one before it.

Writes: the log directory. Invariant: at most KEPT files a name; a start never appends to another's file. Threads: a
Capped log has one of its own, that reads what its process writes.
"""

import fcntl
import os
import threading
from pathlib import Path
from typing import BinaryIO

from bxcore import logs

KEPT = 5
MOST_BYTES = 16_777_216
"""Of one capped log."""
_TAIL_BYTES = 65_536
_BLOCK_BYTES = 65_536
_PIPE_BYTES = 1_048_576  # for the time in which the launcher is stopped by Ctrl-Z
_LAST_SECONDS = 1.0
_CUT = b"\n... the rest is not kept: this log has reached its size\n"


def begin(path: Path) -> BinaryIO:
    """Move the older files on by one, forget the oldest, and return the new empty one, open for writing."""
    for number in reversed(range(1, KEPT)):
        older = path if number == 1 else numbered(path, number - 1)
        if older.exists():
            older.replace(numbered(path, number))
    return path.open("xb")


class Capped:
    """The log of a process that is not trusted to end: what it writes to `output` is kept up to a size, then dropped.

    A pipe and no limit of the kernel's: that one would hold for all that the process writes.
    """

    def __init__(self, path: Path, *, most: int = MOST_BYTES) -> None:
        log = begin(path)
        reading, writing = os.pipe()
        fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.output: BinaryIO = os.fdopen(writing, "wb")
        """For the process to start. Close it then, or the log has no end."""
        self._copying = threading.Thread(
            target=_copy, args=(os.fdopen(reading, "rb", buffering=0), log, most), name=path.name, daemon=True
        )
        self._copying.start()
        self._patience = _LAST_SECONDS

    def finish(self) -> None:
        """Return when the log is whole, after its process has ended; soon, where something still holds the pipe."""
        self._copying.join(self._patience)
        self._patience = 0.0


def _copy(source: BinaryIO, log: BinaryIO, left: int) -> None:
    """Copy, and once enough was written say so and only read: the process must not wait for a reader."""
    with source, log:
        while untrusted := source.read(_BLOCK_BYTES):
            if left >= 0:
                left = _written(log, untrusted, left)


def _written(log: BinaryIO, untrusted: bytes, left: int) -> int:
    """Write a piece. Returns how much may still follow; less than nothing where nothing more is written."""
    cut = len(untrusted) > left
    try:
        os.write(log.fileno(), untrusted[:left] + (_CUT if cut else b""))
    except OSError:
        return -1  # no room: a shorter log, and the process goes on
    return left - len(untrusted)


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
