"""Prompt tokens that are read again: loopd's conversation, beyond what a hand-written client pays for the same one.

Each of the two runs on a server of its own that has just been started, so that neither finds what the
other left in a cache. Counts of tokens, so the load of the machine does not matter.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import attrs

from tests.bench import cachecount, report, seed, stack
from tests.bench.cachecount import Request
from tests.bench.handwritten import HandWritten
from tests.bench.owner import Owner
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable

MAX_TOKENS = 48
SHARE_WITH_CALLS = 0.8
"""A conversation in which the model calls less often does not show what the row claims."""


@attrs.frozen(kw_only=True)
class Scenario:
    """Who talks and what happens. `questions`: what is said in each session, in every round again."""

    name: str
    questions: Mapping[str, str]
    rounds: int
    killed_after: int | None = None


@attrs.define(kw_only=True)
class Ours:
    """What loopd's run cost, by session, and the tool results of each turn, for the other to see the same."""

    requests: dict[str, list[Request]]
    results: dict[str, list[list[str]]]
    turns_with_calls: int = 0


def measure(sizes: Sizes) -> list[Measure]:
    few = sizes.turns_of_a_variant
    one, two = {"one": "Call clock."}, {"one": "Call clock.", "two": "Please call clock."}
    return [
        *_compared(Scenario(name=f"{sizes.turns} turns", questions=one, rounds=sizes.turns)),
        *_compared(Scenario(name="loopd killed and restarted", questions=one, rounds=few, killed_after=few // 2)),
        *_compared(Scenario(name="two sessions on one slot", questions=two, rounds=few)),
    ]


def _compared(scenario: Scenario) -> list[Measure]:
    ours = _loopd(scenario)
    turns = scenario.rounds * len(scenario.questions)
    say(f"{scenario.name}: tools were called in {ours.turns_with_calls} of {turns} turns")
    if ours.turns_with_calls < SHARE_WITH_CALLS * turns:
        raise Unmeasurable(f"the model called a tool in {ours.turns_with_calls} of {turns} turns only")
    other = _by_hand(scenario, ours)
    _say_differences(ours.requests, other)
    paid, least = (sum(map(cachecount.reread, each.values())) for each in (ours.requests, other))
    return [
        report.exactly(f"re-read beyond a hand-written client: {scenario.name}", paid - least, "tokens", 0),
        report.to_read(f"re-read by loopd: {scenario.name}", paid, "tokens"),
        report.to_read(f"re-read by the hand-written client: {scenario.name}", least, "tokens"),
    ]


def _loopd(scenario: Scenario) -> Ours:
    front = seed.front(max_tokens=MAX_TOKENS)
    made = Ours(requests={name: [] for name in scenario.questions}, results={name: [] for name in scenario.questions})
    with stack.home() as home, stack.model_server() as url, stack.inferproxy(home, url), ExitStack() as running:
        for name, question in scenario.questions.items():
            seed.store_session(home, name, seed.clock_rounds(question), front=front)
        loopd = running.enter_context(stack.loopd(home, max_tokens=MAX_TOKENS))
        owner = Owner(home.loop_socket)
        for number in range(scenario.rounds):
            if number == scenario.killed_after:
                loopd.kill()
                running.enter_context(stack.loopd(home, max_tokens=MAX_TOKENS))
            for name, question in scenario.questions.items():
                turn = owner.say(question, session=name)
                made.requests[name] += turn.requests
                made.results[name].append(turn.results)
                made.turns_with_calls += turn.calls > 0
    return made


def _by_hand(scenario: Scenario, ours: Ours) -> dict[str, list[Request]]:
    front = seed.front(max_tokens=MAX_TOKENS)
    with stack.model_server() as url:
        clients = {
            name: HandWritten(
                url,
                slot=stack.MAIN,
                front=front,
                messages=seed.messages(front, seed.clock_rounds(question)),
                max_tokens=MAX_TOKENS,
            )
            for name, question in scenario.questions.items()
        }
        for number in range(scenario.rounds):
            for name, question in scenario.questions.items():
                clients[name].turn(question, ours.results[name][number])
    return {name: client.requests for name, client in clients.items()}


def _say_differences(ours: Mapping[str, Sequence[Request]], other: Mapping[str, Sequence[Request]]) -> None:
    """The two are told the same, so normally they hold the same; each is counted against its own context anyway."""
    for name in ours:
        if [request.prompt for request in ours[name]] != [request.prompt for request in other[name]]:
            say(f"session {name}: the model did not answer the two alike")
