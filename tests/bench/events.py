"""Processor time for each event of a streamed reply: loopd's, over that of a bare loop with `requests`.

Both read the same reply of the fake server, which paces it as a model does: what costs is being woken
for every event, and a stream that came in one piece would hide that.
"""

import subprocess
import sys
import time
from statistics import median

import attrs

from deploy.local import plan
from deploy.local.home import Home
from tests.bench import report, seed, stack
from tests.bench.owner import Owner
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable
from tests.process.role import ROOT, Role

N_CTX = 65_536
LIMIT = 2
IDLE_SECONDS = 1.0
QUESTION = "Tell me a story."


@attrs.frozen(kw_only=True)
class Series:
    """So many replies of so many events, so far apart."""

    rounds: int
    events: int
    pace_ms: int

    @property
    def max_tokens(self) -> int:
        return 2 * self.events


@attrs.frozen(kw_only=True)
class Round:
    """Nanoseconds of processor time for one reply, and its events."""

    loopd: float
    inferproxy: float
    bare: float
    events: int


def measure(sizes: Sizes) -> list[Measure]:
    fast = _measured(Series(rounds=sizes.stream_rounds, events=sizes.stream_events, pace_ms=2))
    slow = _measured(Series(rounds=sizes.slow_stream_rounds, events=sizes.slow_stream_events, pace_ms=20))
    name = "CPU for each streamed event"
    return [
        report.at_most(f"{name}, loopd over a bare loop", _loopd(fast), "x", LIMIT),
        report.to_read(f"{name}, loopd and inferproxy over a bare loop", _both(fast), "x"),
        report.to_read(f"{name}, loopd over a bare loop, 20 ms apart", _loopd(slow), "x"),
        report.to_read(f"{name}, bare loop", median(each.bare / each.events for each in fast) / 1000, "us"),
    ]


def _loopd(rounds: list[Round]) -> float:
    return median(each.loopd / each.bare for each in rounds)


def _both(rounds: list[Round]) -> float:
    return median((each.loopd + each.inferproxy) / each.bare for each in rounds)


def _measured(series: Series) -> list[Round]:
    with (
        stack.home() as home,
        stack.program("tests.bench.fake_server", str(series.events), str(series.pace_ms)) as url,
        stack.inferproxy(home, url) as proxy,
        stack.loopd(home, n_ctx=N_CTX, max_tokens=series.max_tokens) as loopd,
    ):
        return _rounds(series, home, url, loopd, proxy)


def _rounds(series: Series, home: Home, url: str, loopd: Role, proxy: Role) -> list[Round]:
    owner, body = Owner(home.loop_socket), _body(series)
    owner.say(QUESTION, session="warm-up", new=True)
    idle = _idle(loopd)
    made = []
    for number in range(1, series.rounds + 1):
        say(f"{series.events} events, {series.pace_ms} ms apart, round {number} of {series.rounds}")
        began, before = time.monotonic_ns(), (stack.cpu_ns(loopd), stack.cpu_ns(proxy))
        turn = owner.say(QUESTION, session=f"round-{number}", new=True)
        took, after = time.monotonic_ns() - began, (stack.cpu_ns(loopd), stack.cpu_ns(proxy))
        if turn.ended is None or len(turn.ended.text.split()) != series.events:
            raise Unmeasurable("the turn did not bring the whole reply")
        bare, events = _bare(url, body)
        made.append(
            Round(loopd=after[0] - before[0] - idle * took, inferproxy=after[1] - before[1], bare=bare, events=events)
        )
    return made


def _idle(loopd: Role) -> float:
    """The share of a processor that loopd takes while nothing is asked of it."""
    before = stack.cpu_ns(loopd)
    time.sleep(IDLE_SECONDS)
    return (stack.cpu_ns(loopd) - before) / (IDLE_SECONDS * 1e9)


def _body(series: Series) -> bytes:
    """The request that loopd sends, on the other slot."""
    front = seed.front(max_tokens=series.max_tokens)
    return seed.body(front, [*seed.messages(front, ()), {"role": "user", "content": QUESTION}], slot=stack.OTHER)


def _bare(url: str, body: bytes) -> tuple[int, int]:
    """Return (nanoseconds, events) of the bare loop."""
    argv = [sys.executable, "-P", "-s", "-m", "tests.bench.bare_client", url]
    environment = plan.environment({}) | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(argv, input=body, stdout=subprocess.PIPE, check=True, env=environment).stdout
    nanoseconds, events = said.split()
    return int(nanoseconds), int(events)
