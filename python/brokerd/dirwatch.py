"""Whether anything in one directory changed since it was looked at, asked of the kernel (inotify) in microseconds.

A hint that saves looking at a thousand files for each decision. The kernel queues an event before the call that
made a change returns, so who looks afterwards finds it. It does not tell of changes made through another name
(hard link), memory maps, or another machine's mount: the user of this class looks for itself now and then.
Where the kernel has no inotify, or no watch left, nothing is ever called still. Threads: one at a time.
"""

import ctypes
import os
import weakref
from pathlib import Path

# <sys/inotify.h>: whatever changes a file, its name or its mode, and the directory itself.
_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_ONLYDIR, _DONT_FOLLOW = 0x0100_0000, 0x0200_0000
_CHANGES = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF

_MOST_READS = 64
_READ_BYTES = 65_536

Identity = tuple[int, int]
"""Device and inode."""


class DirectoryWatch:
    """Watches what `path` names at the time of `begin`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events = -1
        self._close: weakref.finalize[[int], DirectoryWatch] | None = None
        self._watched: Identity | None = None
        self._quiet = False

    def begin(self, directory: int) -> None:
        """Count from now what happens in the directory of this descriptor. Called before each look at all of it."""
        found = os.fstat(directory)
        identity = found.st_dev, found.st_ino
        if identity != self._watched:
            self._renew()
        # Each time: the kernel forgets the watch of a directory that is removed, and a new one may get its number.
        self._watched = identity if self._watch() else None
        # Not quiet either where events come faster than they are read.
        self._quiet = self._watched is not None and self._drain()

    def still(self) -> bool:
        """Whether nothing happened since `begin`, and the path still leads to that directory."""
        self._quiet = self._quiet and self._leads_there() and self._has_no_event()
        return self._quiet

    def _leads_there(self) -> bool:
        try:
            found = self._path.lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._watched

    def _has_no_event(self) -> bool:
        try:
            os.read(self._events, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _renew(self) -> None:
        if self._close is not None:
            self._close()
        self._events = _queue()
        self._close = weakref.finalize(self, os.close, self._events) if self._events >= 0 else None

    def _watch(self) -> bool:
        """Should the path lead elsewhere by now, `still` finds that, or the event of its move does."""
        mask = _CHANGES | _ONLYDIR | _DONT_FOLLOW
        if self._events < 0:
            return False
        added: int = ctypes.CDLL(None).inotify_add_watch(self._events, os.fsencode(self._path), mask)
        return added >= 0

    def _drain(self) -> bool:
        """Forget what happened so far; False where it does not come to an end."""
        return any(self._has_no_event() for _ in range(_MOST_READS))


def _queue() -> int:
    """Return the descriptor of a new queue of events, or -1 where there is none to be had."""
    try:
        made: int = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError):
        return -1
    return made
