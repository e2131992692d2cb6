"""Opens files below what was mounted for a call, whatever is swapped meanwhile: no link is ever followed.

A root is opened once, compared with the device and inode that brokerd decided on, and everything else
is opened relative to that descriptor: by openat2, which checks and opens in one step, or component by
component where the kernel or a seccomp filter has no openat2. Raises OSError only (ELOOP for a link),
and NotAsDecided. Threads: a Root is read-only once it is made.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Sequence

import attrs

from bxcore import paths
from toolkit.order import Misuse, Mount

_OPENAT2 = 437  # the same number on every architecture that has it
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_TRIES = 64
_NOT_THERE = frozenset({errno.ENOSYS, errno.EPERM})


class NotAsDecided(Exception):
    """Something else lies at a mount than what brokerd decided on. Exit code 2, and a marker for brokerd."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


@attrs.frozen(kw_only=True)
class Root:
    """A mount that is what was decided. `fd` was opened with O_PATH and stays open as long as the process."""

    path: str
    fd: int
    directory: bool


def open_root(mount: Mount) -> Root:
    """Open a mount and compare it with what brokerd saw there when it decided, or raise NotAsDecided."""
    try:
        fd = os.open(mount.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        raise NotAsDecided from None
    found = os.fstat(fd)
    if (found.st_dev, found.st_ino) != (mount.device, mount.inode) or stat.S_ISLNK(found.st_mode):
        os.close(fd)
        raise NotAsDecided
    return Root(path=mount.path, fd=fd, directory=stat.S_ISDIR(found.st_mode))


def root_of(roots: Sequence[Root], path: str) -> Root:
    """Return the innermost root that `path` lies in. Misuse: brokerd mounts what it puts into the arguments."""
    fitting = [root for root in roots if paths.below(path, root.path)]
    if not fitting:
        raise Misuse("the path lies in no mount")
    return max(fitting, key=lambda root: len(root.path))


def open_path(roots: Sequence[Root], path: str, flags: int, *, mode: int = 0) -> int:
    """Open an absolute path below one of the roots."""
    root = root_of(roots, path)
    inside = path[len(root.path) :].lstrip("/")
    if root.directory:
        return open_below(root.fd, inside or ".", flags, mode=mode)
    if inside:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return _open_again(root, flags)


def open_below(directory: int, inside: str, flags: int, *, mode: int = 0) -> int:
    """Open the relative path `inside`, which holds no `..`, below the directory `directory`."""
    how = _How(flags | _ALWAYS, mode if flags & os.O_CREAT else 0, _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH)
    name = os.fsencode(inside)
    for _ in range(_TRIES):
        fd: int = _libc.syscall(_OPENAT2, directory, name, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        fault = ctypes.get_errno()
        if fault in _NOT_THERE:
            return _walk(directory, inside, flags, mode)
        # EAGAIN: a rename elsewhere made the kernel unsure, and it wants to be asked again.
        if fault not in (errno.EINTR, errno.EAGAIN):
            break
    raise OSError(fault, os.strerror(fault))


def _walk(directory: int, inside: str, flags: int, mode: int) -> int:
    """Do what openat2 does, one component at a time: each is opened in the directory before it and is no link."""
    *parents, last = inside.split("/")
    here = directory
    try:
        for parent in parents:
            deeper = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            if here != directory:
                os.close(here)
            here = deeper
        return os.open(last, flags | _ALWAYS, mode, dir_fd=here)
    finally:
        if here != directory:
            os.close(here)


def _open_again(root: Root, flags: int) -> int:
    """Open a root that is a file: by its path, and only if that still is the same file."""
    fd = os.open(root.path, flags | _ALWAYS)
    if not os.path.samestat(os.fstat(fd), os.fstat(root.fd)):
        os.close(fd)
        raise NotAsDecided
    return fd
