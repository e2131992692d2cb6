"""The appliance: its roles in their containers, each figure beside that of the same roles as processes.

Both sides ask one scripted model server and run tools from one image, so that what differs is where the roles run. The
last figures are of the two commands that a person types, with the small model. docs/bench.md.
"""

from collections.abc import Callable, Mapping
from itertools import count
from statistics import median

from bxcore.wiring import TOOLS
from deploy.appliance.host import Appliance
from deploy.local import roleimages, toolimage
from tests.bench import appliancecold, applianceimages, appliancememory, appliancemodel, applianceside, pairs, report
from tests.bench.applianceside import Containers, Processes
from tests.bench.owner import Owner
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable

IMAGE_MB: Mapping[str, int] = {"inferproxy": 45, TOOLS: 70}
OTHER_IMAGE_MB = 60
MEMORY_MB = 220
TURN_RATIO = 1.1
WARM_UP = 3


def measure(sizes: Sizes) -> list[Measure]:
    with applianceside.model() as upstream, applianceside.containers(upstream) as ours:
        with applianceside.processes(upstream) as theirs:
            starts = [row for role in applianceside.ORDER for row in _start(sizes, role, ours, theirs)]
            turns = _turns(sizes, ours, theirs)
        # The process side is gone: what it shared would count half.
        memory = _memory(ours.appliance)
    return [*starts, *_images(), *memory, *turns, *appliancecold.measure(sizes, ours)]


# -- from image to ready ----------------------------------------------------------------------------


def _start(sizes: Sizes, role: str, ours: Containers, theirs: Processes) -> list[Measure]:
    """Start the role again and again on both sides; it stays on both in the end."""

    def contained() -> float:
        took = ours.started(role)
        ours.stop(role)
        return took

    def as_process() -> float:
        took = theirs.started(role)
        theirs.stop(role)
        return took

    contained(), as_process(), ours.bare(role)
    taken = pairs.alternated(sizes.role_starts, ours=contained, other=as_process)
    bare = [ours.bare(role) for _ in range(sizes.role_starts)]
    ours.started(role), theirs.started(role)
    took = median(pair.ours for pair in taken)
    say(f"{role}: ready after {took:.0f} ms in its container, {pairs.median_of_other(taken):.0f} ms as a process")
    return [
        report.to_read(f"{role}, from its image to ready", took, "ms"),
        report.to_read(f"{role}, the same over a start as a process", pairs.median_ratio(taken), "x"),
        report.to_read(f"{role}, bare podman run of python -c pass from its image", median(bare), "ms"),
    ]


# -- a turn -----------------------------------------------------------------------------------------


def _turns(sizes: Sizes, ours: Containers, theirs: Processes) -> list[Measure]:
    contained, as_processes = _turn(ours), _turn(theirs)
    for _ in range(WARM_UP):
        contained(), as_processes()
    taken = pairs.alternated(sizes.call_pairs, ours=contained, other=as_processes)
    name = "turn with one tool call"
    return [
        report.at_most(f"{name}, roles in containers over processes", pairs.median_ratio(taken), "x", TURN_RATIO),
        report.to_read(f"{name}, roles in containers", median(pair.ours for pair in taken), "ms"),
        report.to_read(f"{name}, roles as processes", pairs.median_of_other(taken), "ms"),
    ]


def _turn(side: Containers | Processes) -> Callable[[], float]:
    owner, numbers = Owner(side.loop_socket), count(1)

    def taken() -> float:
        # A session of its own, so that no turn has more to send than another.
        turn = owner.say(appliancemodel.order(side.file), session=f"turn-{next(numbers)}", new=True)
        if [applianceside.TEXT.strip() in each for each in turn.results] != [True]:
            raise Unmeasurable(f"a turn did not read the file: {turn.ended}, {''.join(turn.results):.200}")
        return turn.ended_ms

    return taken


# -- what it takes ----------------------------------------------------------------------------------


def _images() -> list[Measure]:
    archives = {role: roleimages.built(role).archive for role in (*applianceside.ORDER, "gatewayd")}
    archives[TOOLS] = toolimage.built().archive
    return [
        report.at_most(
            f"image of {name}, unpacked",
            applianceimages.unpacked_bytes(archive) / 1e6,
            "MB",
            IMAGE_MB.get(name, OTHER_IMAGE_MB),
        )
        for name, archive in archives.items()
    ]


def _memory(appliance: Appliance) -> list[Measure]:
    held = appliancememory.held(appliance.place.path)
    shared_out, resident = sum(each.shared_out for each in held) / 1e6, sum(each.resident for each in held) / 1e6
    parts = appliancememory.megabytes(held)
    return [
        report.below(
            "memory of the appliance without the model server, PSS of all processes", shared_out, "MB", MEMORY_MB
        ),
        *(report.to_read(f"in it: {kind}", megabytes, "MB") for kind, megabytes in parts.items()),
        report.to_read("the same, RSS: what processes share is counted for each", resident, "MB"),
    ]
