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
_FIRST = 100_000
_COUNT = 65_536


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
        return (
            f"tools run as {self.name}: a container that is broken out of would be you. Started by root they get a "
            "user of their own, in a checkout of root's"
        )


def find() -> ToolUser:
    """Return the user that tools run as here. Raises Refusal with the command that makes one."""
    own = os.geteuid() == 0
    try:
        entry = pwd.getpwnam(NAME) if own else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise Refusal(f"there is no user {NAME} yet: deploy/local/setup.sh podman makes it") from None
    user = ToolUser(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, own=own)
    need_ids(user)
    return user


def need_ids(user: ToolUser) -> None:
    """Raise NoIds, with the command that gives them, where the user has no ids for containers."""
    if not all(_has_range(file, user) for file in _RANGES):
        ids = free_range()
        raise NoIds(
            f"{user.name} has no ids for containers; run this once as root:\n"
            f"    usermod --add-subuids {ids} --add-subgids {ids} {user.name}"
        )


def free_range() -> str:
    """Return the first ids above everybody's, as setup.sh finds them."""
    held = [line.split(":") for file in _RANGES for line in _lines(file)]
    first = max([_FIRST, *(int(line[1]) + int(line[2]) for line in held if _is_range(line))])
    return f"{first}-{first + _COUNT - 1}"


def _is_range(fields: list[str]) -> bool:
    return len(fields) == 3 and fields[1].isdecimal() and fields[2].isdecimal()


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
    return any(line.split(":")[0] in (user.name, str(user.uid)) for line in _lines(file))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
