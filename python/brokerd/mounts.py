"""The one place that turns the path of a call into what its container sees of the host.

Reads: the file system, by lstat, readlink and O_PATH alone (nothing is opened for reading, so a FIFO cannot hold us,
and a device notices nothing). Invariant (INV-9): what is mounted is the narrowest thing that the tool needs; it
neither is, holds nor lies in anything protected, by path, by its place on its file system or by inode, so that a bind
mount or a hard link is no way round (`brokerd.protected` says of which kinds). `resolve` follows every link, and what
it returns is what policy judges; `plan` follows none, so what was swapped since is refused, and notes device and inode,
which the wrapper in the container compares before it begins. Threads: any. Specified in docs/authority.md, "What a call
sees of the host".
"""

import os
import stat
from collections.abc import Iterator, Mapping
from enum import Enum

import attrs

from brokerd import links
from brokerd.call import Call
from brokerd.protected import Identity, MountTable, Protected, identity
from brokerd.runnerfaults import RunnerUnavailable
from bxcore import paths
from bxcore.errors import BoxmakerError
from bxcore.tools import Takes, ToolKind

IMAGE_PLACES = (
    *("/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl"),
    *("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab"),
    *("/proc", "/sys", "/dev", "/run", "/tmp"),  # noqa: S108
)
"""What the tool image brings along. A mount at, above or below one of these would put the host's files in its place."""

PROXY_PLACE = "/egress"
"""Where a call that may reach a host finds the socket of its proxy."""

OWN = "this path is, holds or lies in something of Boxmaker's own"

_SOMETHING, _NO_IDENTITY = "*", (-1, -1)
"""Stands for whatever lies below a path."""

_ROOMY = "/tmp"  # noqa: S108
"""Empty in the image, so a mount below it covers nothing."""


class Unresolvable(BoxmakerError):
    """The path cannot be asked for at all, whatever is granted."""

    code = "invalid_arguments"


class MountRefused(RunnerUnavailable):
    """The path is granted, and yet cannot be shown to a tool. One line, which names no path."""

    code = "mount_refused"


class MountDenied(MountRefused):
    """The container service was not permitted to show the path: its user has no access to it."""

    code = "mount_denied"


class Shape(Enum):
    """What of its path a tool needs: the file, the directory, either, or the directory that the file is in."""

    FILE = "file"
    DIRECTORY = "directory"
    EITHER = "either"
    PARENT = "parent"


# A file that is replaced as a whole needs its directory; nothing else is seen wider than it was asked for.
SHAPES: Mapping[str, tuple[Shape, bool]] = {
    "read_file": (Shape.FILE, False),
    "list_directory": (Shape.DIRECTORY, False),
    "search_files": (Shape.EITHER, False),
    "write_file": (Shape.PARENT, True),
    "edit_file": (Shape.PARENT, True),
    "shell": (Shape.DIRECTORY, True),
}


@attrs.frozen(kw_only=True)
class Mount:
    """One path of the host that a container sees. `destination` is the same path, but for a proxy's socket."""

    source: str
    destination: str
    writable: bool
    device: int
    inode: int


# -- which path is meant ------------------------------------------------------------------------


def resolve(asked: str, kind: ToolKind) -> str:
    """Return the path that `asked` leads to, every link followed: what policy is to judge.

    What cannot be seen (missing, a loop, no permission) stays in the result as it was written, so that a path without
    a grant is answered alike whether or not it exists; `plan` refuses it afterwards. Raises Unresolvable.
    """
    if kind.takes is not Takes.PATHS:
        raise Unresolvable("path: this tool takes none")
    if links.is_kernels(asked):
        raise Unresolvable("path: nothing below /proc, /sys or /dev can be opened")
    real = links.follow(asked).real
    try:
        return paths.check(real)
    except paths.BadPath:
        why = "path: leads to a name that is too long, is not UTF-8, or holds control characters or line ends"
        raise Unresolvable(why) from None


# -- what is mounted ----------------------------------------------------------------------------


def plan(call: Call, protected: Protected) -> tuple[Mount, ...]:
    """Return the mounts of a call whose path was resolved and decided. Raises MountRefused."""
    if call.path is None:
        return ()
    shape, writable = SHAPES.get(call.kind.name, (None, False))
    if shape is None:
        raise MountRefused("it is not known what this tool may see of a path")
    source = call.path if shape is not Shape.PARENT else call.path.rpartition("/")[0] or "/"
    _check_place(source)
    found = _look(call.path, shape)
    _check_protected(source, found, protected)
    if shape is Shape.PARENT:
        _check_target(call.path, protected, missing_ok=call.kind.name == "write_file")
    device, inode = identity(found[-1])
    return (Mount(source=source, destination=source, writable=writable, device=device, inode=inode),)


