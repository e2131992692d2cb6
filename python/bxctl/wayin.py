"""Checks of `bxctl doctor`: the tools' user and brokerd's get to the folders that the grants name.

In its container brokerd cannot judge that, and a call would only fail of it. Judged by mode and access list are the way
to each path and the path itself, not what lies below it. Says the command that opens the way, and no more than the way.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from bxcore import acl, grants, paths
from bxcore.grants import SUFFIX, Grant, GrantFaults, Mode
from bxcore.tools import TOOLS, ToolKind
from bxctl import finding
from bxctl.finding import Fault, Finding
from bxctl.installed import Installed
from bxctl.machine import Kind, Seen

CLOSED = "mount_denied"

_LISTING = frozenset({"list_directory", "search_files"})
_WORDS = ((acl.WRITE, "write in"), (acl.READ, "read"), (acl.ENTER, "enter"))


@attrs.frozen(kw_only=True)
class Obstacle:
    """Somebody may not do at `path` what the way to a folder takes."""

    path: Path
    user: str
    needed: int


def folders(installed: Installed) -> Iterator[Finding]:
    """Check every path of every grant that lets a call through."""
    try:
        wanted = _granted(installed)
        shown = _shown(installed)
        faults = [fault for path, kinds in wanted.items() for fault in _path(installed, Path(path), kinds, shown)]
    except OSError:
        wanted, faults = {}, [None]
    held = f"{', '.join(wanted) or 'none'}: within reach of tools and of brokerd"
    yield from finding.room("granted folders", held=held, faults=faults, runbook=CLOSED)


def _granted(installed: Installed) -> Mapping[str, tuple[ToolKind, ...]]:
    """Return the paths of the grants, with the tools that may work there. Raises OSError."""
    directory = installed.wiring.at("etc/grants")
    found: dict[str, tuple[ToolKind, ...]] = {}
    for name in installed.machine.names(directory):
        if name.lower().endswith(SUFFIX) and not name.startswith("."):
            for grant in _grant(name, installed.machine.text(directory / name)):
                for path in grant.paths:
                    found[path] = (*found.get(path, ()), TOOLS[grant.tool])
    return found


def _grant(name: str, text: str) -> Iterator[Grant]:
    try:
        grant = grants.parse(name, text.encode())
    except GrantFaults:
        return  # brokerd denies every call, and says which file and line
    if grant.mode is not Mode.DENY:
        yield grant


def _shown(installed: Installed) -> list[str] | None:
    """Return where something is mounted in brokerd's container; None where that is not to be seen."""
    uid = installed.uid(installed.wiring.roles["brokerd"].user)
    return None if uid is None else installed.machine.mount_points(uid, installed.command("brokerd"))


def _path(
    installed: Installed, path: Path, kinds: tuple[ToolKind, ...], shown: list[str] | None
) -> Iterator[Fault | None]:
    try:
        seen = installed.machine.look(path)
        if seen is None:
            return  # it may come; `bxctl grants check` warns of it
        if (real := installed.machine.real(path)) != path:
            yield _link(path, real)
            return
        found = obstacles(installed, path, kinds)
    except PermissionError:
        yield None
        return
    if found:
        yield Fault(
            expected=f"{path} is within reach",
            found="; ".join(f"{one.user} may not {_verb(one.needed)} {one.path}" for one in found),
            why="brokerd looks at a path before a tool does, and a tool's container belongs to the tools' user",
            command=" && ".join(dict.fromkeys(_opening(installed, path, kinds, one) for one in found)),
        )
    elif shown is not None and not any(paths.below(str(path), point) for point in shown if point != "/"):
        yield Fault(
            expected=f"{path} is among the folders that brokerd's container is shown",
            found="it is not",
            why="for brokerd nothing is there, so every call about it is refused",
            command="add it to the granted folders of this installation (on NixOS: services.boxmaker.grantedPaths)",
        )


def _verb(needed: int) -> str:
    return next((word for bit, word in _WORDS if needed & bit), "use")


def _link(path: Path, real: Path) -> Fault:
    return Fault(
        expected=f"{path} is the folder itself",
        found=f"a link on the way leads to {real}",
        why="brokerd is shown the folder under the granted name alone, so a deny for the other name would not hold",
        command=f"write {shlex.quote(str(real))} into the grant and the granted folders",
    )


def obstacles(installed: Installed, path: Path, kinds: tuple[ToolKind, ...]) -> list[Obstacle]:
    """Return what is in the way to `path`, from the root on. Raises PermissionError."""
    tools, broker = installed.wiring.tools.user, installed.wiring.roles["brokerd"].user
    found = []
    for here in reversed((path, *path.parents)):
        seen = installed.machine.look(here)
        if seen is None:
            break
        for user in (broker, tools):
            needed = acl.ENTER if here != path else _needed(seen, kinds, looks_only=user == broker)
            if not _may(installed, user, seen, needed):
                found.append(Obstacle(path=here, user=user, needed=needed))
    return found


def _may(installed: Installed, user: str, seen: Seen, needed: int) -> bool:
    uid, gid = installed.uid(user), installed.gid(user)
    if uid is None:
        return True  # the check of users says that there is none
    groups = frozenset() if gid is None else frozenset({gid})
    return seen.acl.may(needed, uid=uid, groups=groups, owner=seen.uid, group=seen.gid)


def _needed(seen: Seen, kinds: tuple[ToolKind, ...], *, looks_only: bool) -> int:
    if seen.kind is not Kind.DIRECTORY:
        return 0 if looks_only else acl.READ
    if looks_only:
        return acl.ENTER
    needed = acl.ENTER
    for kind in kinds:
        needed |= acl.READ if kind.name in _LISTING else 0
        needed |= acl.WRITE if kind.writes else 0
    return needed


def _opening(installed: Installed, path: Path, kinds: tuple[ToolKind, ...], one: Obstacle) -> str:
    """Return the command that takes one obstacle away. A granted folder is opened with all that is and comes in it."""
    quoted = shlex.quote(str(one.path))
    if one.path != path:
        return f"setfacl -m u:{one.user}:x {quoted}"
    seen = installed.machine.look(path)
    if seen is None or seen.kind is not Kind.DIRECTORY:
        return f"setfacl -m u:{one.user}:r {quoted}"
    letters = "X" if one.user != installed.wiring.tools.user else "rwX" if any(k.writes for k in kinds) else "rX"
    return f"setfacl -R -m u:{one.user}:{letters},d:u:{one.user}:{letters} {quoted}"
