"""Opens files and nothing else: a pipe, a device or a directory in a file's place is an error, never a wait.

Reads: what it is asked for. Raises OSError only, so that each caller says it in the words of its group.
Standard library only: inferproxy imports this module.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

_WHAT = "not a regular file"

Opener = Callable[[Path, int, int], int]


def descriptor(path: Path, flags: int, *, mode: int = 0o600, opener: Opener = os.open) -> int:
    """Open `path` with `flags` and return the descriptor. Links are followed unless O_NOFOLLOW is among them."""
    try:
        # Without O_NONBLOCK the open of a pipe waits for its other end; for a regular file it means nothing.
        fd = opener(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
            raise OSError(errno.EINVAL, _WHAT) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, _WHAT)
    return fd


def content(path: Path, *, most: int) -> bytes:
    """Return what `path` holds, or its first `most` + 1 bytes: the caller refuses what is longer than `most`."""
    with os.fdopen(descriptor(path, os.O_RDONLY), "rb") as file:
        return file.read(most + 1)
