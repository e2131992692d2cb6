"""Which users of this machine are the appliance's: one for each role, one for the tools.

Reads: the user and group databases, /etc/subuid, /etc/subgid. Root has users that are made for this alone (setup.sh's
part `appliance` makes them); for anybody else every role is that person, and `Users.warning` says so.
"""

import grp
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass

from bxcore.wiring import OWNER, Wiring
from deploy.local import tooluser
from deploy.local.refusal import Refusal
from deploy.local.tooluser import ToolUser

ROOT = "root"


class NoUsers(Refusal):
    """The appliance's users or groups are not there."""


@dataclass(frozen=True, kw_only=True)
class Users:
    """The users and groups of a wiring, by the names that it uses. `own`: each is a user of its own."""

    own: bool
    users: Mapping[str, ToolUser]
    groups: Mapping[str, int]

    def user(self, name: str) -> ToolUser:
        return self.users[name]

    def uid(self, name: str) -> int:
        """Return the uid of a directory's user. Whoever runs this stands for root and for the owner."""
        return self.users[name].uid if name in self.users else os.geteuid()

    def gid(self, name: str) -> int:
        return self.groups[name] if name in self.groups else os.getegid()

    @property
    def warning(self) -> str | None:
        """What the owner should know of this choice."""
        if self.own:
            return None
        name = next(iter(self.users.values())).name
        return (
            f"every role runs as {name}: only the containers keep them apart, and one that is broken out of would be "
            "you. Started by root each role has a user of its own, in a checkout of root's"
        )


def find(wiring: Wiring) -> Users:
    """Return the users of the roles and of the tools. Raises Refusal with the command that makes what is missing."""
    if os.geteuid() != 0:
        return _everybody_is_me(wiring)
    try:
        users = {name: _user(name) for name in wiring.users}
        groups = {name: grp.getgrnam(name).gr_gid for name in group_names(wiring)}
    except KeyError as missing:
        raise NoUsers(f"{missing.args[0]}; deploy/local/setup.sh appliance makes what is missing") from None
    for user in users.values():
        tooluser.need_ids(user)
    return Users(own=True, users=users, groups=groups)


def group_names(wiring: Wiring) -> tuple[str, ...]:
    """Return the groups that have to be there: each user's, and each edge's."""
    return tuple(sorted({*wiring.users, *(edge.group for edge in wiring.edges)}))


def _everybody_is_me(wiring: Wiring) -> Users:
    entry = pwd.getpwuid(os.geteuid())
    me = ToolUser(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, own=False)
    tooluser.need_ids(me)
    return Users(own=False, users=dict.fromkeys(wiring.users, me), groups={})


def _user(name: str) -> ToolUser:
    if name in (ROOT, OWNER):
        raise AssertionError(f"{name} runs no role")
    entry = pwd.getpwnam(name)
    return ToolUser(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, own=True)
