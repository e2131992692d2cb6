"""Takes a Unix socket for this process alone, and accepts connections from it until told to stop.

Writes: the socket and `.<name>.lock` beside it. Invariant: one process at a time listens, decided
by flock and by nothing else, so a kill -9 leaves nothing to clean up. Who may connect is who may
enter the directory; an unsafe directory is refused. Threads: `Entrance.stop` from any thread or
signal handler, the rest from one. Standard library only: inferproxy imports this module.
"""

import contextlib
import errno
import fcntl
import os
import select
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from bxcore import acl, logs
from bxcore.errors import ConfigError

SOCKET_MODE = 0o660
BACKLOG = 256
"""Connections that may wait to be accepted; the next one waits in its own connect()."""

MAX_PATH_BYTES = 107
"""What sun_path holds, less its NUL."""

EXHAUSTED_PAUSE_SECONDS = 0.1

log = logs.get("listener")

Name = TypeVar("Name")


class AlreadyRunning(ConfigError):
    """Another process holds this socket's lock."""

    code = "already_running"


class UnsafeDirectory(ConfigError):
    """The directory would let somebody else replace the socket, or is not a directory."""

    code = "unsafe_directory"


class SocketPathTaken(ConfigError):
    """Something that is not a socket lies where the socket belongs."""

    code = "socket_path_taken"


class Listening:
    """A socket that is being listened on, with its lock. Made by `open_socket`."""

    def __init__(self, path: Path, listener: socket.socket, lock: int) -> None:
        self.path = path
        self.socket = listener
        self._lock = lock

    def refuse(self) -> None:
        """Take the socket away but keep the lock: new clients are refused while the old ones finish."""
        if self.socket.fileno() < 0:
            return
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self.socket.close()

    def close(self) -> None:
        """Give the socket and its lock up. Closing twice is harmless."""
        self.refuse()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def open_socket(path: Path) -> Listening:
    """Listen on `path`, mode 0660, after the directory was found safe and the lock was taken.

    Raises ConfigError: UnsafeDirectory, AlreadyRunning, SocketPathTaken, or a path that is too long.
    """
    _check_path(path)
    _check_directory(path.parent)
    lock = _lock(path)
    try:
        _remove_stale(path)
        return Listening(path, _listen(path), lock)
    except OSError as error:
        os.close(lock)
        raise ConfigError(f"{path}: cannot listen: {error.strerror}") from error
    except ConfigError:
        os.close(lock)
        raise


def open_sockets(paths: Mapping[Name, Path | None], held: ExitStack) -> dict[Name, Listening]:
    """Listen on every path that is given; `held` gives them back, also where a later one cannot be had."""
    return {
        name: held.enter_context(contextlib.closing(open_socket(path)))
        for name, path in paths.items()
        if path is not None
    }


def _check_path(path: Path) -> None:
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        raise ConfigError(f"{path}: a socket path may have {MAX_PATH_BYTES} bytes, this one has {size}")


def _check_directory(directory: Path) -> None:
    try:
        found = directory.lstat()
    except OSError as error:
        raise UnsafeDirectory(f"{directory}: {error.strerror}; create it for this user, mode 2750") from error
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeDirectory(f"{directory}: must be a directory itself, not a link to one or a file")
    if directory.resolve() == Path("/"):
        raise UnsafeDirectory(f"{directory}: a socket needs a directory of its own, not the root")
    if found.st_uid != os.geteuid():
        raise UnsafeDirectory(f"{directory}: owner is uid {found.st_uid}, must be uid {os.geteuid()}")
    # Whoever may write here may put a socket of their own in our place.
    if _others_may_write(directory, found.st_mode):
        mode = stat.S_IMODE(found.st_mode)
        raise UnsafeDirectory(f"{directory}: mode is {mode:04o}, others may write; chmod 2750 it")


def _others_may_write(directory: Path, mode: int) -> bool:
    if not mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    try:
        # With a list the group's bits are its mask: the most that anybody might be given, not what anybody has.
        listed = acl.of(directory)
    except (OSError, acl.NoAcl):
        return True
    return listed is None or listed.others_may(acl.WRITE)


def _lock(path: Path) -> int:
    lock_path = path.with_name(f".{path.name}.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(lock_path, flags, 0o600)
    except OSError as error:
        raise ConfigError(f"{lock_path}: cannot open: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise AlreadyRunning(f"{path}: another process listens here and holds {lock_path}") from error
    return lock


def _remove_stale(path: Path) -> None:
    """Remove the socket that a killed process left. Only ever called under the lock."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise SocketPathTaken(f"{path}: exists and is not a socket; move it away")
    path.unlink()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        # After bind and before listen: whatever the umask was, nobody has connected yet.
        path.chmod(SOCKET_MODE)
        listener.listen(BACKLOG)
        listener.settimeout(0)
    except OSError:
        listener.close()
        raise
    return listener


_LOOK_MS = 1_000


class Entrance:
    """Accepts from several sockets until `stop`. Out of descriptors or memory it pauses, never spins."""

    def __init__(self, listeners: Sequence[Listening]) -> None:
        self._listeners = listeners
        self._wake, self._waker = socket.socketpair()
        self._waker.settimeout(0)
        self._stopping = False
        self._exhausted = False

    def connections(self) -> Iterator[tuple[Listening, socket.socket]]:
        """Yield each new connection with the listener it came in on; end after `stop`."""
        # Not accept() alone: close() from another thread does not wake it.
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        by_number = {listening.socket.fileno(): listening for listening in self._listeners}
        for number in by_number:
            poll.register(number, select.POLLIN)
        while not self._stopping:
            # Not for ever: a signal that comes right before the wait, or to another thread, does not end it, and its
            # handler, which calls `stop`, runs when this thread runs next.
            for number, _ in poll.poll(_LOOK_MS):
                if number in by_number and (connection := self._accept(by_number[number])):
                    yield by_number[number], connection

    def pause(self, seconds: float) -> None:
        """Wait `seconds`, or until `stop`."""
        if seconds > 0 and not self._stopping:
            poll = select.poll()  # not select(): it fails beyond descriptor 1023
            poll.register(self._wake, select.POLLIN)
            poll.poll(seconds * 1000)

    def stop(self) -> None:
        """End `connections` at once. Harmless when repeated."""
        self._stopping = True
        with contextlib.suppress(OSError):  # full: a byte is there already; closed: nobody waits
            self._waker.send(b"x")

    def close(self) -> None:
        """Give up the wake sockets, after `connections` has ended."""
        self._wake.close()
        self._waker.close()

    def _accept(self, listening: Listening) -> socket.socket | None:
        try:
            connection, _ = listening.socket.accept()
        except (BlockingIOError, ConnectionError):
            return None  # the client left before we got to it
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            self._note_exhausted(error)
            self.pause(EXHAUSTED_PAUSE_SECONDS)
            return None
        self._exhausted = False
        return connection

    def _note_exhausted(self, error: OSError) -> None:
        """Say it once per shortage: a line per attempt would fill the log while nothing changes."""
        if not self._exhausted:
            log.error("accept paused reason=%s code=descriptors_exhausted", error.strerror)
        self._exhausted = True
