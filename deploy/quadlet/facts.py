"""What the installer has to know of a machine, and why it may not install there.

Reads: /run/systemd, /sys/fs/cgroup, the user and group files below the root, the PATH, `podman --version`.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bxcore.wiring import OWNER, Wiring

PODMAN = (5, 0)
CONTROLLERS = ("memory", "pids")
PROGRAMS = (
    "loginctl", "newgidmap", "newuidmap", "pasta", "setpriv", "systemctl", "systemd-sysusers", "systemd-tmpfiles",
)  # fmt: skip

_VERSION = re.compile(r"(\d+)\.(\d+)")
_COMMAND_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """Names and numbers of users and groups. `members`: everybody who is in a group, by whichever of the files."""

    users: Mapping[str, int]
    groups: Mapping[str, int]
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a machine is able to do. `podman`: None where there is none. `version`: systemd's, 0 if unknown."""

    systemd: bool
    version: int
    controllers: frozenset[str]
    podman: tuple[int, int] | None
    programs: frozenset[str]


def accounts(root: Path) -> Accounts:
    """Return the accounts in the files below `root`."""
    return Accounts(
        users=_numbers(root / "etc" / "passwd"),
        groups=_numbers(root / "etc" / "group"),
        members=_members(root),
    )


def look() -> Machine:
    """Look at this machine."""
    return Machine(
        systemd=Path("/run/systemd/system").is_dir(),
        version=_systemd(),
        controllers=frozenset(_content(Path("/sys/fs/cgroup/cgroup.controllers")).split()),
        podman=_podman(),
        programs=frozenset(name for name in PROGRAMS if shutil.which(name)),
    )


def unable(machine: Machine) -> Iterator[str]:
    """Yield what the machine lacks, with what helps."""
    if not machine.systemd:
        yield "systemd does not run this machine, and the units are systemd's; `make appliance` needs none"
    if missing := sorted(set(CONTROLLERS) - machine.controllers):
        yield (
            f"cgroup v2 does not offer {' and '.join(missing)}, so a role's limits would not hold: start the kernel "
            "without systemd.unified_cgroup_hierarchy=0 and cgroup_disable="
        )
    if machine.podman is None:
        yield "podman is not installed"
    elif machine.podman < PODMAN:
        yield (
            f"podman {_dotted(machine.podman)} is too old: units for containers (Quadlet) came with 4.4, and with "
            f"drop-ins, which this machine's settings are, in {_dotted(PODMAN)}"
        )
    if absent := sorted(set(PROGRAMS) - machine.programs):
        yield f"these programs are missing: {', '.join(absent)} (docs/other-linux.md names their packages)"


def taken(found: Accounts, wiring: Wiring) -> Iterator[str]:
    """Yield each of the wiring's names and numbers that somebody else has."""
    for kind, there in (("user", found.users), ("group", found.groups)):
        for user, number in wiring.users.items():
            if there.get(user, number) != number:
                yield f"the {kind} {user} is there with the number {there[user]}, and has to have {number}"
            for name in (name for name, held in there.items() if held == number and name != user):
                yield f"the {kind} number {number}, which is {user}'s, belongs to {name}"


def strangers(found: Accounts, wiring: Wiring, owner: str) -> Iterator[str]:
    """Yield who is in a group of Boxmaker's without being that role or the owner, and which role is in another one.

    A pair's group opens their directory: who is in that of the tools' Podman holds the user that tools run as.
    """
    allowed = {user: {user} for user in wiring.users}
    # A role that calls another one is let in by an ACL, and is in no group.
    allowed |= {edge.group: {owner} if edge.client == OWNER else set() for edge in wiring.edges}
    for group, members in found.members.items():
        for name in sorted(members - allowed[group] if group in allowed else members & set(wiring.users)):
            own = group if group in allowed else name
            yield (
                f"{name} is in the group {group}, and {own} is Boxmaker's own: take them out "
                f"(gpasswd -d {name} {group}; usermod -g, where it is their first group)"
            )


def owner(found: Accounts, wiring: Wiring, name: str) -> Iterator[str]:
    """Yield why this user cannot be the owner."""
    if name in wiring.users:
        yield f"{name} is a user of Boxmaker's own, and the owner, who answers its questions, is a person"
    if name not in found.users:
        yield f"there is no user {name} here, who is to be the owner"


def _numbers(file: Path) -> dict[str, int]:
    fields = [line.split(":") for line in _content(file).splitlines()]
    return {field[0]: int(field[2]) for field in fields if len(field) > 2 and field[2].isdecimal()}


def _members(root: Path) -> dict[str, frozenset[str]]:
    """Group -> who is in it: named in its line, or in that of another with its number, or by the user's own line."""
    lines = [line.split(":") for line in _content(root / "etc" / "group").splitlines()]
    users = [line.split(":") for line in _content(root / "etc" / "passwd").splitlines()]
    groups = [(line[0], line[2], line[3].split(",")) for line in lines if len(line) > 3]
    first = [(user[0], user[3]) for user in users if len(user) > 3]
    return {
        group: frozenset(
            [name for _, also, names in groups if also == number for name in map(str.strip, names) if name]
            + [name for name, also in first if also == number]
        )
        for group, number, _ in groups
    }


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _podman() -> tuple[int, int] | None:
    found = _VERSION.search(_told("podman", "--version"))
    return (int(found[1]), int(found[2])) if found else None


def _systemd() -> int:
    found = re.match(r"systemd (\d+)", _told("systemctl", "--version"))
    return int(found[1]) if found else 0


def _told(*argv: str) -> str:
    try:
        told = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS
        )
    except FileNotFoundError:
        return ""
    return told.stdout


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
