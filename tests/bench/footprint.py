"""Memory over a long session, and who asks the model: one session against the fake server, turn after turn.

The fake runs in this process, which keeps every request that it got.
"""

import json
from typing import Any

from deploy.local.home import Home
from tests.bench import report, stack
from tests.bench.owner import Owner
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes
from tests.fakes.llama_server import Call, FakeLlama, Reply
from tests.process.role import Role

SESSION = "footprint"
N_CTX = 1_000_000
EARLY_TURNS = 100
MEGABYTE = 1_000_000
PROXY_MB, LOOPD_MB, GROWTH_MB = 20, 60, 5


def measure(sizes: Sizes) -> list[Measure]:
    with (
        FakeLlama(script=_answer, n_ctx=N_CTX) as fake,
        stack.home() as home,
        stack.inferproxy(home, fake.url, limits="accept_per_second = 10_000\n") as proxy,
        stack.loopd(home, n_ctx=N_CTX) as loopd,
    ):
        before = _asked_on_main_slot(fake)
        early, steps = _talk(home, loopd, turns=sizes.footprint_turns)
        late, of_proxy = _megabytes(loopd), _megabytes(proxy)
        asked = _asked_on_main_slot(fake)
    turns = f"after {sizes.footprint_turns:,} turns"
    return [
        report.below(f"memory of inferproxy {turns}", of_proxy, "MB", PROXY_MB),
        report.below(f"memory of loopd {turns}", late, "MB", LOOPD_MB),
        report.at_most(f"memory of loopd, growth since turn {EARLY_TURNS}", late - early, "MB", GROWTH_MB),
        report.exactly("side requests on the main slot", asked - steps, "", 0),
        report.exactly("requests on the main slot before the first turn", before, "", 0),
    ]


def _talk(home: Home, loopd: Role, *, turns: int) -> tuple[float, int]:
    """Return loopd's memory after the early turns, and the steps that its turns are said to have taken."""
    owner, steps, early = Owner(home.loop_socket), 0, 0.0
    for number in range(1, turns + 1):
        turn = owner.say(f"Message {number}.", session=SESSION, new=number == 1)
        steps += len(turn.usages)
        if number == EARLY_TURNS:
            early = _megabytes(loopd)
        if number % 100 == 0:
            say(f"turn {number}: loopd has {_megabytes(loopd):.1f} MB")
    return early, steps


def _answer(messages: list[dict[str, Any]]) -> Reply:
    tested = str(messages[0]["content"]).startswith("Self-test")
    asked = messages[-1]["role"] == "user" and len(messages) % 5 == 0
    return Reply(calls=(Call(name="clock"),)) if tested or asked else Reply(text="A short answer to this message.")


def _asked_on_main_slot(fake: FakeLlama) -> int:
    return sum(json.loads(body)["id_slot"] == stack.MAIN for body in fake.completions)


def _megabytes(role: Role) -> float:
    return role.resident_bytes() / MEGABYTE
