"""How many calls are judged in a second, how soon brokerd is there, and how large it is afterwards.

The first figure is of policy and what it needs, in this process; the others of a brokerd with 1,000 grants.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from brokerd import mounts, policy
from brokerd.call import FRESH
from brokerd.grantset import GrantFiles
from brokerd.reading import Reading, Unfit
from brokerd.runner import Effects
from bxcore.deadline import SystemClock
from bxcore.wire.tools import DenyReason, ToolDenied, ToolRequest, ToolResult
from deploy.local.home import Home
from deploy.local.toolhost import ToolHost
from tests.bench import manygrants, report, stack
from tests.bench.asker import Asker
from tests.bench.calls import shared_file
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable
from tests.process.role import Role

GRANTS = 1_000
PER_SECOND, MEMORY_MB = 2_000, 60
MEGABYTE = 1_000_000
WARM_UP = 200
SETTLED_SECONDS = 3.2
"""Files that were written just now are read again at each look (brokerd.grantset)."""


def measure(sizes: Sizes) -> list[Measure]:
    return [*_judged(sizes), *_served(sizes)]


# -- policy alone -------------------------------------------------------------------------------


def _judged(sizes: Sizes) -> list[Measure]:
    with stack.home() as home:
        manygrants.write(home.grants, GRANTS)
        grants = GrantFiles(home.grants, clock=SystemClock())
        grants.current()
        time.sleep(SETTLED_SECONDS)
        grants.current()
        judge = _judge(grants)
        with _one_core():
            rates = [_per_second(judge, sizes.decisions) for _ in range(sizes.decision_rounds)]
    return [
        report.at_least(f"decisions, {GRANTS:,} grants for the tool", median(rates), "/s of one core", PER_SECOND),
    ]


def _judge(grants: GrantFiles) -> Callable[[ToolRequest], str]:
    """Return the judging of one request, as brokerd does it, without effects and record."""

    def no_effects(_: object) -> Effects:
        raise AssertionError("nothing is run here")

    reading = Reading(grants=grants, resolve=mounts.resolve, effects=no_effects)
    clock = SystemClock()

    def judge(request: ToolRequest) -> str:
        current, call = reading.grants(), reading.call(request)
        if isinstance(current, Unfit) or isinstance(call, Unfit):
            raise Unmeasurable("a call of the bench was not understood")
        return type(policy.decide(current, call, FRESH, clock.now_ms())).__name__

    return judge


def _per_second(judge: Callable[[ToolRequest], str], count: int) -> float:
    requests = [manygrants.request(number, manygrants.path(number, grants=GRANTS)) for number in range(1, count + 1)]
    outcomes = Counter[str]()
    began = time.thread_time()
    for request in requests:
        outcomes[judge(request)] += 1
    took = time.thread_time() - began
    if set(outcomes) != {"Decision", "Ask", "Denial"}:
        raise Unmeasurable(f"the calls should differ in what becomes of them: {dict(outcomes)}")
    say(f"{count / took:,.0f} decisions a second: {', '.join(f'{n} {name}' for name, n in outcomes.items())}")
    return count / took


@contextmanager
def _one_core() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


# -- a brokerd ----------------------------------------------------------------------------------


def _served(sizes: Sizes) -> list[Measure]:
    with stack.tool_host() as host, stack.home() as home:
        file = shared_file(host)
        manygrants.write(home.grants, GRANTS, granted=file.parent)
        starts = [_start_seconds(home, host) for _ in range(sizes.broker_starts)]
        with stack.brokerd(home, host) as role:
            asker = Asker(home.broker_socket)
            empty = _megabytes(role)
            for number in range(WARM_UP):
                _deny(asker, number)
            wall, cpu = _denials(asker, role, sizes.denials)
            for _ in range(sizes.remembered_calls):
                if not isinstance(answer := asker.read(str(file)), ToolResult):
                    raise Unmeasurable(f"a call did not read its file: {answer}")
            full = _megabytes(role)
    after = f"after {WARM_UP + sizes.denials:,} decisions and {sizes.remembered_calls} calls"
    return [
        report.to_read("denials over the socket, each on record", sizes.denials / wall, "/s"),
        report.to_read("the same, by the processor time that brokerd takes", sizes.denials / cpu, "/s of one core"),
        report.below(f"memory of brokerd {after}", full, "MB", MEMORY_MB),
        report.to_read("memory of brokerd when it is ready", empty, "MB"),
        report.to_read(f"brokerd ready, {GRANTS:,} grants", median(starts), "s"),
    ]


def _start_seconds(home: Home, host: ToolHost) -> float:
    began = time.perf_counter()
    with stack.brokerd(home, host) as role:
        took = time.perf_counter() - began
        role.terminate()
    say(f"brokerd ready after {took:.2f} s")
    return took


def _denials(asker: Asker, role: Role, count: int) -> tuple[float, float]:
    """Return the seconds that `count` denials took, and brokerd's own."""
    cpu_before, began = stack.cpu_ns(role), time.perf_counter()
    for number in range(count):
        _deny(asker, WARM_UP + number)
    return time.perf_counter() - began, (stack.cpu_ns(role) - cpu_before) / 1e9


def _deny(asker: Asker, number: int) -> None:
    answer = asker.read(manygrants.unknown_path(number))
    if not isinstance(answer, ToolDenied) or answer.reason is not DenyReason.NO_GRANT:
        raise Unmeasurable(f"brokerd should have denied a call for want of a grant: {answer}")


def _megabytes(role: Role) -> float:
    return role.resident_bytes() / MEGABYTE
