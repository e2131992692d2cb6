import json

import attrs
import pytest

from bxcore import sessionrecords, strictjson
from bxcore.errors import BadMessage
from bxcore.ids import Hash32, MessageKey, SessionId
from bxcore.jsonl import Recovery
from bxcore.sessionrecords import CacheLoss, Nudge, Record, SessionStart, ThinkingCap, TurnStart
from bxcore.wire.channel import TurnEnding
from tests.fakes.records import NOW, call, end, result, said, usage, user

EACH: dict[str, Record] = {
    "session_start": SessionStart(
        time=NOW, format=1, session=SessionId("s-1"), epoch=0, slot=0, baseline=Hash32("a" * 64)
    ),
    "user": user("k1", 'Ünï\n"x"\u2028'),
    "turn_start": TurnStart(time=NOW, turn=1, keys=(MessageKey("k1"), MessageKey("k2"))),
    "assistant": said(None, reasoning="", calls=(call("a"), call("b", broken='{"x'))),
    "usage": usage(),
    "tool_result": result("a"),
    "nudge": Nudge(time=NOW, turn=1, content="Answer."),
    "cache_loss": CacheLoss(time=NOW, turn=1, step=1, expected=9, got=0),
    "thinking_cap": ThinkingCap(time=NOW, turn=1, step=1, tokens=4096, ended=False),
    "turn_end": end(TurnEnding.LENGTH, sentence="Cut off."),
    "recovery": Recovery(time=NOW, line=2, bytes=3, sha256=Hash32("b" * 64)),
}


def line(record: Record) -> bytes:
    return strictjson.dumps(sessionrecords.to_value(record))


def test_every_kind_of_line_has_an_example_here() -> None:
    assert set(EACH) == set(sessionrecords.TYPES)
    assert {type(record) for record in EACH.values()} == set(sessionrecords.TYPES.values())


@pytest.mark.parametrize(("name", "record"), EACH.items(), ids=EACH.keys())
def test_a_record_is_read_back_as_it_was_written(name: str, record: Record) -> None:
    assert sessionrecords.from_value(strictjson.loads(line(record))) == record


@pytest.mark.parametrize(("name", "record"), EACH.items(), ids=EACH.keys())
def test_a_line_begins_with_its_type_and_holds_every_field_in_order(name: str, record: Record) -> None:
    stored = json.loads(line(record))
    assert line(record).startswith(f'{{"type":"{name}",'.encode())
    assert list(stored) == ["type", *(field.name for field in attrs.fields(type(record)))]


def test_none_is_stored_as_null_and_not_left_out() -> None:
    stored = json.loads(line(said(None)))
    assert stored["content"] is None
    assert stored["reasoning_content"] is None
    assert json.loads(line(end()))["sentence"] is None


def test_empty_text_and_none_stay_apart() -> None:
    for record in (said(""), said(None), said("x", reasoning=""), said("x")):
        assert sessionrecords.from_value(strictjson.loads(line(record))) == record


BAD = {
    "unknown type": b'{"type":"secret","time":"2026-01-01T00:00:00.000Z"}',
    "no type": b'{"time":"2026-01-01T00:00:00.000Z"}',
    "type of another type": b'{"type":1}',
    "no object": b"[]",
    "missing field": b'{"type":"user","time":"2026-01-01T00:00:00.000Z","key":"k"}',
    "unknown field": b'{"type":"user","time":"2026-01-01T00:00:00.000Z","key":"k","content":"x","more":1}',
    "null for a text": b'{"type":"user","time":"2026-01-01T00:00:00.000Z","key":"k","content":null}',
    "bad key": b'{"type":"user","time":"2026-01-01T00:00:00.000Z","key":"a b","content":"x"}',
    "another spelling of the time": b'{"type":"user","time":"2026-01-01T00:00:00Z","key":"k","content":"x"}',
    "call number 0": line(result("a")).replace(b'"call":1', b'"call":0'),
    "an ending that does not exist": line(end()).replace(b"answered", b"solved"),
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_a_line_that_is_no_record_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        sessionrecords.from_value(strictjson.loads(raw))
