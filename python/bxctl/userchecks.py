"""Checks of `bxctl doctor`: the appliance's users are themselves, and nothing else.

A role's user is what keeps it from the other roles' files where its container does not: it has no login, no other
group, nobody in its group, and ids for its containers that are nobody else's.
"""

import itertools
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from bxcore.wiring import OWNER
from bxctl import finding
from bxctl.finding import Fault, Finding
from bxctl.installed import Installed
from bxctl.machine import Group, User

USER_UNFIT, IDS_UNFIT = "user_unfit", "ids_unfit"

TOOL_IDS = 65_536
"""Each tool container gets a range of its own out of these."""

ID_FILES = (Path("/etc/subuid"), Path("/etc/subgid"))
_FIRST_ID = 100_000
_NO_LOGIN = frozenset({"nologin", "false"})
_NO_LOGIN_SHELL = "/usr/sbin/nologin"


@attrs.frozen(kw_only=True)
class Range:
    """A line of /etc/subuid or /etc/subgid: ids that a user may give to containers."""

    user: str
    first: int
    count: int

    @property
    def end(self) -> int:
        """The first id behind it."""
        return self.first + self.count


def users(installed: Installed) -> Iterator[Finding]:
    """Check the user and the group of each role and of the tools."""
    if installed.one is not None:
        name = installed.machine.uids().get(installed.one, str(installed.one))
        text = f"every role is {name}: only the containers keep them apart"
        yield Finding(name="users", passed=True, expected="a user for each role, or one for all", found=text)
        return
    names = installed.role_users
    faults = [fault for name in names for fault in _user(installed, name)]
    held = f"{', '.join(names)}: each alone"
    yield from finding.room("users", held=held, faults=faults, runbook=USER_UNFIT)


def _user(installed: Installed, name: str) -> Iterator[Fault]:
    uid = installed.wiring.users[name]
    user = installed.machine.user(name)
    if user is None:
        yield Fault(
            expected=f"a user {name} with uid {uid}",
            found="no such user",
            why="each role runs as a user of its own",
            command=f"useradd --system --uid {uid} --user-group --no-create-home --home-dir /nonexistent "
            f"--shell {_NO_LOGIN_SHELL} {name}",
        )
        return
    if user.uid != uid:
        yield Fault(
            expected=f"{name} has uid {uid}",
            found=f"uid {user.uid}",
            why="files of a backup, and units that name the uid, belong to that number",
            command=f"usermod --uid {uid} {name}",
        )
    yield from _nothing_else(installed, user)


def _nothing_else(installed: Installed, user: User) -> Iterator[Fault]:
    if user.shell.rpartition("/")[2] not in _NO_LOGIN:
        yield Fault(
            expected=f"{user.name} cannot log in",
            found=f"its shell is {user.shell or '/bin/sh'}",
            why="nobody is to become a role but by its unit",
            command=f"usermod --shell {_NO_LOGIN_SHELL} {user.name}",
        )
    for gid in sorted(user.groups - {user.gid}):
        yield Fault(
            expected=f"{user.name} is in no group but its own",
            found=f"it is in the group with gid {gid}",
            why="what is open to that group is open to the role; a pair's sockets are opened by an access list instead",
            command=f'gpasswd --delete {user.name} "$(getent group {gid} | cut -d: -f1)"',
        )
    group = installed.machine.group(user.name)
    if group is None or group.gid != user.gid:
        yield Fault(
            expected=f"{user.name} has a group {user.name} of its own",
            found="there is none" if group is None else f"its group has gid {user.gid}, that one {group.gid}",
            why="its files belong to that group",
            command=f"groupadd --system --force {user.name} && usermod --gid {user.name} {user.name}",
        )
    if group is not None and group.gid == user.gid:
        yield from _strangers(installed, group, own=user.name, why="who is in a role's group reads its settings")


def _strangers(installed: Installed, group: Group, *, own: str | None, why: str) -> Iterator[Fault]:
    """Yield a fault for each user but `own` who is in a group in which nobody else may be."""
    for member in sorted(installed.machine.within(group) - {own}):
        quoted = shlex.quote(member)
        listed = f"gpasswd --delete {quoted} {group.name}"
        theirs = f"groupadd --force {quoted} && usermod --gid {quoted} {quoted}"
        yield Fault(
            expected=f"nobody else is in the group {group.name}" if own else f"nobody is in the group {group.name}",
            found=f"{member} is" if member in group.members else f"it is the own group of {member}",
            why=why,
            command=listed if member in group.members else theirs,
        )


# -- groups of pairs -------------------------------------------------------------------------------


