"""Does the user that tools run as get to a path? As far as owner, group and mode of its parts tell.

Reads: the file system, by lstat and by asking whether there is an ACL. Invariant: says no only where nothing speaks
for a yes. What a link, an ACL or brokerd's own lack of permission leaves open is not judged: the container service
tells it at the call (`mount_denied`). Threads: any.
"""

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

import attrs

from brokerd import match, usermap
from bxcore import grants
from bxcore.tools import ToolKind

_READ, _WRITE, _ENTER = 4, 2, 1
_ACL = "system.posix_acl_access"
_LISTING = frozenset({"list_directory", "search_files"})


@attrs.frozen(kw_only=True)
class ToolUser:
    """The user that tools run as."""

    uid: int
    groups: frozenset[int]

    @classmethod
    def of(cls, socket: Path) -> "ToolUser | None":
        """Return the owner of the container service's socket.

        None where there is no socket, or where this process runs in a container and cannot tell whose it is: a path
        then fails at the call, and `bxctl doctor` judges it from the host.
        """
        try:
            found = socket.stat()
        except OSError:
            return None
        if found.st_uid == usermap.stranger():
            return None
        return cls(uid=found.st_uid, groups=frozenset({found.st_gid, *_groups_of(found.st_uid)}))


def obstacle(path: str, kind: ToolKind, user: ToolUser) -> str | None:
    """Say what keeps `user` from what the tool does at `path`, in one line; None where nothing is known to."""
    if user.uid == 0:
        return None
    *above, last = _parts(path)
    for here in (*above, last):
        try:
            found = os.lstat(here)
        except OSError:
            return None
        if stat.S_ISLNK(found.st_mode):
            return None
        needed, word = (_ENTER, "enter") if here != last else _needed(found, kind)
        if not _may(here, found, user, needed):
            return f"the user that tools run as (uid {user.uid}) may not {word} {grants.shown(here)}"
    return None


def _parts(path: str) -> Iterator[str]:
    """Yield the root, and each directory on the way to `path`, itself last."""
    yield "/"
    parts = [part for part in path.split("/") if part]
    yield from ("/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _needed(found: os.stat_result, kind: ToolKind) -> tuple[int, str]:
    if not stat.S_ISDIR(found.st_mode):
        return _READ, "read"
    if match.replaces_a_file(kind):
        return _WRITE | _ENTER, "write in"
    return (_READ | _ENTER, "list") if kind.name in _LISTING else (_ENTER, "enter")


def _may(path: str, found: os.stat_result, user: ToolUser, needed: int) -> bool:
    shift = 6 if found.st_uid == user.uid else 3 if found.st_gid in user.groups else 0
    return (found.st_mode >> shift) & needed == needed or _has_acl(path)


def _has_acl(path: str) -> bool:
    try:
        return bool(os.getxattr(path, _ACL, follow_symlinks=False))
    except OSError:  # there is none, or this file system has none at all
        return False


def _groups_of(uid: int) -> list[int]:
    try:
        known = pwd.getpwuid(uid)
        return os.getgrouplist(known.pw_name, known.pw_gid)
    except (KeyError, OSError):
        return []
