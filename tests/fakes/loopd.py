"""A loopd that says what a test wrote, over the real socket, with the real frames.

Nothing here knows a turn: a script answers each message type.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bxcore.ids import CallId, MessageKey, SessionId
from bxcore.server import Request
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnded, TurnEnding
from tests.fakes.rolesocket import FakeRole, Script, refuses, replies, send

__all__ = ["FakeLoopd", "Script", "refuses", "replies", "send"]


class FakeLoopd(FakeRole):
    """Serves `<home>/run/loop-owner/loop.sock` while the `with` block lasts."""

    def __init__(self, home: Path, scripts: Mapping[Any, Script]) -> None:
        status: Script = lambda request: request.answer(ready(), final=True)  # noqa: E731
        super().__init__(home, "loop-owner", "loop.sock", {channel.LoopStatus: status, **scripts})


def answers(*events: object, turn: int = 1) -> Script:
    """Accept a message, then send these events of its turn, the last one final."""

    def script(request: Request) -> None:
        request.answer(accepted(request, turn=turn), final=False)
        send(request, events)

    return script


# -- messages with the fields that a test seldom cares about ---------------------------------------


def ready(waiting_for: str | None = None) -> channel.LoopStatusReport:
    return channel.LoopStatusReport(
        ready=waiting_for is None,
        waiting_for=waiting_for,
        running_turns=0,
        open_sessions=0,
        model="tiny",
        n_ctx=8_192,
        main_slot=0,
        background_slot=1,
    )


def accepted(request: Request, *, turn: int = 1, queued: bool = False) -> channel.MessageAccepted:
    message = request.message
    assert isinstance(message, channel.UserMessage)
    return channel.MessageAccepted(session=message.session, key=message.key, turn=turn, queued=queued, duplicate=False)


def started(*keys: str, turn: int = 1) -> channel.TurnStarted:
    return channel.TurnStarted(turn=turn, keys=tuple(MessageKey(key) for key in keys))


def text(words: str, *, step: int = 1, turn: int = 1) -> channel.TextDelta:
    return channel.TextDelta(turn=turn, step=step, text=words)


def part(words: str, *, turn: int = 1) -> channel.AnswerPart:
    return channel.AnswerPart(turn=turn, text=words)


def thought(words: str, *, step: int = 1, turn: int = 1) -> channel.ReasoningDelta:
    return channel.ReasoningDelta(turn=turn, step=step, text=words)


def progress(processed: int, *, total: int = 1_000, cached: int = 0, step: int = 1) -> channel.PromptProgress:
    return channel.PromptProgress(turn=1, step=step, total=total, cached=cached, processed=processed)


def called(name: str, arguments: str, *, call: int = 1) -> channel.ToolCalled:
    return channel.ToolCalled(turn=1, call=CallId(call), name=name, arguments=arguments)


def returned(name: str, content: str, *, call: int = 1, ok: bool = True) -> channel.ToolReturned:
    return channel.ToolReturned(turn=1, call=CallId(call), name=name, ok=ok, content=content, truncated=False)


def notice(code: str, words: str) -> channel.TurnNotice:
    return channel.TurnNotice(turn=1, code=code, text=words)


def ended(
    words: str, *, ending: TurnEnding = TurnEnding.ANSWERED, sentence: str | None = None, turn: int = 1
) -> TurnEnded:
    return TurnEnded(
        turn=turn,
        ending=ending,
        text=words,
        sentence=sentence,
        steps=1,
        prompt=120,
        cached=100,
        read=20,
        output=7,
        elapsed_ms=1_234,
    )


def record(line: int, text_of_line: str, *, more: bool = False) -> channel.SessionRecord:
    return channel.SessionRecord(epoch=1, line=line, text=text_of_line, more=more)


def session(name: str) -> SessionId:
    return SessionId(name)
