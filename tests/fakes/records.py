"""Records of a session log with the fields that a test seldom cares about filled in."""

from bxcore.ids import CallId, MessageKey
from bxcore.sessionrecords import Assistant, ToolCall, ToolResult, TurnEnd, TurnStart, Usage, User
from bxcore.timestamp import Timestamp
from bxcore.wire.channel import TurnEnding
from bxcore.wire.tools import DataClass

NOW = Timestamp(1_700_000_000_000)


def user(key: str, content: str = "?") -> User:
    return User(time=NOW, key=MessageKey(key), content=content)


def start(turn: int, *keys: str) -> TurnStart:
    return TurnStart(time=NOW, turn=turn, keys=tuple(MessageKey(key) for key in keys))


def said(
    content: str | None, *, reasoning: str | None = None, calls: tuple[ToolCall, ...] = (), turn: int = 1, step: int = 1
) -> Assistant:
    return Assistant(time=NOW, turn=turn, step=step, content=content, reasoning_content=reasoning, tool_calls=calls)


def call(identity: str = "a", name: str = "clock", arguments: str = "{}", broken: str | None = None) -> ToolCall:
    return ToolCall(id=identity, name=name, arguments=arguments, broken=broken)


def result(identity: str, content: str = "12:00", *, number: int = 1, turn: int = 1) -> ToolResult:
    return ToolResult(
        time=NOW,
        turn=turn,
        call=CallId(number),
        tool_call_id=identity,
        name="clock",
        ok=True,
        content=content,
        data_class=DataClass.PUBLIC,
        untrusted=False,
        truncated=False,
    )


def end(
    ending: TurnEnding = TurnEnding.ANSWERED, *, turn: int = 1, sentence: str | None = None, dropped: bool = False
) -> TurnEnd:
    return TurnEnd(time=NOW, turn=turn, ending=ending, sentence=sentence, detail=None, dropped=dropped)


def usage(*, turn: int = 1, step: int = 1, prompt: int = 9, cached: int = 4, output: int = 3, reread: int = 0) -> Usage:
    return Usage(
        time=NOW,
        turn=turn,
        step=step,
        prompt=prompt,
        cached=cached,
        read=prompt - cached,
        reread=reread,
        output=output,
        reasoning=0,
        finish="stop",
    )
