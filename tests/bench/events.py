"""Processor time for each event of a streamed reply: loopd's, over that of a bare loop with `requests`.

Both read the same reply of the fake server, which paces it as a model does: what costs is being woken
for every event, and a stream that came in one piece would hide that.
"""

import json
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

PACE_MS = 2
N_CTX = 65_536
LIMIT = 2
IDLE_SECONDS = 1.0
QUESTION = "Tell me a story."


@attrs.frozen(kw_only=True)
class Round:
    """Nanoseconds of processor time for one reply, and its events."""

    loopd: float
    inferproxy: float
    bare: float
    events: int


def measure(sizes: Sizes) -> list[Measure]:
    words = str(sizes.stream_events)
    with (
        stack.home() as home,
        stack.program("tests.bench.fake_server", words, str(PACE_MS)) as url,
        stack.inferproxy(home, url) as proxy,
        stack.loopd(home, n_ctx=N_CTX, max_tokens=2 * sizes.stream_events) as loopd,
    ):
        rounds = _rounds(sizes, home, url, loopd, proxy)
    return [
        report.at_most(
            "CPU for each streamed event, loopd, over a bare loop",
            median(each.loopd / each.bare for each in rounds),
            "x",
            LIMIT,
        ),
        report.to_read(
            "CPU for each streamed event, loopd and inferproxy, over a bare loop",
            median((each.loopd + each.inferproxy) / each.bare for each in rounds),
            "x",
        ),
        report.to_read(
            "CPU for each streamed event, bare loop", median(each.bare / each.events for each in rounds) / 1000, "us"
        ),
    ]


def _rounds(sizes: Sizes, home: Home, url: str, loopd: Role, proxy: Role) -> list[Round]:
    owner, body = Owner(home.loop_socket), _body(sizes)
    owner.say(QUESTION, session="warm-up", new=True)
    idle = _idle(loopd)
    made = []
    for number in range(sizes.stream_rounds):
        say(f"round {number + 1} of {sizes.stream_rounds}")
        began, before = time.monotonic_ns(), (stack.cpu_ns(loopd), stack.cpu_ns(proxy))
        turn = owner.say(QUESTION, session=f"round-{number}", new=True)
        took, after = time.monotonic_ns() - began, (stack.cpu_ns(loopd), stack.cpu_ns(proxy))
        bare, events = _bare(url, body)
        if turn.ended is None or len(turn.ended.text.split()) != sizes.stream_events:
            raise Unmeasurable("the turn did not bring the whole reply")
        made.append(
            Round(loopd=after[0] - before[0] - idle * took, inferproxy=after[1] - before[1], bare=bare, events=events)
        )
    return made


def _idle(loopd: Role) -> float:
    """The share of a processor that loopd takes while nothing is asked of it."""
    before = stack.cpu_ns(loopd)
    time.sleep(IDLE_SECONDS)
    return (stack.cpu_ns(loopd) - before) / (IDLE_SECONDS * 1e9)


def _body(sizes: Sizes) -> bytes:
    """The request that loopd sends, on the other slot."""
    front = seed.front(max_tokens=2 * sizes.stream_events)
    messages = [*seed.messages(front, ()), {"role": "user", "content": QUESTION}]
    head = front.head(slot=stack.OTHER, model="")
    return head + json.dumps(messages, ensure_ascii=False).encode().removeprefix(b"[") + b"}"


def _bare(url: str, body: bytes) -> tuple[int, int]:
    """Return (nanoseconds, events) of the bare loop."""
    argv = [sys.executable, "-P", "-s", "-m", "tests.bench.bare_client", url]
    environment = plan.environment({}) | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(argv, input=body, stdout=subprocess.PIPE, check=True, env=environment).stdout
    nanoseconds, events = said.split()
    return int(nanoseconds), int(events)
