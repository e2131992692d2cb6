"""What is to be said of the paths that grants name, as the host is now: warnings, before a call fails of it.

Nothing here decides: a path that is not there may come, and access may be given. Reads: the file system, by lstat,
and who owns the container service's socket. Threads: any.
"""

import os
from collections.abc import Callable, Iterator

from brokerd import links, mounts, reach
from brokerd.call import Call
from brokerd.mounts import Mount
from brokerd.protected import Protected
from brokerd.reach import ToolUser
from bxcore.grants import SUFFIX, Grant, GrantSet, Mode
from bxcore.tools import TOOLS
from bxcore.wire.admin import FindingLevel, GrantFinding


class PathReview:
    """`protected` and `user` are asked anew each time: both may be known only once the container service is there."""

    def __init__(self, *, protected: Callable[[], Protected], user: Callable[[], ToolUser | None]) -> None:
        self._protected = protected
        self._user = user

    def findings(self, grants: GrantSet) -> Iterator[GrantFinding]:
        """Yield at most one warning for each path of each grant."""
        protected, user = self._protected(), self._user()
        for grant in grants.grants:
            for index, path in enumerate(grant.paths):
                if text := _warning(grant, path, protected, user):
                    text = f"constraints.paths[{index}]: {text}"
                    yield GrantFinding(file=f"{grant.id}{SUFFIX}", line=0, level=FindingLevel.WARNING, text=text)

    def unreachable(self, call: Call, found: tuple[Mount, ...]) -> str | None:
        """Say what keeps the tool user from what the call would be shown, None where nothing is known to."""
        user = self._user()
        if user is None:
            return None
        return next(filter(None, (reach.obstacle(mount.source, call.kind, user) for mount in found)), None)


def _warning(grant: Grant, path: str, protected: Protected, user: ToolUser | None) -> str | None:
    if links.follow(path).real != path:
        return None  # brokerd.grantlinks says where it leads
    if _is_missing(path):
        return "nothing is there now; see whether it is spelt as you meant it"
    if grant.mode is Mode.DENY:
        return None
    if never := mounts.never(path, protected):
        why, all_below = never
        return f"can never be mounted: {why}" if all_below else f"can never be mounted as a whole: {why}"
    stopped = None if user is None else reach.obstacle(path, TOOLS[grant.tool], user)
    return None if stopped is None else f"{stopped}, so such calls are denied until it may"


def _is_missing(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # not to be seen is not known to be missing
    return False
