"""An owner on loop.sock: says a message as bxctl does, a connection for each, and notes what comes and when."""

import time
from pathlib import Path

import attrs

from bxcore import client, ids
from bxcore.deadline import SystemClock
from bxcore.ids import SessionId
from bxcore.wire.channel import (
    MessageAccepted,
    ReasoningDelta,
    StepUsage,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UserMessage,
)
from tests.bench.cachecount import Request

IDLE_MS = 120_000


@attrs.define(kw_only=True)
class Turn:
    """What a message brought. Times in milliseconds since it was sent, connecting included; 0 where it never came."""

    accepted_ms: float = 0.0
    first_ms: float = 0.0
    ended_ms: float = 0.0
    usages: list[StepUsage] = attrs.Factory(list)
    calls: int = 0
    results: list[str] = attrs.Factory(list)
    ended: TurnEnded | None = None

    @property
    def requests(self) -> list[Request]:
        return [Request(prompt=step.prompt, cached=step.cached, output=step.output) for step in self.usages]

    @property
    def read(self) -> int:
        """Tokens that the model read and had not cached."""
        return sum(step.read for step in self.usages)


class Owner:
    """Talks in any number of sessions, one message after the other."""

    def __init__(self, loop_socket: Path) -> None:
        self._path = loop_socket
        self._clock = SystemClock()

    def say(self, text: str, *, session: str, new: bool = False) -> Turn:
        """Say it and wait for the end of the turn. Raises UpstreamError."""
        message = UserMessage(session=SessionId(session), new=new, key=ids.new_message_key(), text=text)
        turn, began = Turn(), time.perf_counter()
        with client.Connection(self._path, clock=self._clock) as connection:
            for envelope in connection.request(message, idle_ms=IDLE_MS):
                _note(turn, envelope.msg, began)
        return turn


def _note(turn: Turn, event: object, began: float) -> None:
    match event:
        case TextDelta() | ReasoningDelta():
            turn.first_ms = turn.first_ms or _since(began)
        case ToolCalled():
            turn.first_ms = turn.first_ms or _since(began)
            turn.calls += 1
        case ToolReturned():
            turn.results.append(event.content)
        case StepUsage():
            turn.usages.append(event)
        case MessageAccepted():
            turn.accepted_ms = _since(began)
        case TurnEnded():
            turn.ended, turn.ended_ms = event, _since(began)
        case _:
            pass


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
