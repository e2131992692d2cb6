"""Whose Podman runs the tools, and what that user may enter.

Reads: the user database, /etc/subuid, /etc/subgid, modes of directories. Whoever holds a user's Podman
socket holds that user, so root has one that owns nothing else (setup.sh makes it); anybody else can only
be that user themselves, which `warning` says.
"""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from deploy.local.refusal import Refusal

NAME = "boxmaker-tools"
_RANGES = (Path("/etc/subuid"), Path("/etc/subgid"))


class NoIds(Refusal):
    """An ordinary user has no ids to give to containers, and cannot take them."""


@dataclass(frozen=True, kw_only=True)
class ToolUser:
    """The owner of the tool containers."""

    name: str
    uid: int
    gid: int
    own: bool
    """It is a user for this alone, not the one who typed the command."""

    @property
    def warning(self) -> str | None:
        """What the owner should know of this choice."""
        if self.own:
            return None
        return f"tools run as {self.name}, who owns more than them; started by root they have a user of their own"


def find() -> ToolUser:
    """Return the user that tools run as here. Raises Refusal with the command that makes one."""
    own = os.geteuid() == 0
    try:
        entry = pwd.getpwnam(NAME) if own else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise Refusal(f"there is no user {NAME} yet: deploy/local/setup.sh podman makes it") from None
    user = ToolUser(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, own=own)
    if not all(_has_range(file, user) for file in _RANGES):
        raise NoIds(
            f"{user.name} has no ids for containers; run this once as root, with ids that nobody has there: "
            f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user.name}"
        )
    return user


def may_enter(directory: Path, user: ToolUser) -> bool:
    """Say whether the user may pass through every directory down to this one, by their modes."""
    if not user.own:
        return True
    resolved = directory.resolve()
    return all(_passes(path.stat(), user) for path in (resolved, *resolved.parents))


def _passes(status: os.stat_result, user: ToolUser) -> bool:
    if status.st_uid == user.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == user.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def _has_range(file: Path, user: ToolUser) -> bool:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return False
    return any(line.split(":")[0] in (user.name, str(user.uid)) for line in lines)