def never(path: str, protected: Protected) -> tuple[str, bool] | None:
    """Say why this very path is never mounted, and whether that holds for all below it too; None where it may be.

    For the owner's own eyes, beforehand: `plan` looks at more.
    """
    try:
        way = [identity(one) for one in _walk([part for part in path.split("/") if part])]
    except MountRefused:
        return None
    why = _place_refused(path, way, protected)
    if why is None:
        return None
    return why, _place_refused(f"{path}/{_SOMETHING}", [*way, _NO_IDENTITY], protected) is not None


def _place_refused(source: str, way: list[Identity], protected: Protected) -> str | None:
    try:
        _check_place(source)
    except MountRefused as refused:
        return refused.detail
    return OWN if protected.touches(source, way) else None


def _look(path: str, shape: Shape) -> list[os.stat_result]:
    """Return what lies at the root, and at each part of the path down to what is to be mounted, no link followed."""
    parts = [part for part in path.split("/") if part]
    found = list(_walk(parts[:-1] if shape is Shape.PARENT else parts))
    mode = found[-1].st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise MountRefused("it is neither a regular file nor a directory")
    if shape is Shape.FILE and stat.S_ISDIR(mode):
        raise MountRefused("there is a directory at this path")
    if shape in {Shape.DIRECTORY, Shape.PARENT} and stat.S_ISREG(mode):
        raise MountRefused("it is no directory")
    return found


def _walk(parts: list[str]) -> Iterator[os.stat_result]:
    """Yield the stat of each step, each opened below the one before: nothing can be swapped in between."""
    here = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        yield os.fstat(here)
        for part in parts:
            below = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
            found = os.fstat(here)
            if stat.S_ISLNK(found.st_mode):
                raise MountRefused("the path changed after it was decided: there is a link now")
            yield found
    except (FileNotFoundError, NotADirectoryError):
        raise MountRefused("there is nothing at this path") from None
    except PermissionError:
        raise MountRefused("Boxmaker may not enter this path: give its users access to it") from None
    except OSError:
        raise MountRefused("the path cannot be looked at") from None
    finally:
        os.close(here)


def _check_place(source: str) -> None:
    if links.is_kernels(source):
        raise MountRefused("nothing below /proc, /sys or /dev can be opened")
    for place in (*IMAGE_PLACES, PROXY_PLACE):
        if paths.below(place, source) or (paths.below(source, place) and place != _ROOMY):
            raise MountRefused("a mount here would cover files of the tool image")


def _check_protected(source: str, found: list[os.stat_result], protected: Protected) -> None:
    try:
        _check_identity(source, found, protected, MountTable.read())
    except OSError:
        # Not looked at is not known to be harmless.
        raise MountRefused("something of Boxmaker's own could not be compared with this path") from None


def _check_identity(source: str, found: list[os.stat_result], protected: Protected, table: MountTable) -> None:
    if table.is_kernels(found[-1].st_dev):
        raise MountRefused("this file system belongs to the kernel")
    if table.holds_mounts(source):
        raise MountRefused("another file system is mounted below this directory")
    if protected.touches(source, [identity(one) for one in found]) or protected.shows(source, table):
        raise MountRefused(OWN)
    if stat.S_ISDIR(found[-1].st_mode):
        if protected.has_second_names(found[-1].st_dev):
            raise MountRefused("a file of Boxmaker's own has a second name on this file system (a hard link)")
    elif (found[-1].st_nlink > 1 or table.is_mount(source)) and protected.holds(identity(found[-1])):
        raise MountRefused("this file is one of Boxmaker's own under another name")


def _check_target(path: str, protected: Protected, *, missing_ok: bool) -> None:
    """What is to be replaced must be a regular file that is not ours, or, for `missing_ok`, not there yet."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        if missing_ok:
            return
        raise MountRefused("there is nothing at this path") from None
    except OSError:
        raise MountRefused("the path cannot be looked at") from None
    if stat.S_ISLNK(found.st_mode):
        raise MountRefused("the path changed after it was decided: there is a link now")
    if not stat.S_ISREG(found.st_mode):
        raise MountRefused(
            "there is a directory at this path" if stat.S_ISDIR(found.st_mode) else "it is no regular file"
        )
    if protected.touches(path, [identity(found)]):
        raise MountRefused(OWN)
