"""The memory of everything that belongs to one appliance: which processes those are, and what each holds.

Reads: /proc. A process belongs to it where its command line or environment names the appliance's directory, as
every process of Podman's does, or where it was started by one that does, as every role in its container was.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from tests.bench.sizes import Unmeasurable

ROLES, CONMON, SERVICE, CLIENTS = "the roles", "conmon", "Podman's service for tools", "podman run, one a role"
PAUSE, NETWORK, OTHER = "pause processes", "networks", "anything else"

KINDS = (ROLES, CONMON, SERVICE, CLIENTS, PAUSE, NETWORK, OTHER)

_NETWORKS = frozenset({"pasta", "pasta.avx2", "slirp4netns", "rootlessport", "aardvark-dns"})
_PROC = Path("/proc")


@attrs.frozen(kw_only=True)
class Held:
    """Bytes. `shared_out`: pages that several processes hold are split among them (PSS); `resident`: they are not."""

    kind: str
    words: tuple[str, ...]
    shared_out: int
    resident: int


def held(place: Path) -> list[Held]:
    """Return what each process of the appliance in `place` holds. Raises Unmeasurable."""
    try:
        found = [_held(number) for number in _members(place)]
    except PermissionError as refused:
        raise Unmeasurable(f"the memory of a process cannot be read: {refused}") from refused
    return [each for each in found if each is not None]


def megabytes(processes: Sequence[Held]) -> Mapping[str, float]:
    """Return the shared-out megabytes of each kind that there is."""
    totals = {kind: sum(each.shared_out for each in processes if each.kind == kind) / 1e6 for kind in KINDS}
    return {kind: total for kind, total in totals.items() if total}


def kind(words: Sequence[str]) -> str:
    """Say what a process is by its command line."""
    program, rest = Path(words[0]).name if words else "", words[1:]
    if program == "podman":
        if not rest:
            return PAUSE  # where there is no catatonit, Podman waits itself
        return SERVICE if "service" in rest else CLIENTS
    if program in _NETWORKS:
        return NETWORK
    if program.startswith("python"):
        return ROLES
    return {"conmon": CONMON, "catatonit": PAUSE}.get(program, OTHER)


def _members(place: Path) -> list[int]:
    mark = os.fsencode(place)
    parents = {int(entry.name): _parent(entry) for entry in _PROC.iterdir() if entry.name.isdigit()}
    members = {number for number in parents if _names(_PROC / str(number), mark)} - {os.getpid()}
    while more := {number for number, parent in parents.items() if parent in members} - members:
        members |= more
    return sorted(members)


def _parent(process: Path) -> int:
    try:
        # The name, in parentheses, may hold anything; what follows the last one is numbers.
        return int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _names(process: Path, mark: bytes) -> bool:
    try:
        return any(mark in (process / name).read_bytes() for name in ("cmdline", "environ"))
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return False  # another user's, or it has ended


def _held(number: int) -> Held | None:
    process = _PROC / str(number)
    try:
        words = tuple((process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1])
        lines = (process / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None  # ended meanwhile
    if not lines:
        return None  # it has ended, and nobody has asked how
    kilobytes = {line.partition(":")[0]: line.split()[1] for line in lines[1:]}
    shared_out, resident = (int(kilobytes[name]) * 1024 for name in ("Pss", "Rss"))
    return Held(kind=kind(words), words=words, shared_out=shared_out, resident=resident)
