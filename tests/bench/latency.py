"""Time to the first word: through bxcore.client, loopd and inferproxy, over a direct request to the server.

Pairs of turns: one through loopd on its slot, one by hand on the other slot, in two conversations with
the same words. Both prompts are cached but for the new message, which both have to read.
"""

import json
import time

import requests

from loopd.baseline import Baseline
from tests.bench import pairs, report, seed, stack
from tests.bench.owner import Owner
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.seed import Round
from tests.bench.sizes import Sizes, Unmeasurable

SESSION = "latency"
MAX_TOKENS = 4
"""The first word is what counts; the rest of a reply only makes the bench longer."""

WARM_UP = 3
ROUNDS = tuple(Round(question="Say yes.", result=None, answer="Yes.") for _ in range(2))
LIMIT_MS = 8
TIMEOUT_SECONDS = 60


class Direct:
    """The same conversation without Boxmaker: `requests`, lines, JSON."""

    def __init__(self, url: str, front: Baseline) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._front = front
        self._messages = seed.messages(front, ROUNDS)
        self.read = 0
        """Tokens that the newest request had to read."""

    def say(self, text: str) -> float:
        """Return the milliseconds until the first word."""
        began, first_ms, words = time.perf_counter(), 0.0, []
        self._messages.append({"role": "user", "content": text})
        body = seed.body(self._front, self._messages, slot=stack.OTHER)
        headers = {"Content-Type": "application/json"}
        with requests.post(self._url, data=body, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as response:
            for line in response.iter_lines():
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if word := _word(event):
                    first_ms = first_ms or (time.perf_counter() - began) * 1000
                    words.append(word)
                self.read = event.get("timings", {}).get("prompt_n", 0)
        self._messages.append({"role": "assistant", "content": "".join(words)})
        return first_ms


def measure(sizes: Sizes) -> list[Measure]:
    front = seed.front(max_tokens=MAX_TOKENS)
    with stack.home() as home, stack.model_server() as url, stack.inferproxy(home, url):
        seed.store_session(home, SESSION, ROUNDS, front=front)
        with stack.loopd(home, max_tokens=MAX_TOKENS):
            return _measured(sizes, Owner(home.loop_socket), Direct(url, front))


def _measured(sizes: Sizes, owner: Owner, direct: Direct) -> list[Measure]:
    read = []

    def ours() -> float:
        turn = owner.say("Say yes.", session=SESSION)
        read.append(turn.read)
        return turn.first_ms

    def other() -> float:
        first_ms = direct.say("Say yes.")
        read.append(direct.read)
        return first_ms

    for _ in range(WARM_UP):
        ours(), other()
    read.clear()
    taken = pairs.alternated(sizes.latency_pairs, ours=ours, other=other)
    say(f"each request read {min(read)} to {max(read)} new tokens")
    if min(read) != max(read):
        raise Unmeasurable("the two conversations differ, so their times cannot be compared")
    added = pairs.median_difference(taken)
    return [
        report.at_most("time to the first word, over a direct request", added, "ms", LIMIT_MS),
        report.to_read("time to the first word of the direct request", pairs.median_of_other(taken), "ms"),
    ]


def _word(event: dict[str, object]) -> str:
    choices = event.get("choices")
    delta = choices[0]["delta"] if isinstance(choices, list) and choices else {}
    return delta.get("content") or ""
