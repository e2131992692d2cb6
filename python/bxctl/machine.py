"""What `bxctl doctor` asks this machine: users and groups, files with their access lists, sockets, clock, disk.

Changes nothing, starts no program. What this user may not see raises PermissionError. The checks decide, this looks.
"""

import contextlib
import ctypes
import errno
import grp
import os
import pwd
import re
import socket
import stat
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

import attrs

from bxcore import acl, regularfile
from bxcore.acl import Acl

SYNCHRONISED = Path("/run/systemd/timesync/synchronized")
"""Made by systemd-timesyncd once it has set the clock."""

CONTROL_GROUPS = Path("/sys/fs/cgroup")
"""Version 2 alone, where `cgroup.controllers` lies in it."""

_CONNECT_SECONDS = 2
_MOST_TEXT = 16 * 1024 * 1024
_OCTAL = re.compile(r"\\([0-7]{3})")
_CLOCK_ERROR = 5
_NO_CLOCK = -1
_TIMEX_BYTES = 512
"""More than struct timex has anywhere. All of it zero asks and sets nothing."""


class Kind(Enum):
    """What lies at a path."""

    DIRECTORY = "a directory"
    FILE = "a file"
    SOCKET = "a socket"
    LINK = "a symbolic link"
    OTHER = "something else"


_KINDS = {
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFREG: Kind.FILE,
    stat.S_IFSOCK: Kind.SOCKET,
    stat.S_IFLNK: Kind.LINK,
}


@attrs.frozen(kw_only=True)
class Seen:
    """A path as it is now, no link followed. `listed`: its access list is one, and not only its mode."""

    kind: Kind
    uid: int
    gid: int
    mode: int
    acl: Acl
    listed: bool = False
    default: Acl | None = None


@attrs.frozen(kw_only=True)
class User:
    """A line of the user database, with the groups that it is in."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    groups: frozenset[int]


@attrs.frozen(kw_only=True)
class Group:
    """A line of the group database."""

    name: str
    gid: int
    members: frozenset[str]


@attrs.frozen(kw_only=True)
class Space:
    """What is left of a file system. `files_free` None: it does not count them."""

    free_bytes: int
    files_free: int | None


class Machine:
    """The real one."""

    def user(self, name: str) -> User | None:
        """Return a user; None where there is none of that name."""
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return None
        return User(
            name=entry.pw_name,
            uid=entry.pw_uid,
            gid=entry.pw_gid,
            home=entry.pw_dir,
            shell=entry.pw_shell,
            groups=frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)),
        )

    def group(self, name: str) -> Group | None:
        """Return a group; None where there is none of that name."""
        try:
            entry = grp.getgrnam(name)
        except KeyError:
            return None
        return Group(name=entry.gr_name, gid=entry.gr_gid, members=frozenset(entry.gr_mem))

    def within(self, group: Group) -> frozenset[str]:
        """Return who is in a group, by its list or because it is a user's own."""
        return group.members | {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == group.gid}

    def uids(self) -> dict[int, str]:
        """Return every user that the database lists."""
        return {entry.pw_uid: entry.pw_name for entry in pwd.getpwall()}

    def look(self, path: Path) -> Seen | None:
        """Return what lies at `path`; None where nothing does. Raises PermissionError."""
        try:
            found = path.lstat()
            kind = _KINDS.get(stat.S_IFMT(found.st_mode), Kind.OTHER)
            listed = None if kind is Kind.LINK else _list(path, acl.ACCESS)
            default = _list(path, acl.DEFAULT) if kind is Kind.DIRECTORY else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        mode = stat.S_IMODE(found.st_mode)
        return Seen(
            kind=kind,
            uid=found.st_uid,
            gid=found.st_gid,
            mode=mode,
            acl=listed or acl.of_mode(mode),
            listed=listed is not None,
            default=default,
        )

    def text(self, path: Path) -> str:
        """Return a file of text. Raises OSError, also for what is no file, or a longer one: a role may have put it."""
        content = regularfile.content(path, most=_MOST_TEXT)
        if len(content) > _MOST_TEXT:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return content.decode(errors="replace")

    def names(self, directory: Path) -> list[str]:
        """Return what is in a directory. Raises OSError."""
        return sorted(path.name for path in directory.iterdir())

    def found(self, directory: Path, pattern: str) -> Iterator[Path]:
        """Yield the paths below a directory that a glob pattern fits. What may not be seen is passed over."""
        with contextlib.suppress(PermissionError):
            yield from sorted(directory.glob(pattern))

    def real(self, path: Path) -> Path:
        """Return where a path leads, every link followed."""
        return Path(os.path.realpath(path))

    def silence(self, path: Path) -> str | None:
        """Say why nobody answers on a socket; None where somebody listens. Raises PermissionError."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_CONNECT_SECONDS)
            try:
                client.connect(os.fspath(path))
            except PermissionError:
                raise
            except OSError as error:
                return "nobody listens" if error.errno == errno.ECONNREFUSED else error.strerror or "no connection"
        return None

    def mount_points(self, uid: int, command: Sequence[str]) -> list[str] | None:
        """Return where something is mounted for the process of a user that runs `command`; None where none is seen."""
        for process in _processes(uid, command):
            # A process may end, and others' mounts are theirs to see.
            with contextlib.suppress(OSError):
                table = (process / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
                return [_unescaped(line.split(" ")[4]) for line in table.split("\n")[:-1]]
        return None

    def control_groups(self, uid: int, command: Sequence[str]) -> list[Path] | None:
        """Return the control group of the process of a user that runs `command`, and those above it, of version 2.

        None where no such process is seen. Empty where that version holds nothing here.
        """
        for process in _processes(uid, command):
            with contextlib.suppress(OSError):
                return _control_groups((process / "cgroup").read_text(encoding="utf-8", errors="surrogateescape"))
        return None

    def synchronised(self) -> bool | None:
        """Say whether something keeps this clock right; None where the kernel does not tell."""
        if SYNCHRONISED.exists():
            return True
        answer = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        return None if answer == _NO_CLOCK else answer != _CLOCK_ERROR

    def space(self, path: Path) -> Space:
        """Return what is left on the file system of `path`. Raises OSError."""
        disk = os.statvfs(path)
        return Space(free_bytes=disk.f_bavail * disk.f_frsize, files_free=disk.f_favail if disk.f_files > 0 else None)


def _processes(uid: int, command: Sequence[str]) -> Iterator[Path]:
    wanted = b"".join(word.encode() + b"\0" for word in command)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == uid and (process / "cmdline").read_bytes() == wanted:
                yield process


def _control_groups(table: str) -> list[Path]:
    if not (CONTROL_GROUPS / "cgroup.controllers").exists():
        return []  # version 1, or both at once: what holds there is not found this way
    own = next((line.removeprefix("0::") for line in table.splitlines() if line.startswith("0::/")), "/")
    path = CONTROL_GROUPS / own.lstrip("/")
    return [here for here in (path, *path.parents) if here.is_relative_to(CONTROL_GROUPS)]


def _unescaped(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _list(path: Path, attribute: str) -> Acl | None:
    try:
        return acl.of(path, attribute)
    except acl.NoAcl:
        return None
