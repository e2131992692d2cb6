"""Durable files: what these calls wrote is there after a crash or a power cut, once they return.

The only module that calls fsync and rename. Every file and every new directory entry is synced
before the call returns. Symbolic links are never followed in the last part of a path. A file
that replaces another is written beside its place under a dot name and moved there whole, so
that a reader sees the old file or the new one; a crash may leave such a dot file, which nobody reads.
Threads: values here hold no state but AppendFile's, which belongs to one thread at a time.
"""

import fcntl
import os
import secrets
import stat
from collections.abc import Callable
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from bxcore import regularfile
from bxcore.errors import StateError

FILE_MODE = 0o600
_PASSED = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""A directory that is only gone through: its names need not be readable."""

DIRECTORY_MODE = 0o700


class StateUnwritable(StateError):
    """Something could not be made durable: no space, read-only, a fault of the disk."""

    code = "state_unwritable"


class StateUnreadable(StateError):
    """A file of ours cannot be read."""

    code = "state_unreadable"


class StateMissing(StateUnreadable):
    """A file of ours is not there."""

    code = "state_unreadable"


class StateDenied(StateUnreadable):
    """A file of ours that whoever runs this may not read."""

    code = "state_unreadable"


class StateInUse(StateError):
    """Another process (or another part of this one) has the file open for appending."""

    code = "state_in_use"


class Appender(Protocol):
    """A file that is open for appending and locked."""

    def append(self, data: bytes) -> None:
        """Add `data`; durable when it returns. After any failure every later call raises StateError."""
        ...

    def status(self) -> os.stat_result:
        """Return the status of the file that is open, wherever it lies by now. StateError where there is none."""
        ...

    def close(self) -> None:
        """Give the file and its lock back. May be called twice."""
        ...


class Files(Protocol):
    """What a role does to its files. Each call is durable when it returns, or raises StateError."""

    def open_append(self, path: Path) -> Appender:
        """Open `path`, which need not exist, for appending. StateInUse where it is open already."""
        ...

    def replace(self, path: Path, data: bytes) -> None:
        """Make `data` the content of `path`: after a crash the old content or the new, never a mix."""
        ...

    def make_dir(self, path: Path) -> None:
        """Make the directory `path` below one that exists. An existing directory is left as it is."""
        ...

    def read(self, path: Path) -> bytes:
        """Return the content. StateMissing where there is no such file, StateUnreadable otherwise."""
        ...


class System(Protocol):
    """The calls of `os` that change a disk: the seam at which tests let them fail."""

    def open(self, path: Path, flags: int, mode: int = ..., /) -> int: ...
    def write(self, fd: int, data: bytes | memoryview, /) -> int: ...
    def fsync(self, fd: int, /) -> None: ...
    def rename(self, source: Path, target: Path, /) -> None: ...
    def unlink(self, path: Path, /) -> None: ...
    def mkdir(self, path: Path, mode: int = ..., /) -> None: ...
    def close(self, fd: int, /) -> None: ...


class NewFile:
    """A file that is being made, in a place where there was none. Durable once `finish` has returned.

    Its name is durable with `NewTree.sync` of its directory. Use as a context manager.
    """

    def __init__(self, path: Path, system: System) -> None:
        self._path, self._system = path, system
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._fd: int | None = system.open(path, flags, FILE_MODE)
        except OSError as error:
            raise _unwritable(path, error) from None

    def write(self, piece: bytes) -> None:
        """Add `piece`. Raises StateUnwritable."""
        try:
            _write_all(self._system, self._open_fd(), piece)
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def finish(self) -> None:
        """Make it durable. Raises StateUnwritable."""
        fd = self._open_fd()
        try:
            self._system.fsync(fd)
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def _open_fd(self) -> int:
        if self._fd is None:
            raise StateUnwritable(f"{_shown(self._path)}: closed")
        return self._fd

    def __enter__(self) -> "NewFile":
        return self

    def __exit__(self, *_: object) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            self._system.close(fd)


class NewTree:
    """Makes a tree of directories and files beside its place, and moves it there whole. Raises StateUnwritable."""

    def __init__(self, system: System = os) -> None:
        self._system = system

    def make_dir(self, path: Path) -> None:
        """Make one directory, mode 0700, where there was nothing."""
        self._call(path, lambda: self._system.mkdir(path, DIRECTORY_MODE))

    def make_file(self, path: Path) -> NewFile:
        """Make one file, mode 0600, where there was nothing."""
        return NewFile(path, self._system)

    def sync(self, directory: Path) -> None:
        """Make the names in `directory` durable."""
        self._call(directory, lambda: _sync_directory(directory, self._system))

    def move(self, source: Path, target: Path) -> None:
        """Move `source` to `target`, where nothing lies but at most an empty directory, and make that durable."""
        self._call(target, lambda: self._moved(source, target))

    def _moved(self, source: Path, target: Path) -> None:
        self._system.rename(source, target)
        _sync_directory(target.parent, self._system)

    def _call(self, path: Path, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            raise _unwritable(path, error) from None


def open_read(path: Path) -> BufferedReader:
    """Open `path` for reading; for files that are read piece by piece. StateMissing, StateUnreadable."""
    return open_below(path.parent, path.name)


def open_below(top: Path, below: str) -> BufferedReader:
    """Open the file `below` (names with slashes between) in `top` for reading, no link below `top` followed.

    For root, who reads where a role may write: that role could swap a directory for a link at any moment.
    """
    *folders, name = below.split("/")
    try:
        here = os.open(top, _PASSED)
        try:
            for folder in folders:
                inner = os.open(folder, _PASSED | os.O_NOFOLLOW, dir_fd=here)
                os.close(here)
                here = inner
            opener = partial(os.open, dir_fd=here)
            return os.fdopen(regularfile.descriptor(Path(name), os.O_RDONLY | os.O_NOFOLLOW, opener=opener), "rb")
        finally:
            os.close(here)
    except FileNotFoundError:
        raise StateMissing(f"{_shown(top / below)}: not there") from None
    except OSError as error:
        raise unreadable(top / below, error) from None


class DirectoryLock:
    """A directory that is this process's alone, as far as others ask for it too. Lasts until `close`, or the process.

    On the directory's own descriptor: there is no lock file that somebody could delete.
    """

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def status(self) -> os.stat_result:
        """Return the status of the directory that is locked, wherever it lies by now. Raises StateUnreadable."""
        if self._fd is None:
            raise StateUnreadable("the directory was given back")
        return os.fstat(self._fd)

    def close(self) -> None:
        """Give the directory back. May be called twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def lock_directory(path: Path) -> DirectoryLock:
    """Lock the directory `path`. Raises StateInUse where it is locked already, StateUnreadable where that fails."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StateInUse(f"{_shown(path)}: in use by another process") from None
    except OSError as error:
        os.close(fd)
        raise unreadable(path, error) from None
    return DirectoryLock(fd)


def unreadable(path: Path, error: OSError) -> StateUnreadable:
    """Return the error to raise where reading from `path` gave `error`."""
    kind = StateDenied if isinstance(error, PermissionError) else StateUnreadable
    return kind(f"{_shown(path)}: {error.strerror or type(error).__name__}")


class AppendFile:
    """The real Appender.

    Once a write or an fsync has failed nobody knows what is on the disk, and the kernel may report a
    lost page only once: the file is closed and stays broken until it is opened again.
    """

    def __init__(self, path: Path, system: System) -> None:
        self._path = path
        self._system = system
        self._broken = False
        self._fd: int | None = _open_append(path, system)

    def append(self, data: bytes) -> None:
        fd = self._open_fd()
        try:
            _write_all(self._system, fd, data)
            self._system.fsync(fd)
        except OSError as error:
            self._broken = True
            self.close()
            raise _unwritable(self._path, error) from None

    def status(self) -> os.stat_result:
        try:
            return os.fstat(self._open_fd())
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            self._system.close(fd)

    def _open_fd(self) -> int:
        if self._fd is None:
            why = "closed after a failed write" if self._broken else "closed"
            raise StateUnwritable(f"{_shown(self._path)}: {why}")
        return self._fd


class DiskFiles:
    """The real Files. `system` is the os module everywhere but in tests that break the disk."""

    def __init__(self, system: System = os) -> None:
        self._system = system

    def open_append(self, path: Path) -> Appender:
        try:
            return AppendFile(path, self._system)
        except BlockingIOError:
            raise StateInUse(f"{_shown(path)}: open for appending elsewhere") from None
        except OSError as error:
            raise _unwritable(path, error) from None

    def replace(self, path: Path, data: bytes) -> None:
        try:
            beside = self._write_beside(path, data)
            try:
                self._system.rename(beside, path)
            except OSError:
                self._system.unlink(beside)
                raise
            _sync_directory(path.parent, self._system)
        except OSError as error:
            raise _unwritable(path, error) from None

    def make_dir(self, path: Path) -> None:
        try:
            if not _is_directory(path):
                self._system.mkdir(path, DIRECTORY_MODE)
            # Also where it was there: the process that made it may have died before this line.
            _sync_directory(path.parent, self._system)
        except OSError as error:
            raise _unwritable(path, error) from None

    def read(self, path: Path) -> bytes:
        with open_read(path) as file:
            try:
                return file.read()
            except OSError as error:
                raise unreadable(path, error) from None

    def _write_beside(self, path: Path, data: bytes) -> Path:
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = self._system.open(beside, flags, FILE_MODE)
        try:
            _write_all(self._system, fd, data)
            self._system.fsync(fd)
        except OSError:
            self._system.unlink(beside)  # a full disk should not be filled by our attempts
            raise
        finally:
            self._system.close(fd)
        return beside


def _open_append(path: Path, system: System) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    fd = regularfile.descriptor(path, flags, mode=FILE_MODE, opener=system.open)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Also for a file that was there: the process that made it may have died before this line.
        _sync_directory(path.parent, system)
    except OSError:
        system.close(fd)
        raise
    return fd


def _write_all(system: System, fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[system.write(fd, rest) :]


def _sync_directory(path: Path, system: System) -> None:
    fd = system.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        system.fsync(fd)
    finally:
        system.close(fd)


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _unwritable(path: Path, error: OSError) -> StateUnwritable:
    return StateUnwritable(f"{_shown(path)}: {error.strerror or type(error).__name__}")


def _shown(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
