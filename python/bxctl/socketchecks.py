"""Checks of `bxctl doctor`: each socket is there, answers, and is open to the two that it joins and to nobody else."""

import shlex
from collections.abc import Iterator

from bxcore import acl
from bxcore.acl import Tag
from bxcore.wiring import OWNER, Edge
from bxctl import finding
from bxctl.finding import Fault, Finding
from bxctl.installed import Installed
from bxctl.machine import Kind, Seen

SOCKET_UNFIT = "socket_unfit"

MODE = 0o660
_BOTH = acl.READ | acl.WRITE


def sockets(installed: Installed) -> Iterator[Finding]:
    """Check every edge whose two ends are to run here."""
    faults = [fault for edge in installed.edges for fault in _edge(installed, edge)]
    names = ", ".join(edge.name for edge in installed.edges)
    yield from finding.room("sockets", held=f"{names}: each between its two", faults=faults, runbook=SOCKET_UNFIT)


def _edge(installed: Installed, edge: Edge) -> Iterator[Fault | None]:
    path = installed.wiring.at(edge.path)
    listener = installed.user_of(edge.listener)
    try:
        seen = installed.machine.look(path)
        found = socket_faults(installed, edge, seen)
        silence = installed.machine.silence(path) if seen is not None and seen.kind is Kind.SOCKET else None
    except PermissionError:
        yield None
        return
    if seen is None or silence is not None:
        yield Fault(
            expected=f"{edge.listener} ({listener}) listens on {path}",
            found="nothing is there" if seen is None else silence or "",
            why=f"{edge.client} reaches it there",
            command=f"systemctl status '*{edge.listener}*'",
        )
    elif found:
        yield Fault(
            expected=f"{path} is {listener}'s, mode {MODE:04o}, {_open_to(installed, edge)}",
            found=", ".join(found),
            why="who may write a socket may ask what its other side asks",
            command=_mending(installed, edge),
        )


def socket_faults(installed: Installed, edge: Edge, seen: Seen | None) -> list[str]:
    """Say what is wrong with what lies at a socket's place."""
    if seen is None:
        return []
    if seen.kind is not Kind.SOCKET:
        return [seen.kind.value]
    faults = [] if seen.uid == installed.uid(installed.user_of(edge.listener)) else [f"owner is uid {seen.uid}"]
    if seen.mode != MODE:
        faults.append(f"mode {seen.mode:04o}")
    if installed.one is not None:
        return faults
    if seen.gid != installed.gid(edge.group):
        faults.append(f"group is gid {seen.gid}")
    wanted = {} if edge.client == OWNER else {installed.uid(installed.user_of(edge.client)): _BOTH}
    if seen.acl.named(Tag.USER) != wanted or seen.acl.named(Tag.GROUP):
        named = ", ".join(f"uid {uid}" for uid in sorted(seen.acl.named(Tag.USER)))
        faults.append(f"its access list lets in {named or 'nobody'}")
    return faults


def _open_to(installed: Installed, edge: Edge) -> str:
    if edge.client == OWNER or installed.one is not None:
        return f"open to the group {edge.group}"
    return f"open to {installed.user_of(edge.client)}"


def _mending(installed: Installed, edge: Edge) -> str:
    path = shlex.quote(str(installed.wiring.at(edge.path)))
    command = f"chown {installed.user_of(edge.listener)}:{edge.group} {path} && chmod {MODE:04o} {path}"
    return command if edge.client == OWNER else f"{command} && setfacl -m u:{installed.user_of(edge.client)}:rw {path}"