def groups(installed: Installed) -> Iterator[Finding]:
    """Check who is in the group of each pair: nobody in one of two roles, people alone in one of the owner's."""
    if installed.one is not None:
        return
    faults: list[Fault] = []
    people = []
    for edge in installed.wiring.edges:
        group = installed.machine.group(edge.group)
        if group is None:
            continue  # the directory that should belong to it is told
        if edge.client == OWNER:
            faults += _roles_among(installed, group)
            people.append(f"{group.name} {', '.join(sorted(installed.machine.within(group))) or 'nobody'}")
        else:
            faults += _strangers(
                installed,
                group,
                own=None,
                why=f"who is in it reaches the socket between {edge.client} and {edge.listener}",
            )
    held = f"nobody in those between roles; owners: {'; '.join(people)}"
    yield from finding.room("groups", held=held, faults=faults, runbook=USER_UNFIT)


def _roles_among(installed: Installed, group: Group) -> Iterator[Fault]:
    """A role that is in the owners' group would answer brokerd's questions."""
    for member in sorted(installed.machine.within(group) & set(installed.role_users)):
        user = installed.machine.user(member)
        if user is None or group.gid not in user.groups - {user.gid}:  # else the check of users has said so
            yield Fault(
                expected=f"no role is in the group {group.name}",
                found=f"{member} is",
                why="who is in it is an owner: answers questions, reads every conversation",
                command=f"gpasswd --delete {member} {group.name}",
            )


# -- ids for containers ----------------------------------------------------------------------------


def ids(installed: Installed) -> Iterator[Finding]:
    """Check the ranges of ids that the users may give to containers."""
    uids = installed.machine.uids()
    tools, owners = _owners(installed, uids)
    faults: list[Fault | None] = []
    for path in ID_FILES:
        try:
            ranges = parse(installed.machine.text(path))
        except FileNotFoundError:
            ranges = ()
        except OSError:
            faults.append(None)
            continue
        faults += enough(path, ranges, owners=owners, tools=tools)
        faults += apart(path, ranges, owners=owners, users=uids)
    held = f"at least {TOOL_IDS} for {tools}, and nobody shares any"
    yield from finding.room("ids of containers", held=held, faults=faults, runbook=IDS_UNFIT)


def _owners(installed: Installed, uids: Mapping[int, str]) -> tuple[str, dict[str, str]]:
    """Return whom the tools run as, and who is meant by a word of the files: a user may stand there by its number."""
    if installed.one is not None:
        name = uids.get(installed.one, str(installed.one))
        return name, {name: name, str(installed.one): name}
    numbers = {name: installed.uid(name) for name in installed.role_users}
    by_number = {str(uid): name for name, uid in numbers.items() if uid is not None}
    return installed.wiring.tools.user, {name: name for name in numbers} | by_number


def parse(text: str) -> tuple[Range, ...]:
    """Return the lines that Podman would read; it passes over the others."""
    lines = [line.strip().split(":") for line in text.splitlines()]
    return tuple(
        Range(user=user, first=int(first), count=int(count))
        for user, first, count in (line for line in lines if len(line) == 3)
        if first.isdecimal() and count.isdecimal()
    )


def enough(path: Path, ranges: tuple[Range, ...], *, owners: Mapping[str, str], tools: str) -> Iterator[Fault]:
    """Yield a fault for each of `owners` that has too few ids: many for `tools`, some for the others."""
    for name in dict.fromkeys(owners.values()):
        total = sum(one.count for one in ranges if owners.get(one.user) == name)
        wanted = TOOL_IDS if name == tools else 1
        if total < wanted:
            yield Fault(
                expected=f"{name} has at least {wanted} ids in {path}",
                found=str(total),
                why="the users inside a container are these ids; without them Podman makes none",
                command=f"usermod --add-{path.name}s {free(ranges)} {name}",
            )


def apart(
    path: Path, ranges: tuple[Range, ...], *, owners: Mapping[str, str], users: Mapping[int, str]
) -> Iterator[Fault]:
    """Yield a fault for each range of one of `owners` of which somebody else has a part, or is one of its ids."""
    for one, other in itertools.combinations(ranges, 2):
        names = [owners.get(part.user, part.user) for part in (one, other)]
        if names[0] != names[1] and one.first < other.end and other.first < one.end:
            ours, theirs = (one, names[1]) if one.user in owners else (other, names[0])
            if ours.user in owners:
                yield _shared(path, ranges, ours, f"{theirs} has some of them too")
    for ours in (one for one in ranges if one.user in owners):
        for uid in sorted(uid for uid in users if ours.first <= uid < ours.end):
            yield _shared(path, ranges, ours, f"{uid} is the user {users[uid]}")


def _shared(path: Path, ranges: tuple[Range, ...], ours: Range, found: str) -> Fault:
    held = f"{ours.first}-{ours.end - 1}"
    return Fault(
        expected=f"the ids {held} of {ours.user} in {path} are its own",
        found=found,
        why="a process in a container of the one would be the other's on the host",
        command=f"usermod --del-{path.name}s {held} --add-{path.name}s {free(ranges)} {ours.user}",
    )


def free(ranges: tuple[Range, ...]) -> str:
    """Return the first ids above everybody's, as usermod wants them."""
    first = max([_FIRST_ID, *(one.end for one in ranges)])
    return f"{first}-{first + TOOL_IDS - 1}"
