"""Is the audit log that we write to still the one that others find on the disk? Asked before each record.

Reads: the status of the open file, of its path and of its directory; changes nothing. Invariant: a file that was
moved, removed, replaced, shortened, written to, or opened to others behind our back takes no further record.
Three calls that do not wait for the disk. Threads: belongs to the audit log's.
"""

import os
import stat
from pathlib import Path

from bxcore.errors import StateError
from bxcore.files import Appender, DirectoryLock


class NotAsWeLeftIt(StateError):
    """What lies on the disk is not what we wrote, or not where."""

    code = "audit_unavailable"


class Guard:
    """One file of the log, as it was when it was opened and as it has grown since by our hand."""

    def __init__(self, path: Path, *, file: Appender, lock: DirectoryLock, size_bytes: int) -> None:
        self._path, self._directory = path, path.parent
        self._appender, self._size_bytes = file, size_bytes
        self._file, self._around = _identity(file.status()), _identity(lock.status())
        self.check()

    def wrote(self, size_bytes: int) -> None:
        """The file is longer by so much, by our hand."""
        self._size_bytes += size_bytes

    def check(self) -> None:
        """Raise NotAsWeLeftIt where anything differs."""
        held = self._appender.status()
        if held.st_nlink < 1:
            raise self._strange("the open file was removed")
        if held.st_size != self._size_bytes:
            raise self._strange(f"it has {held.st_size} bytes, and we left it with {self._size_bytes}")
        self._compare(self._directory, self._around)
        self._compare(self._path, self._file)

    def _compare(self, path: Path, expected: tuple[int, int, int, int]) -> None:
        try:
            found = _identity(os.lstat(path))
        except OSError as error:
            raise self._strange(f"{path}: {error.strerror or type(error).__name__}") from None
        if found[:2] != expected[:2]:
            raise self._strange(f"{path} is another one than we opened")
        if found[2] != expected[2]:
            raise self._strange(f"{path} belongs to user {found[2]} now")
        if found[3] != expected[3]:
            raise self._strange(f"{path} has mode {stat.S_IMODE(found[3]):04o} now, and not {_mode(expected)}")

    def _strange(self, why: str) -> NotAsWeLeftIt:
        return NotAsWeLeftIt(f"{self._path.name} is not as brokerd left it: {why}")


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_uid, status.st_mode


def _mode(identity: tuple[int, int, int, int]) -> str:
    return f"{stat.S_IMODE(identity[3]):04o}"
