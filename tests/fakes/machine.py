"""A machine on which an appliance is installed as its wiring says, for `bxctl doctor`. Tests then break it."""

import copy
import errno
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import attrs

from bxcore import acl, wiring
from bxcore.acl import Acl, Entry, Tag
from bxcore.wiring import OWNER, Directory
from bxctl.installed import ROOT, Installed
from bxctl.machine import CONTROL_GROUPS, Group, Kind, Machine, Seen, Space, User
from tests.structure.sources import ROOT as REPOSITORY

OWNER_UID = 1000
FIRST_PAIR = 3000
HIDDEN = "hidden"
"""In place of what lies at a path: this user may not look there."""

HOME, ETC = Path("/var/lib/boxmaker"), Path("/etc/boxmaker")
TOOL_IMAGE = "ab" * 32


class FakeMachine(Machine):
    """`files` by path: what is seen there, or HIDDEN; `texts`: what they hold. All may be changed."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.groups: dict[str, Group] = {}
        self.files: dict[Path, Seen | str] = {}
        self.texts: dict[Path, str] = {}
        self.links: dict[Path, Path] = {}
        self.silent: set[Path] = set()
        self.points: list[str] | None = None
        self.limited: dict[int, list[Path]] = {}
        self.clock: bool | None = True
        self.left = Space(free_bytes=10**12, files_free=10**6)

    def user(self, name: str) -> User | None:
        return self.users.get(name)

    def group(self, name: str) -> Group | None:
        return self.groups.get(name)

    def within(self, group: Group) -> frozenset[str]:
        return group.members | {user.name for user in self.users.values() if user.gid == group.gid}

    def uids(self) -> dict[int, str]:
        return {user.uid: user.name for user in self.users.values()}

    def look(self, path: Path) -> Seen | None:
        if any(self.files.get(here) == HIDDEN for here in (path, *path.parents)):
            raise PermissionError(errno.EACCES, "Permission denied")
        found = self.files.get(path)
        assert not isinstance(found, str)
        return found

    def text(self, path: Path) -> str:
        self.look(path)
        if path not in self.texts:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return self.texts[path]

    def names(self, directory: Path) -> list[str]:
        if self.look(directory) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return sorted(path.name for path in self.files if path.parent == directory)

    def found(self, directory: Path, pattern: str) -> Iterator[Path]:
        for path in self.texts:
            if path.is_relative_to(directory) and _fits(path.relative_to(directory), pattern):
                yield path

    def real(self, path: Path) -> Path:
        return self.links.get(path, path)

    def silence(self, path: Path) -> str | None:
        return "nobody listens" if path in self.silent else None

    def mount_points(self, uid: int, command: Sequence[str]) -> list[str] | None:
        return self.points

    def control_groups(self, uid: int, command: Sequence[str]) -> list[Path] | None:
        return self.limited.get(uid)

    def synchronised(self) -> bool | None:
        return self.clock

    def space(self, path: Path) -> Space:
        return self.left

    # -- what tests do to it ---------------------------------------------------------------------

    def add_user(self, name: str, uid: int, **more: Any) -> None:
        self.groups[name] = Group(name=name, gid=uid, members=frozenset())
        user = User(
            name=name, uid=uid, gid=uid, home="/nonexistent", shell="/usr/sbin/nologin", groups=frozenset({uid})
        )
        self.users[name] = attrs.evolve(user, **more)

    def put(self, path: Path, kind: Kind, uid: int, gid: int, mode: int, **more: Any) -> None:
        self.files[path] = Seen(kind=kind, uid=uid, gid=gid, mode=mode, **{"acl": acl.of_mode(mode), **more})

    def change(self, path: Path, **to: Any) -> None:
        found = self.files[path]
        assert isinstance(found, Seen)
        # What chmod does: of a path that has no list it is the list.
        if "mode" in to and "acl" not in to and not found.listed:
            to["acl"] = acl.of_mode(to["mode"])
        self.files[path] = attrs.evolve(found, **to)


def _fits(path: Path, pattern: str) -> bool:
    """Whether a glob pattern fits: name by name, as a star stands for no slash."""
    wanted = pattern.split("/")
    return len(path.parts) == len(wanted) and all(map(fnmatch, path.parts, wanted))


def listed(mode: int, **named: int) -> Acl:
    """Return the list of a mode, and of users by name: u2102=1 lets that uid enter."""
    entries = [Entry(tag=Tag.USER, allowed=allowed, who=int(name[1:])) for name, allowed in named.items()]
    return Acl(entries=(*acl.of_mode(mode).entries, *entries, Entry(tag=Tag.MASK, allowed=mode >> 3 & 7)))


def installed() -> tuple[Installed, FakeMachine]:
    """Return an appliance where everything is as it must be."""
    machine = FakeMachine()
    wired = wiring.load(REPOSITORY / "nix" / "roles.json")
    made = Installed(wiring=wired, machine=machine)
    _users(made, machine)
    machine.texts = dict.fromkeys((Path("/etc/subuid"), Path("/etc/subgid")), _ids(made))
    for path in ("/", "/etc", "/var", "/var/lib", "/home"):
        machine.put(Path(path), Kind.DIRECTORY, 0, 0, 0o755)
    for directory in wired.directories:
        _directory(made, machine, directory)
    for file in wired.files:
        gid = 0 if file.group == ROOT else machine.groups[file.group].gid
        machine.put(wired.at(file.path), Kind.FILE, 0, gid, int(file.mode, 8))
    machine.texts[wired.at(wired.tools.image_file)] = f"{TOOL_IMAGE}\n"
    for role in wired.roles.values():
        machine.limited[role.uid] = [CONTROL_GROUPS / role.user / "container", CONTROL_GROUPS / role.user]
        machine.texts[CONTROL_GROUPS / role.user / "container" / "memory.max"] = "max\n"
        machine.texts[CONTROL_GROUPS / role.user / "memory.max"] = f"{role.limits.memory_mb * 1024 * 1024}\n"
        machine.texts[CONTROL_GROUPS / role.user / "pids.max"] = f"{role.limits.processes}\n"
    for edge in wired.edges:
        uid, gid = machine.users[made.user_of(edge.listener)].uid, machine.groups[edge.group].gid
        client = None if edge.client == OWNER else machine.users[made.user_of(edge.client)].uid
        more = {} if client is None else {"acl": listed(0o660, **{f"u{client}": 6}), "listed": True}
        machine.put(wired.at(edge.path), Kind.SOCKET, uid, gid, 0o660, **more)
    return made, machine


def another() -> tuple[Installed, FakeMachine]:
    """Return a copy that may be broken."""
    made, machine = _KEPT
    mine = copy.copy(machine)
    for name in ("users", "groups", "files", "texts", "links", "silent", "limited"):
        setattr(mine, name, copy.copy(getattr(machine, name)))
    return attrs.evolve(made, machine=mine), mine


def _users(made: Installed, machine: FakeMachine) -> None:
    for name, uid in made.wiring.users.items():
        machine.add_user(name, uid)
    machine.add_user("alice", OWNER_UID)
    for number, edge in enumerate(made.wiring.edges):
        members = frozenset({"alice"} if edge.client == OWNER else ())
        machine.groups[edge.group] = Group(name=edge.group, gid=FIRST_PAIR + number, members=members)


def _ids(made: Installed) -> str:
    return "".join(f"{name}:{100_000 + 65_536 * n}:65536\n" for n, name in enumerate(made.wiring.users))


def _directory(made: Installed, machine: FakeMachine, wanted: Directory) -> None:
    mode = int(wanted.mode, 8)
    uid = OWNER_UID if wanted.user == OWNER else 0 if wanted.user == ROOT else machine.users[wanted.user].uid
    gid = 0 if wanted.group == ROOT else machine.groups[wanted.group].gid
    entering = {f"u{machine.users[name].uid}": 1 for name in wanted.enter}
    default = listed(0o660, **dict.fromkeys(entering, 6)) if wanted.sockets and entering else None
    more: dict[str, Any] = {"acl": listed(mode, **entering), "listed": True} if entering else {}
    machine.put(made.wiring.at(wanted.path), Kind.DIRECTORY, uid, gid, mode, default=default, **more)


_KEPT = installed()
