"""Puts a new file in the place of an old one in one step; the only tool code that renames, syncs and removes.

Whoever reads meanwhile, and whoever looks after a kill or a power cut, finds the old file or the new one,
whole. A kill may leave a file `.boxmaker-....new` beside it, which means nothing. The last component is
never followed where it is a link: the link would be replaced, so the callers refuse one before.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import attrs

from toolkit import beneath, textfile
from toolkit.beneath import Root
from toolkit.order import ToolError
from toolkit.textfile import Content

NEW_MODE = 0o644
_PRIVATE = 0o600  # until it has the mode of the file that it replaces
_ACL = "system.posix_acl_access"


@attrs.frozen(kw_only=True)
class Spot:
    """A name in a directory that is open as `directory`, and the file that was there, None where there was none.

    `access` is the file's access list as the kernel keeps it, None where it has none.
    """

    directory: int
    name: str
    old: Content | None
    access: bytes | None


@contextmanager
def spot(roots: Sequence[Root], path: str, *, most: int) -> Iterator[Spot]:
    """Open the directory of `path` and read what is there now: a regular file or nothing, else ToolError."""
    parent, _, name = path.rpartition("/")
    directory = beneath.open_path(roots, parent or "/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _look(directory, name, most)
    finally:
        os.close(directory)


def _look(directory: int, name: str, most: int) -> Spot:
    try:
        fd = beneath.open_below(directory, name, os.O_RDONLY)
    except FileNotFoundError:
        return Spot(directory=directory, name=name, old=None, access=None)
    try:
        return Spot(directory=directory, name=name, old=textfile.read_open(fd, most=most), access=_access(fd))
    finally:
        os.close(fd)


def _access(fd: int) -> bytes | None:
    try:
        return os.getxattr(fd, _ACL)
    except OSError:
        return None  # there is none, or the file system knows none


def put(where: Spot, data: bytes) -> None:
    """Make `data` the file at the spot, durable when this returns. ToolError where another file is there by now."""
    beside = f".boxmaker-{os.urandom(6).hex()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(beside, flags, NEW_MODE if where.old is None else _PRIVATE, dir_fd=where.directory)
    try:
        _fill(fd, data, where)
        _refuse_change(where)
        os.rename(beside, where.name, src_dir_fd=where.directory, dst_dir_fd=where.directory)
    except BaseException:
        os.unlink(beside, dir_fd=where.directory)
        raise
    os.fsync(where.directory)


def _fill(fd: int, data: bytes, where: Spot) -> None:
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        if where.old is not None:
            _take_over(fd, where.old.found, where.access)
        os.fsync(fd)
    finally:
        os.close(fd)


def _take_over(fd: int, old: os.stat_result, access: bytes | None) -> None:
    """Give the new file the mode of the old one, and its access list and owner as far as this user may."""
    if access is not None:
        _if_allowed(os.setxattr, fd, _ACL, access)
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)
    _if_allowed(os.fchown, fd, -1, old.st_gid)
    _if_allowed(os.fchown, fd, old.st_uid, -1)


def _if_allowed(call: Callable[..., None], *arguments: object) -> None:
    try:
        call(*arguments)
    except OSError:
        pass  # only root may give files away; the new file then belongs to the user that tools run as


def _refuse_change(where: Spot) -> None:
    """Refuse where somebody else wrote in between: what they wrote was never seen, and would be lost."""
    try:
        now = os.stat(where.name, dir_fd=where.directory, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    before = None if where.old is None else where.old.found
    if _identity(now) != _identity(before):
        raise ToolError("the file was changed by someone else just now; nothing was written")


def _identity(found: os.stat_result | None) -> tuple[int, ...] | None:
    if found is None:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
