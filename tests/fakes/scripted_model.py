"""A ModelServer that plays what a test wrote, in the turn's own thread, and keeps every request.

A script is a list of items for one request: deltas are yielded, exceptions raised, reasons to wait told,
functions called where they stand, so that a test can do something exactly "in the middle of the reply".
Without a script left, the answer is "ok". Threads: any number of turns; each script is taken by one request.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence

from bxcore.wire.channel import WaitReason
from loopd.cancel import CancelToken
from loopd.llama import ModelServer
from loopd.serverinfo import Props
from loopd.stream import CallArguments, CallStarted, Counters, Delta, Finished, Progress, Reasoning, Text
from loopd.waits import OnWait

Item = Delta | Exception | WaitReason | Callable[[], object]
Script = Sequence[Item]

PROPS = Props(
    template_sha256="0" * 64, template_tags=(), n_ctx=4_096, total_slots=2, model="scripted", defaults="not shown"
)


class ScriptedModel(ModelServer):
    """`expect` scripts in the order in which they will be asked for."""

    def __init__(self, *scripts: Script) -> None:
        self._lock = threading.Lock()
        self._scripts = deque(scripts)
        self.bodies: list[bytes] = []
        self.left_early = 0
        """Streams that were given up before their end."""
        self.orders: list[str] = []
        """Completions that were told to stop thinking."""
        self.takes_orders: bool | Exception = True
        self.tells: list[Props | Exception] = [PROPS]
        """What /props says, in this order; the last one for ever."""
        self.asked_props = 0

    def expect(self, *scripts: Script) -> None:
        with self._lock:
            self._scripts.extend(scripts)

    @property
    def unplayed(self) -> int:
        return len(self._scripts)

    def stream(self, body: bytes, *, cancel: CancelToken, on_wait: OnWait) -> Generator[Delta, None, None]:
        with self._lock:
            self.bodies.append(body)
            script = self._scripts.popleft() if self._scripts else answer("ok")
        ended = False
        try:
            for item in script:
                cancel.check()
                if isinstance(item, Exception):
                    ended = True
                    raise item
                if isinstance(item, WaitReason):
                    on_wait(item, 0, 1_000)
                elif callable(item):
                    item()
                    cancel.check()
                else:
                    yield item
            ended = True
        finally:
            with self._lock:
                self.left_early += not ended

    def end_reasoning(self, completion_id: str, *, cancel: CancelToken | None = None) -> bool:
        self.orders.append(completion_id)
        if isinstance(self.takes_orders, Exception):
            raise self.takes_orders
        return self.takes_orders

    def props(self, *, cancel: CancelToken | None = None) -> Props:
        with self._lock:
            self.asked_props += 1
            said = self.tells.pop(0) if len(self.tells) > 1 else self.tells[0]
        if isinstance(said, Exception):
            raise said
        return said


# -- scripts ----------------------------------------------------------------------------------------


def finished(reason: str = "stop", *, prompt: int = 100, cached: int = 0, output: int = 5) -> Finished:
    return Finished(reason=reason, prompt=prompt, cached=cached, predicted=output)


def counters(*, identity: str = "chatcmpl-1", prompt: int = 100, cached: int = 0, output: int = 0) -> Counters:
    return Counters(id=identity, prompt=prompt, cached=cached, predicted=output)


def thoughts(count: int, word: str = "hm ") -> list[Item]:
    """That many tokens of thinking, each with the server's count behind it."""
    return [item for number in range(1, count + 1) for item in (Reasoning(text=word), counters(output=number))]


def answer(text: str, *, reasoning: str | None = None, end: Finished | None = None) -> Script:
    """An ordinary reply, in pieces of at most four characters."""
    thinking: list[Item] = [Reasoning(text=reasoning)] if reasoning else []
    pieces = [Text(text=text[at : at + 4]) for at in range(0, len(text), 4)]
    return [Progress(total=100, cached=0, processed=100), counters(), *thinking, *pieces, end or finished()]


def calls(
    *asked: tuple[str, str], text: str = "", reasoning: str | None = None, reason: str = "tool_calls", ids: str = "c"
) -> Script:
    """A reply that calls tools: (name, argument text) each."""
    items: list[Item] = [counters()]
    items += [Reasoning(text=reasoning)] if reasoning else []
    items += [Text(text=text)] if text else []
    for index, (name, arguments) in enumerate(asked):
        items.append(CallStarted(index=index, id=f"{ids}{index}", name=name))
        items += [CallArguments(index=index, text=arguments[at : at + 7]) for at in range(0, len(arguments), 7)]
    return [*items, finished(reason)]


def empty(*, reasoning: str | None = None, reason: str = "stop") -> Script:
    """A reply without a word."""
    return [counters(), *([Reasoning(text=reasoning)] if reasoning else []), finished(reason)]


def echo(text: str) -> tuple[str, str]:
    """A call of echo as it has to be made."""
    return "call_tool", json.dumps({"name": "echo", "arguments": {"text": text}})
