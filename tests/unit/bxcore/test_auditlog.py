"""The audit log's records: one form, the strict one, and the names of the files."""

from datetime import date

import attrs
import pytest

from bxcore import auditlog, convert, strictjson
from bxcore.auditlog import BreakAccepted, Fault, Record, Recovered
from bxcore.chain import GENESIS
from bxcore.errors import BadMessage
from bxcore.ids import MAX_SAFE_INTEGER
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp, to_text
from bxcore.wire.admin import Verdict
from tests.fakes.audited import NOON, SOME, answered, decided, ended, started

TEXT = '{"a":"\\u00e9 \u2028 \x00 \x7f \U0001f980 \\" \\\\ "}'
RECORDS: dict[str, Record] = {
    "decision": decided(Verdict.DENIED, arguments=TEXT)(1, NOON, GENESIS),
    "approval": answered(1)(2, NOON, SOME),
    "started": started(1)(MAX_SAFE_INTEGER, NOON, SOME),
    "result": ended(1)(4, NOON, SOME),
    "recovery": Recovered(seq=5, time=NOON, prev=SOME, file="2026-11-30.jsonl", line=1, bytes=0, sha256=SOME),
    "accepted_break": BreakAccepted(
        seq=6,
        time=NOON,
        prev=SOME,
        file="2026-11-30.jsonl",
        line=1,
        last_good=0,
        found=Fault.UNREADABLE,
        bytes=9,
        sha256=SOME,
    ),
}


@pytest.mark.parametrize("event", RECORDS)
def test_a_record_is_stored_in_the_strict_form_and_read_again(event: str) -> None:
    record = RECORDS[event]
    line = auditlog.encode(record)
    assert line == strictjson.dumps(convert.unstructure_tagged(record, auditlog.EVENT_OF, tag="event"))
    assert auditlog.decode(line) == record
    assert line.startswith(b'{"event":"%b","seq":' % event.encode())


@pytest.mark.parametrize("time", [0, 1, 86_399_999, 86_400_000, NOON + 12_345, MAX_TIMESTAMP])
def test_a_time_is_spelled_as_everywhere(time: int) -> None:
    record = started(1)(1, Timestamp(time), GENESIS)
    assert f'"time":"{to_text(Timestamp(time))}"'.encode() in auditlog.encode(record)


def test_every_event_has_its_case() -> None:
    assert set(RECORDS) == set(auditlog.EVENTS)


@pytest.mark.parametrize("event", RECORDS)
def test_what_could_not_be_read_again_is_not_written(event: str) -> None:
    with pytest.raises(ValueError, match="integer"):
        auditlog.encode(attrs.evolve(RECORDS[event], seq=MAX_SAFE_INTEGER + 1))


WRONG: dict[str, object] = {"seq": True, "prev": None, "tool": 1, "untrusted": 0, "verdict": "denied", "path": b"/"}


@pytest.mark.parametrize(("field", "value"), WRONG.items(), ids=WRONG.keys())
def test_a_field_of_another_type_is_not_written(field: str, value: object) -> None:
    record = decided()(1, NOON, GENESIS)
    with pytest.raises(TypeError, match=field):
        auditlog.encode(attrs.evolve(record, **{field: value}))  # type: ignore[arg-type]


def test_a_number_below_zero_is_not_written() -> None:
    with pytest.raises(ValueError, match="integer"):
        auditlog.encode(started(-1)(1, NOON, GENESIS))


def test_a_lone_surrogate_is_not_written() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        auditlog.encode(decided(arguments="\ud800")(1, NOON, GENESIS))


def test_another_event_or_field_is_no_record() -> None:
    line = auditlog.encode(RECORDS["started"])
    for other in (line.replace(b"started", b"stopped"), line.replace(b'"plan"', b'"plot"'), b"{}", b"[]", b""):
        with pytest.raises(BadMessage):
            auditlog.decode(other)


def test_a_day_has_a_file_and_only_real_days_have() -> None:
    assert auditlog.file_name(date(2026, 2, 3)) == "2026-02-03.jsonl"
    assert auditlog.is_log_file("2028-02-29.jsonl")
    for name in (
        "2026-02-30.jsonl",
        "2026-2-3.jsonl",
        "2026-02-03.jsonl~",
        ".2026-02-03.jsonl",
        "٢٠٢٦-02-03.jsonl",
        "",
    ):
        assert not auditlog.is_log_file(name)
