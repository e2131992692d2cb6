"""The beginning of a conversation, made up: as messages for a hand-written client, as a session on disk for loopd.

The small model does what it has been shown twice, so two worked rounds make it call clock in every turn.
"""

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import attrs

from bxcore.deadline import SystemClock
from bxcore.files import DiskFiles
from bxcore.ids import CallId, MessageKey, SessionId
from bxcore.sessionrecords import Assistant, Record, ToolCall, ToolResult, TurnEnd, TurnStart, User
from bxcore.settings.loopd import Sampling
from bxcore.timestamp import Timestamp
from bxcore.wire.channel import TurnEnding
from bxcore.wire.tools import DataClass
from deploy.local.home import Home
from loopd import baseline, toolbox
from loopd.baseline import Baseline
from loopd.sessionlog import SessionStore
from tests.bench.stack import MAIN

BEGAN = Timestamp(1_700_000_000_000)
Message = dict[str, Any]


@attrs.frozen(kw_only=True)
class Round:
    """A question and its answer; `result` is what clock returned in between, None where it was not called."""

    question: str
    result: str | None
    answer: str


def clock_rounds(question: str) -> tuple[Round, ...]:
    return tuple(
        Round(question=question, result=f"Thursday, 2026-01-01 00:0{number}:00 UTC", answer=f"Done {number}.")
        for number in (1, 2)
    )


def front(*, max_tokens: int = 48) -> Baseline:
    """The system prompt and tools of a new session, and greedy sampling."""
    sampling = Sampling(temperature=Decimal(0), max_tokens=max_tokens)
    return baseline.make(sampling=sampling, tools=toolbox.core_schemas())


def store_session(home: Home, session: str, rounds: Sequence[Round], *, front: Baseline) -> int:
    """Put the session on disk; return the number of its records. loopd must not have it open."""
    store = SessionStore(home.path / "sessions", files=DiskFiles(), clock=SystemClock())
    _, _, log = store.create(SessionId(session), front, slot=MAIN)
    records = [record for turn, round_ in enumerate(rounds, 1) for record in _records(turn, round_)]
    log.append(*records)
    log.close()
    return len(records) + 1


def messages(front: Baseline, rounds: Sequence[Round]) -> list[Message]:
    """The same as messages of an HTTP request."""
    return [
        {"role": "system", "content": front.system},
        *(message for turn, round_ in enumerate(rounds, 1) for message in _messages(turn, round_)),
    ]


def body(front: Baseline, messages: Sequence[Message], *, slot: int) -> bytes:
    """A request with loopd's own fields and settings, so that the server does the same work for whoever sends it."""
    return front.head(slot=slot, model="") + json.dumps(messages, ensure_ascii=False).encode()[1:] + b"}"


def _records(turn: int, made_up: Round) -> Iterator[Record]:
    key = MessageKey(f"seed-{turn}")
    yield User(time=BEGAN, key=key, content=made_up.question)
    yield TurnStart(time=BEGAN, turn=turn, keys=(key,))
    if made_up.result is not None:
        call = ToolCall(id=f"seed{turn}", name="clock", arguments="{}", broken=None)
        yield Assistant(time=BEGAN, turn=turn, step=1, content="", reasoning_content=None, tool_calls=(call,))
        yield ToolResult(
            time=BEGAN,
            turn=turn,
            call=CallId(turn),
            tool_call_id=call.id,
            name=call.name,
            ok=True,
            content=made_up.result,
            data_class=DataClass.PUBLIC,
            untrusted=False,
            truncated=False,
        )
    step = 1 if made_up.result is None else 2
    yield Assistant(time=BEGAN, turn=turn, step=step, content=made_up.answer, reasoning_content=None, tool_calls=())
    yield TurnEnd(time=BEGAN, turn=turn, ending=TurnEnding.ANSWERED, sentence=None, detail=None, dropped=False)


def _messages(turn: int, made_up: Round) -> Iterator[Message]:
    yield {"role": "user", "content": made_up.question}
    if made_up.result is not None:
        call = {"id": f"seed{turn}", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
        yield {"role": "assistant", "content": "", "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"seed{turn}", "content": made_up.result}
    yield {"role": "assistant", "content": made_up.answer}
