"""Keeps the audit log's head outside of the log: `<state>/audit-head`, written in place after each record.

Not synced: after a power cut it may be a little behind the log, which is fine, and never ahead of it, since it
is written when the record is durable. A head that cannot be written costs the warning of a cut tail and nothing else.
Whatever lies in its place and is no file is removed, unread, and told; only a directory stops the start.
Threads: belongs to the audit log's. Format: bxcore.audithead.
"""

import os
import stat
from pathlib import Path

from bxcore import audithead, files, logs, regularfile
from bxcore.chain import Head
from bxcore.files import StateUnwritable

log = logs.get("audithead")


class HeadFile:
    """The file, open. Made with `open`."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd
        self._failing = False

    @classmethod
    def open(cls, state: Path) -> "HeadFile":
        """Open or make the file. Raises StateUnwritable."""
        path = state / audithead.FILE
        try:
            _make_way(path)
            return cls(regularfile.descriptor(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode=files.FILE_MODE))
        except OSError as error:
            raise StateUnwritable(f"{path}: {error.strerror or type(error).__name__}") from None

    def read(self) -> Head | None:
        """Return the head that was kept last, None where none can be read."""
        if self._fd is None:
            return None
        try:
            return audithead.read(os.pread(self._fd, 2 * audithead.LENGTH, 0))
        except OSError:
            return None  # as if it were missing: the caller says so

    def write(self, slot: tuple[int, bytes]) -> None:
        """Keep the head of this slot. Never raises."""
        offset, line = slot
        self._put(line, offset)

    def write_alone(self, head: Head) -> None:
        """Keep `head` and forget the one before it, which may have been ahead. Never raises."""
        _, line = audithead.slot(head)
        self._put(2 * line, 0)

    def _put(self, line: bytes, offset: int) -> None:
        if self._fd is None:
            return
        try:
            os.pwrite(self._fd, line, offset)
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.error("the head is not kept: %s code=audit_head_lost", error.strerror)
            self._failing = True

    def close(self) -> None:
        """May be called twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _make_way(path: Path) -> None:
    """Remove a link, a pipe or the like in the head's place. What a link leads to is not touched."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise StateUnwritable(f"{path}: a directory lies where the head of the audit log belongs; move it away")
    path.unlink()
    what = "a link" if stat.S_ISLNK(mode) else "no file"
    log.warning("what lay in the head's place was %s, and is made anew code=audit_head_lost", what)
