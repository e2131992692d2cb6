"""Proves at start what a tool container cannot do here, instead of believing that it was asked for.

Rootless Podman takes limits that it then does not keep, sometimes without a word, and does not show which system
call filter a container got. So a container of the tool image tries each wall and each limit from inside
(probeprogram). A wall that does not hold means that no tool runs; a limit that does not is named in the start-up
log line and in `bxctl`. The memory limit is tried in a second container, which is expected to die of it.
"""

from pathlib import Path

import attrs

from brokerd.containerplan import Bounds, Ids, Network, Plan
from brokerd.containers import Podman, Work
from brokerd.exited import Exited, Stop
from brokerd.runnerfaults import Unenforced
from bxcore import strictjson
from bxcore.errors import WireError
from bxcore.strictjson import JsonValue

PROBE_MS = 30_000
PYTHON = ("/usr/bin/python3", "-I", "-S")

ALWAYS = ("time", "output")
"""What brokerd keeps by itself, by ending the container."""

_MIB = 1024 * 1024
# Small, so that a limit that does not hold costs the machine little.
_BOUNDS = Bounds(
    memory_bytes=128 * _MIB,
    file_bytes=_MIB,
    tmpfs_bytes=4 * _MIB,
    processes=16,
    open_files=64,
    cpu_percent=10,
    lifetime_s=PROBE_MS // 1000,
)
_KILLED = 137
_MOST_DIGITS = 18
_CALL = 0
"""No decision has this number."""


@attrs.frozen(kw_only=True)
class Held:
    """Which limits were seen to hold on this host, and which were not."""

    held: tuple[str, ...]
    missing: tuple[str, ...]


def run(podman: Podman, *, image: str, seccomp: str) -> Held:
    """Try everything. Raises RunnerUnavailable, Unenforced where a wall does not hold."""
    tried = _read(_run(podman, _plan(podman, image, seccomp, take_memory=False)))
    if broken := sorted(name for name, held in tried["walls"].items() if not held):
        raise Unenforced(f"a tool container could get out of these walls: {', '.join(broken)}")
    taken = _run(podman, _plan(podman, image, seccomp, take_memory=True))
    limits = {**dict.fromkeys(ALWAYS, True), **tried["limits"], "memory": _died_of_its_limit(taken)}
    return Held(
        held=tuple(name for name, holds in limits.items() if holds),
        missing=tuple(name for name, holds in limits.items() if not holds),
    )


def _died_of_its_limit(taken: Exited) -> bool:
    """Whether it was the limit: a machine without memory kills as well, and our containers first."""
    available, _, _ = taken.stdout.partition(b"\n")
    had_room = available.isdigit() and int(available[:_MOST_DIGITS]) >= 4 * _BOUNDS.memory_bytes
    return taken.out_of_memory or (taken.stop is Stop.END and taken.exit == _KILLED and had_room)


def _plan(podman: Podman, image: str, seccomp: str, *, take_memory: bool) -> Plan:
    most: dict[str, JsonValue] = {**attrs.asdict(_BOUNDS), "take_memory": take_memory}
    program = Path(__file__).with_name("probeprogram.py").read_text(encoding="utf-8")
    return Plan(
        owner=podman.owner,
        call=_CALL,
        part="probe",
        image=image,
        argv=(*PYTHON, "-c", program, strictjson.dumps(most).decode()),
        mounts=(),
        network=Network.NONE,
        ids=Ids.OWN,
        seccomp=seccomp,
        bounds=_BOUNDS,
    )


def _run(podman: Podman, plan: Plan) -> Exited:
    work = Work(stdin=b"", output_bytes=_MIB, limit_ms=PROBE_MS, cancelled=lambda: False)
    return podman.run(plan, work, lambda: None)


def _read(exited: Exited) -> dict[str, dict[str, bool]]:
    try:
        found = strictjson.loads(exited.stdout) if exited.stop is Stop.END and exited.exit == 0 else None
    except WireError:
        found = None
    if not isinstance(found, dict) or set(found) != {"walls", "limits"}:
        raise Unenforced(f"the probe could not be run to its end (exit code {exited.exit})")
    return found  # type: ignore[return-value]  # written by probeprogram
