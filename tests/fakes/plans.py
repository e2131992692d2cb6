"""Container plans for tests, with the parts that a test seldom cares about filled in."""

from typing import Any

import attrs

from brokerd.containerplan import Bounds, Ids, Network, Plan
from brokerd.containers import Work
from bxcore.deadline import Deadline, SystemClock
from tests.fakes.podman import IMAGE

CLOCK = SystemClock()
MIB = 1024 * 1024
BOUNDS = Bounds(
    memory_bytes=256 * MIB,
    file_bytes=64 * MIB,
    tmpfs_bytes=4 * MIB,
    processes=64,
    open_files=256,
    cpu_percent=100,
    lifetime_s=60,
)
PLAN = Plan(
    owner="test",
    call=1,
    part="tool",
    image=IMAGE,
    argv=("/bin/sh", "-c", "true"),
    mounts=(),
    network=Network.NONE,
    ids=Ids.OWN,
    seccomp="/nowhere/seccomp.json",
    bounds=BOUNDS,
)


def shell(command: str, base: Plan = PLAN, **changes: Any) -> Plan:
    """Return the plan of a container that runs a command line."""
    return attrs.evolve(base, argv=("/bin/sh", "-c", command), **changes)


def work(stdin: bytes = b"", *, output_bytes: int = MIB, ms: int = 20_000, cancelled: bool = False) -> Work:
    return Work(stdin=stdin, output_bytes=output_bytes, limit_ms=ms, cancelled=lambda: cancelled)


def deadline(ms: int = 20_000) -> Deadline:
    return Deadline.after(CLOCK, milliseconds=ms)
