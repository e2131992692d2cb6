"""Is there an empty place to restore into, that nobody uses? Looks, and takes the locks of the roles.

Writes nothing. Invariant: while `taken` is open no role starts there: each of them wants one of its locks first.
"""

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bxcore import files
from bxcore.backupmanifest import AUDIT, GRANTS, SESSIONS, STATE_PARTS
from bxcore.errors import StateError
from bxcore.files import StateInUse
from bxctl.backupnames import MARK

LOOPD_LOCK = ".loopd.lock"
_GATEWAYD_LOCK = ".gatewayd.lock"
_QUEUE = "gateway"
"""gatewayd's: posts that belong to the sessions which are there, so in no backup, and none may stay beside others."""

_OWN_LOCKS = (Path("launcher.lock"), Path(LOOPD_LOCK), Path(SESSIONS, LOOPD_LOCK), Path(_QUEUE, _GATEWAYD_LOCK))

_NO_ROLE = {"tool-runner", "model", "launcher"}
"""Directories of sockets whose listener has no part in what is restored."""

_DISPOSABLE = "index"
_CONNECT_SECONDS = 2


class RestoreLive(StateError):
    """Boxmaker runs in the place that is to be restored into."""

    code = "restore_live"


class RestoreNotEmpty(StateError):
    """Something is there already."""

    code = "restore_not_empty"


class RestoreUnfinished(StateError):
    """A restore that was cut short has left something there."""

    code = "restore_unfinished"


def refuse_taken(home: Path, etc: Path | None) -> None:
    """Raise RestoreUnfinished or RestoreNotEmpty unless nothing is there that a restore would meet."""
    _refuse_unfinished(home, etc)
    for part in (*STATE_PARTS, _DISPOSABLE, _QUEUE):
        _require_empty(home / part)
    if etc is not None:
        _require_empty(etc / GRANTS)


def _refuse_unfinished(home: Path, etc: Path | None) -> None:
    left = [place / MARK for place in (home, etc) if place is not None and (place / MARK).exists()]
    if left:
        placed = [path for path in _places(home, etc) if path.is_dir() and any(path.iterdir())]
        words = " ".join(str(path) for path in (*left, *placed))
        raise RestoreUnfinished(
            f"{left[0].parent}: a restore was cut short here; what it left is of no use. If nothing else was put there "
            f"since, remove {words} and restore again"
        )


def _places(home: Path, etc: Path | None) -> list[Path]:
    return [*(home / part for part in STATE_PARTS), *([etc / GRANTS] if etc is not None else [])]


def _require_empty(path: Path) -> None:
    try:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise RestoreNotEmpty(f"{path}: is no directory of its own; move it away")
        if path.is_mount():
            raise RestoreNotEmpty(f"{path}: a file system is mounted there; restore beside it, and move the files in")
        there = sorted(entry.name for entry in path.iterdir() if entry.name not in (LOOPD_LOCK, _GATEWAYD_LOCK))
    except FileNotFoundError:
        return
    except OSError as error:
        raise files.unreadable(path, error) from None
    if there and path.name == _DISPOSABLE:
        raise RestoreNotEmpty(
            f"{path}: holds an index of other files; it is made anew whenever it is missing: remove it"
        )
    if there and path.name == _QUEUE:
        raise RestoreNotEmpty(
            f"{path}: holds posts of Mattermost that belong to other conversations than those of the backup; move it "
            "away. What waits in it is not answered, and posts from before gatewayd's next start are not looked at"
        )
    if there:
        raise RestoreNotEmpty(f"{path}: is not empty; a backup is restored into an empty place only")


@contextmanager
def taken(home: Path) -> Iterator[None]:
    """Hold every lock that is there. Raises RestoreLive where a role has one, or a socket is answered."""
    with ExitStack() as held:
        for path in _locks(home):
            held.callback(os.close, _lock(path))
        try:
            for place in (home, home / AUDIT):
                if place.is_dir() and not place.is_symlink():
                    held.callback(files.lock_directory(place).close)
        except StateInUse as error:
            raise _live(error.detail) from None
        for path in _sockets(home):
            _refuse_answered(path)
        yield


def _locks(home: Path) -> list[Path]:
    found = [home / path for path in _OWN_LOCKS if (home / path).is_file()]
    return [*found, *sorted((home / "run").glob("*/.*.lock"))]


def _lock(path: Path) -> int:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RestoreLive(
            f"{path}: cannot be looked at, so Boxmaker may run here: {error.strerror}; do it as root"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise _live(f"{path}: held by a living process") from None
    return lock


def _sockets(home: Path) -> list[Path]:
    return [
        path for path in sorted((home / "run").glob("*/*")) if path.parent.name not in _NO_ROLE and _is_socket(path)
    ]


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return False  # removed since it was listed


def _refuse_answered(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_SECONDS)
        try:
            client.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return  # left by a process that was killed
        except OSError as error:
            raise _live(f"{path}: {error.strerror or 'no answer in time'}") from None
    raise _live(f"{path}: somebody listens there")


def _live(why: str) -> RestoreLive:
    return RestoreLive(f"{why}. Boxmaker runs here: stop every role first")
