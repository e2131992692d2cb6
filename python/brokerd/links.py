"""Where a path of the host leads, every link in it followed: for the paths of calls and of grants alike.

Reads: the file system, by readlink alone. Nothing is opened, so a FIFO cannot hold us, and a device notices
nothing. Invariant: what cannot be seen (missing, a loop, no permission) stays as it was written. Threads: any.
"""

import errno
import os

import attrs

from bxcore import paths

MAX_LINKS = 40

_KERNELS = ("/proc", "/sys", "/dev")
"""Their links lead where no path leads, and reading them asks the kernel, not a disk."""

_NO_LINK = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR})
"""What readlink answers where there is something else, or nothing."""


@attrs.frozen(kw_only=True)
class Led:
    """`real` is where the path leads. `unseen` is the first part of the way that could not be looked at, if any was."""

    real: str
    unseen: str | None


def follow(path: str) -> Led:
    """Follow the links of an absolute path. `..` comes from their targets alone, and then `done` holds no link."""
    todo, done, links, unseen = path.split("/")[::-1], list[str](), 0, None
    while todo:
        part = todo.pop()
        if part == "..":
            del done[-1:]
        elif part not in {"", "."}:
            here = "/".join(["", *done, part])
            target, seen = _target(here) if links < MAX_LINKS else (None, False)
            if target is None:
                unseen = unseen or (None if seen else here)
                done.append(part)
                continue
            links += 1
            todo.extend(target.split("/")[::-1])
            done = [] if target.startswith("/") else done
    return Led(real="/" + "/".join(done), unseen=unseen)


def is_kernels(path: str) -> bool:
    """Whether a resolved path lies in one of the kernel's own trees."""
    return any(paths.below(path, root) for root in _KERNELS)


def _target(path: str) -> tuple[str | None, bool]:
    """Return where a link leads, None for what is no link, or must not or cannot be asked; and whether it was seen."""
    if is_kernels(path):
        return None, False
    try:
        return os.readlink(path), True  # noqa: PTH115  # a Path would drop what has to be told apart
    except OSError as error:
        return None, error.errno in _NO_LINK
