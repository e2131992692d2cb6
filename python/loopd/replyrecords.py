"""A reply of the model -> the records that keep it and complete it. Pure."""

import attrs

from bxcore.ids import CallId
from bxcore.sessionrecords import Assistant, CacheLoss, ThinkingCap, ToolCall, ToolResult, Usage
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass
from loopd import arguments
from loopd.history import History
from loopd.stream import Cap, Completion, ReceivedCall

MAX_BROKEN_CHARS = 4_096
"""Of arguments that no server could read back, this much is kept for the owner to see."""


@attrs.frozen(kw_only=True)
class Place:
    """When, and where in the session."""

    time: Timestamp
    turn: int
    step: int


def stored_calls(received: Completion) -> tuple[ToolCall, ...]:
    """Return the calls as they may be sent back: one call with bad arguments would fail every later request."""
    taken: set[str] = set()
    return tuple(
        _stored(call, _unused(call.id or f"call-{number}", taken)) for number, call in enumerate(received.calls, 1)
    )


def assistant(at: Place, received: Completion, calls: tuple[ToolCall, ...]) -> Assistant:
    """The reply itself."""
    return Assistant(
        time=at.time,
        turn=at.turn,
        step=at.step,
        content=received.content,
        reasoning_content=received.reasoning,
        tool_calls=calls,
    )


def usage(at: Place, received: Completion, history: History) -> tuple[Usage, CacheLoss | None]:
    """What the reply cost, and whether the server had lost what it should still have held."""
    counted = Usage(
        time=at.time,
        turn=at.turn,
        step=at.step,
        prompt=received.prompt,
        cached=received.cached,
        read=received.prompt - received.cached,
        reread=history.reread(prompt=received.prompt, cached=received.cached),
        output=received.predicted,
        reasoning=received.reasoning_tokens,
        finish=received.finish,
    )
    expected = history.lost(cached=received.cached) if received.prompt else None
    if not expected:
        return counted, None
    return counted, CacheLoss(time=at.time, turn=at.turn, step=at.step, expected=expected, got=received.cached)


def cap(at: Place, reached: Cap | None) -> ThinkingCap | None:
    """The thinking cap, where it was reached."""
    if reached is None:
        return None
    return ThinkingCap(time=at.time, turn=at.turn, step=at.step, tokens=reached.tokens, ended=reached.ended)


def lost_results(history: History, *, time: Timestamp, turn: int, why: str) -> list[ToolResult]:
    """A result for each call that has none: no server takes a history with an open call."""
    return [
        ToolResult(
            time=time,
            turn=turn,
            call=CallId(history.last_call + place),
            tool_call_id=identity,
            name=name,
            ok=False,
            content=why,
            data_class=DataClass.PUBLIC,
            untrusted=False,
            truncated=False,
        )
        for place, (identity, name) in enumerate(history.unanswered_calls(), 1)
    ]


def _unused(identity: str, taken: set[str]) -> str:
    # A server that numbers its calls badly gives two the same id; a result must name one of them.
    while identity in taken:
        identity += "+"
    taken.add(identity)
    return identity


def _stored(call: ReceivedCall, identity: str) -> ToolCall:
    name = call.name or "unnamed"
    try:
        arguments.parse(call.arguments)
    except arguments.BadArguments:
        return ToolCall(id=identity, name=name, arguments="{}", broken=_storable(call.arguments)[:MAX_BROKEN_CHARS])
    return ToolCall(id=identity, name=name, arguments=call.arguments, broken=None)


def _storable(text: str) -> str:
    return text.encode("utf-8", errors="replace").decode()
