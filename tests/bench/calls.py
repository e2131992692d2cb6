"""One `read_file` call, from its request to its result, over a bare `podman run` of the very same container.

The call goes through loopd's own client to a brokerd process. What the other side runs is the same plan with the
same order on its stdin; that it is the same is checked: by the plan's hash in the audit log, by brokerd's own
comparison of containers, and by the text that comes back. docs/bench.md.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TypeVar

import attrs

from brokerd import containerplan, mounts, runner
from brokerd.containerplan import Plan
from brokerd.containers import Podman, Work
from brokerd.protected import Protected
from brokerd.runner import Runner
from bxcore import auditlog, config
from bxcore.auditlog import Started
from bxcore.deadline import SystemClock
from bxcore.settings.brokerd import BrokerdSettings
from bxcore.wire.tools import ToolResult
from deploy.local.home import Home
from deploy.local.toolhost import ToolHost
from tests.bench import callsteps, manygrants, pairs, podmanrun, report, stack
from tests.bench.asker import Asker
from tests.bench.pairs import Pair
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable
from tests.fakes import calls

RATIO = 1.25
GRANTS = 1_000
WARM_UP = 3
WORK_MS = 20_000
LINES = 200
MOST = 1_000_000


@attrs.frozen(kw_only=True)
class Same:
    """What both sides run: one plan, one order for it, and the text that comes of it."""

    plan: Plan
    order: bytes
    text: str


def measure(sizes: Sizes) -> list[Measure]:
    with stack.tool_host() as host, stack.home() as home:
        file = shared_file(host)
        manygrants.write(home.grants, GRANTS, granted=file.parent)
        with stack.brokerd(home, host):
            asker = Asker(home.broker_socket)
            same = _same(home, file, asker)
            command = podmanrun.Command(host)
            podmanrun.check_equal(command, same.plan)
            return _measured(sizes, host, asker, command, same, file)


def shared_file(host: ToolHost) -> Path:
    """Return a file of 200 lines in a folder that tools may be shown."""
    folder = host.shared_dir / "bench"
    folder.mkdir(mode=0o755, exist_ok=True)
    file = folder / "notes.txt"
    file.write_text("A line of notes, as long as lines of notes are.\n" * LINES, encoding="utf-8")
    for each in (folder, file):
        host.give(each)
    return file


def _measured(
    sizes: Sizes, host: ToolHost, asker: Asker, command: podmanrun.Command, same: Same, file: Path
) -> list[Measure]:
    flags = podmanrun.flags(same.plan)
    podman = Podman(host.api_socket, clock=SystemClock(), owner="bench")
    steps: list[Mapping[str, float]] = []

    def call() -> float:
        took_ms, answer = _timed(lambda: asker.read(str(file)))
        if not isinstance(answer, ToolResult) or answer.content != same.text:
            raise Unmeasurable(f"a call did not read the file: {answer}")
        return took_ms

    def podman_run() -> float:
        took_ms, ran = _timed(lambda: command.run(flags, same.order))
        if ran.exit != 0 or ran.stdout.decode() != same.text:
            raise Unmeasurable(f"podman run did not read the file: exit code {ran.exit}, {ran.stderr!r}")
        return took_ms

    def container() -> float:
        steps.append(
            callsteps.taken(
                podman, same.plan, Work(stdin=same.order, output_bytes=MOST, limit_ms=WORK_MS, cancelled=lambda: False)
            )
        )
        return sum(steps[-1].values())

    for _ in range(WARM_UP):
        call(), podman_run(), container()
    steps.clear()
    over_bare = pairs.alternated(sizes.call_pairs, ours=call, other=podman_run)
    over_container = pairs.alternated(sizes.container_pairs, ours=call, other=container)
    return _rows(over_bare, over_container, steps)


def _rows(over_bare: list[Pair], over_container: list[Pair], steps: list[Mapping[str, float]]) -> list[Measure]:
    took = [pair.ours for pair in over_bare]
    say(f"a call took {min(took):.0f} to {max(took):.0f} ms")
    return [
        report.at_most("read_file call over a bare podman run", pairs.median_ratio(over_bare), "x", RATIO),
        report.to_read("podman run of the same container", pairs.median_of_other(over_bare), "ms"),
        report.to_read("read_file call, request to result", median(took), "ms"),
        *(report.to_read(f"in it: {step}", median(each[step] for each in steps), "ms") for step in callsteps.STEPS),
        report.to_read("in it: all but the container", pairs.median_difference(over_container), "ms"),
    ]


# -- the same on both sides -----------------------------------------------------------------------


def _same(home: Home, file: Path, asker: Asker) -> Same:
    """Make one call, and rebuild what brokerd ran for it from its settings and its records."""
    answer = asker.read(str(file))
    if not isinstance(answer, ToolResult):
        raise Unmeasurable(f"brokerd does not read the file: {answer}")
    settings, clock, nothing = (
        config.load(home.etc / "brokerd.toml", BrokerdSettings),
        SystemClock(),
        Protected(whole=()),
    )
    call = calls.call(text=manygrants.request(1, str(file)).arguments)
    found = mounts.plan(call, nothing)
    podman = Podman(settings.podman.socket, clock=clock)
    planner = Runner(settings, podman=podman, egress=None, clock=clock, protected=nothing)
    started = _last_start(home)
    plan = planner._plan(call, started.decision, started.image, found)
    if containerplan.digest(plan) != started.plan:
        raise Unmeasurable("the plan that is to be compared is not the one in the audit log")
    # With a label of its own, so that brokerd's sweep leaves it alone.
    return Same(plan=attrs.evolve(plan, owner="bench"), order=runner.order(call, found), text=answer.content)


def _last_start(home: Home) -> Started:
    lines = max(home.audit.glob("*.jsonl")).read_bytes().splitlines()
    return [record for record in map(auditlog.decode, lines) if isinstance(record, Started)][-1]


T = TypeVar("T")


def _timed(act: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    came = act()
    return (time.perf_counter() - began) * 1000, came
