"""The chain over stored bytes: INV-7, rows A1, A4, A9 of the bad inputs, S10."""

from hashlib import sha256

import pytest

from bxcore import auditlog
from bxcore.auditlog import BreakAccepted, Fault, Recovered
from bxcore.chain import GENESIS, MAX_LINE, START, Head, Kept, Report, Unsettled, Verifier
from bxcore.chainreport import parse_head
from bxcore.ids import Hash32
from bxcore.wire.admin import ApprovalEnding, Verdict
from tests.fakes.audited import NOON, answered, calls, chained, decided, ended, head_of, started, stored

FILE = "2026-11-30.jsonl"
NINE = chained(calls(3))


def verified(*contents: bytes, kept: Head | None = None, cut: int | None = None) -> Report:
    """Verify files with these contents; `cut` feeds them in pieces of that size."""
    verifier = Verifier(kept=kept)
    for number, content in enumerate(contents):
        verifier.begin(f"2026-12-{number:02d}.jsonl" if number else FILE)
        step = cut or max(len(content), 1)
        for start in range(0, len(content), step):
            verifier.feed(content[start : start + step])
        verifier.end()
    return verifier.finish()


def faults(report: Report) -> list[tuple[int, Fault]]:
    return [(finding.line, finding.fault) for finding in report.findings]


# -- whole logs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, 1, 7, 400, 4096])
def test_a_whole_log_verifies_however_it_is_read(cut: int | None) -> None:
    report = verified(stored(NINE), cut=cut)
    assert (report.findings, report.broken, report.torn) == ((), None, None)
    assert report.head == head_of(NINE)
    assert report.next_seq == 10
    assert report.counts == {"decision": 3, "started": 3, "result": 3}
    assert (report.records, report.files, report.bytes) == (9, 1, len(stored(NINE)))


def test_an_empty_log_begins_at_genesis() -> None:
    report = verified(b"")
    assert (report.head, report.next_seq, report.broken) == (START, 1, None)
    assert str(START) == f"0:{GENESIS}"


def test_the_chain_spans_files() -> None:
    report = verified(stored(NINE[:4]), b"", stored(NINE[4:]))
    assert (report.head, report.broken) == (head_of(NINE), None)


def test_a_pass_goes_on_where_another_one_left_off() -> None:
    first = Verifier()
    first.begin(FILE)
    first.feed(stored(NINE[:4]))
    second = Verifier(after=first.head, unsettled=first.unsettled)
    second.begin(FILE, line=first.lines)
    second.feed(stored(NINE[4:]))
    report = second.finish()
    assert (report.head, report.broken) == (head_of(NINE), None)
    assert (second.lines, second.log_lines) == (9, 9)
    assert report.unsettled == Unsettled()


def test_the_calls_without_an_end_are_known() -> None:
    story = [
        decided(),  # 1: allowed, and nothing more
        decided(Verdict.ASK),  # 2: asked, not answered
        decided(Verdict.ASK),
        answered(3),  # 3: answered, not started
        decided(Verdict.DENIED),
        decided(),
        started(6),  # 6: started, no result
        decided(),
        started(8),
        ended(8),
        decided(Verdict.ASK),
        answered(11, ApprovalEnding.REFUSED),
    ]
    report = verified(stored(chained(story)))
    assert report.unsettled == Unsettled(asked=(2,), allowed=(1, 3), started=(6,))


# -- tampering ------------------------------------------------------------------------------------


def test_a_changed_record_is_located_by_the_one_after_it() -> None:
    lines = [*NINE]
    lines[4] = lines[4].replace(b'"decision":4', b'"decision":1')
    report = verified(stored(lines))
    assert faults(report) == [(6, Fault.BROKEN_LINK)]
    assert report.findings[0].changed == 5
    assert report.head == head_of(lines[:5])
    assert report.broken is not None
    assert (report.broken.line, report.broken.last_good) == (6, 5)


def test_a_changed_link_is_located_in_its_own_line() -> None:
    lines = [*NINE]
    lines[4] = lines[4].replace(sha256(NINE[3]).hexdigest().encode(), b"0" * 64)
    report = verified(stored(lines))
    assert faults(report) == [(5, Fault.BROKEN_LINK), (6, Fault.BROKEN_LINK)]
    assert report.findings[0].changed is None


def test_a_change_in_the_last_line_of_a_day_is_seen_on_the_next() -> None:
    lines = [*NINE]
    lines[3] = lines[3].replace(b"/n/a", b"/n/b")
    report = verified(stored(lines[:4]), stored(lines[4:]))
    assert faults(report) == [(1, Fault.BROKEN_LINK)]
    assert "the last line of the file before" in report.findings[0].detail


TAMPERED = {
    "A4 swapped": ([0, 1, 3, 2, 4, 5, 6, 7, 8], 3),
    "A4 copied": ([0, 1, 2, 2, 3, 4, 5, 6, 7, 8], 4),
    "A4 copied to the end": ([0, 1, 2, 3, 4, 5, 6, 7, 8, 3], 10),
    "removed": ([0, 1, 2, 4, 5, 6, 7, 8], 4),
    "first removed": ([1, 2, 3, 4, 5, 6, 7, 8], 1),
    "a day put in front": ([5, 6, 0, 1, 2, 3, 4], 1),
}


@pytest.mark.parametrize(("order", "line"), TAMPERED.values(), ids=TAMPERED.keys())
def test_lines_that_were_moved_are_found_where_they_stand(order: list[int], line: int) -> None:
    report = verified(stored(NINE[index] for index in order))
    assert faults(report)[0] == (line, Fault.OUT_OF_ORDER)
    assert report.broken is not None


def test_a4_a_record_of_another_log_with_the_right_number_is_found() -> None:
    other = chained([decided(arguments="{}")] * 9)
    report = verified(stored([*NINE[:4], other[4], *NINE[5:]]))
    assert faults(report)[0] == (5, Fault.BROKEN_LINK)


def test_a_line_that_is_no_record_is_found_in_the_middle() -> None:
    report = verified(stored([*NINE[:3], b'{"event":"decision"', *NINE[3:]]))
    assert faults(report)[0] == (4, Fault.UNREADABLE)


def test_findings_beyond_the_first_are_independent_ones() -> None:
    lines = chained(calls(10))
    lines[3], lines[20] = lines[3].replace(b"/n/a", b"/n/b"), b"gone"
    assert faults(verified(stored(lines))) == [(5, Fault.BROKEN_LINK), (21, Fault.UNREADABLE)]


def test_very_many_findings_are_counted_and_not_kept() -> None:
    lines = chained([decided()] * 5)
    report = verified(stored(lines * 300))
    assert len(report.findings) == 100
    assert report.more_findings > 100


# -- tears ------------------------------------------------------------------------------------------


def recovered(before: list[bytes], tail: bytes, *, line: int | None = None, seq: int | None = None) -> bytes:
    """Return the recovery that describes `tail` behind the lines `before`."""
    head = head_of(before)
    record = Recovered(
        seq=seq or head.seq + tail.count(b"\n") + 2,
        time=NOON,
        prev=head.hash,
        file=FILE,
        line=line or len(before) + 1,
        bytes=len(tail),
        sha256=Hash32(sha256(tail).hexdigest()),
    )
    return auditlog.encode(record)


TAILS = {
    "cut": NINE[4][:100],
    "cut before its newline": NINE[4],
    "zeros": b"\0" * 300,
    "a start, then zeros": NINE[4][:200] + b"\0" * 100,
    "garbage with a newline in it": NINE[4][:200] + b"\n\xff\xfe",
    "garbage alone": b"\xff\n\xfe\n{",
    "empty lines": b"\n\nx",
    "longer than a record": b"x" * (MAX_LINE + 5),
    "two, longer than a record": b"x" * (MAX_LINE + 5) + b"\n" + b"y" * (MAX_LINE + 6),
}


TORN = {name: (tail, b"") for name, tail in TAILS.items()} | {
    f"{name}, with a newline": (tail, b"\n") for name, tail in TAILS.items() if tail != NINE[4]
}


@pytest.mark.parametrize(("tail", "newline"), TORN.values(), ids=TORN.keys())
def test_a1_a_torn_end_is_told_and_what_describes_it_makes_the_log_whole(tail: bytes, newline: bytes) -> None:
    before = NINE[:4]
    report = verified(stored(before) + tail + newline)
    assert report.broken is None
    assert report.torn is not None
    assert report.head == head_of(before)
    record = report.torn.recovered(seq=report.next_seq, time=NOON)
    line = auditlog.encode(record)
    assert line == recovered(before, tail)

    after = chained([decided()] * 3, after=Head(seq=record.seq, hash=head_of([line]).hash))
    for cut in (None, 65_536):
        again = verified(stored(before) + tail + b"\n" + stored([line, *after]), cut=cut)
        assert (again.findings, again.broken, again.torn) == ((), None, None)
        assert again.recovered == (record,)
        assert again.head.seq == record.seq + 3


def test_a_record_that_a_recovery_describes_counts_for_nothing() -> None:
    lines = chained([decided(), started(1), ended(1)])
    report = verified(stored([*lines, recovered(lines[:2], lines[2], seq=4)]))
    assert report.broken is None
    assert report.unsettled == Unsettled(started=(1,))
    assert report.counts == {"decision": 1, "started": 1, "recovery": 1}


FALSE_RECOVERIES = {
    "no line before it": [*NINE[:4], recovered(NINE[:4], b"nothing", seq=5, line=4)],
    "another number": [*NINE[:4], b"torn", recovered(NINE[:4], b"torn", seq=9)],
    "another line": [*NINE[:4], b"torn", recovered(NINE[:4], b"torn", line=4)],
    "other bytes": [*NINE[:4], b"tron", recovered(NINE[:4], b"torn")],
    "another link": [*NINE[:4], b"torn", recovered([*NINE[:3], NINE[5]], b"torn")],
    "a part of the tear": [*NINE[:4], b"torn", b"too", recovered(NINE[:4], b"too", line=6, seq=7)],
    "a record two lines before": [*NINE[:6], recovered(NINE[:4], NINE[4], seq=7)],
}


@pytest.mark.parametrize("lines", FALSE_RECOVERIES.values(), ids=FALSE_RECOVERIES.keys())
def test_a_recovery_that_describes_no_line_is_a_failure(lines: list[bytes]) -> None:
    report = verified(stored(lines))
    assert Fault.FALSE_RECOVERY in {finding.fault for finding in report.findings}
    assert report.broken is not None


def test_only_the_end_of_the_whole_log_can_be_torn() -> None:
    report = verified(stored(NINE[:4]) + b"torn", stored(NINE[4:]))
    assert faults(report)[0] == (5, Fault.UNREADABLE)
    assert verified(stored(NINE[:4]) + b"torn", b"").broken is not None


def test_a_record_of_a_later_version_is_no_tear() -> None:
    line = NINE[4].removesuffix(b"}") + b',"later":1}'
    report = verified(stored([*NINE[:4], line]))
    assert (report.torn, report.broken, report.head.seq) == (None, None, 5)


# -- accepted breaks --------------------------------------------------------------------------------


def broken_log() -> list[bytes]:
    lines = [*NINE]
    lines[4] = lines[4].replace(b'"decision":4', b'"decision":1')
    return lines


def accepted(lines: list[bytes], **other: object) -> bytes:
    report = verified(stored(lines))
    assert report.broken is not None
    record = report.broken.accepted(seq=report.next_seq, time=NOON)
    changed = {name: getattr(record, name) for name in BreakAccepted.__annotations__} | other
    return auditlog.encode(BreakAccepted(**changed))


def test_an_accepted_break_makes_the_log_whole_and_the_chain_goes_on() -> None:
    lines = broken_log()
    line = accepted(lines)
    after = chained(calls(1, first=11), after=Head(seq=10, hash=head_of([line]).hash))
    report = verified(stored([*lines, line, *after]))
    assert (report.findings, report.broken) == ((), None)
    assert [(item.line, item.found, item.last_good) for item in report.accepted] == [(6, Fault.BROKEN_LINK, 5)]
    assert report.head.seq == 13
    assert report.unsettled == Unsettled(allowed=(4,), started=(1,))  # what stands in the broken part settles nothing


def test_what_was_accepted_cannot_change_any_more() -> None:
    lines = [*broken_log()]
    line = accepted(lines)
    for index in range(9):
        changed = [*lines]
        changed[index] = changed[index].replace(b"12:00", b"12:01")
        assert verified(stored([*changed, line])).broken is not None, index


WRONG_FIELDS: dict[str, object] = {
    "seq": 11,
    "prev": GENESIS,
    "file": "2026-11-29.jsonl",
    "line": 5,
    "last_good": 4,
    "found": Fault.OUT_OF_ORDER,
    "bytes": 1,
    "sha256": GENESIS,
}


@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS.items(), ids=WRONG_FIELDS.keys())
def test_an_accepted_break_is_checked_in_every_field(field: str, value: object) -> None:
    lines = broken_log()
    report = verified(stored([*lines, accepted(lines, **{field: value})]))
    assert report.findings[-1].fault is Fault.FALSE_ACCEPTANCE
    assert report.broken is not None


def test_a_break_in_an_older_file_can_be_accepted_in_the_latest() -> None:
    lines = broken_log()
    found = verified(stored(lines[:7]), stored(lines[7:]))
    assert found.broken is not None
    line = auditlog.encode(found.broken.accepted(seq=10, time=NOON))
    report = verified(stored(lines[:7]), stored([*lines[7:], line]))
    assert (report.findings, report.broken, report.head.seq) == ((), None, 10)


def test_nothing_to_accept_is_a_failure() -> None:
    lines = [*NINE, accepted(broken_log())]
    assert faults(verified(stored(lines))) == [(10, Fault.FALSE_ACCEPTANCE)]


def test_the_number_is_counted_and_never_read_from_a_damaged_line() -> None:
    lines = [*NINE[:4], NINE[4].replace(b'"seq":5', b'"seq":9007199254740990')]
    report = verified(stored(lines))
    assert faults(report) == [(5, Fault.OUT_OF_ORDER)]
    assert report.next_seq == 6


# -- the head ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 4, 9])
def test_a_kept_head_is_found_on_the_way(length: int) -> None:
    report = verified(stored(NINE), kept=head_of(NINE[:length]), cut=1000)
    assert (report.kept, report.broken) == (Kept.HELD, None)


def test_a_tail_that_was_cut_off_is_found() -> None:
    report = verified(stored(NINE[:7]), kept=head_of(NINE))
    assert faults(report) == [(8, Fault.MISSING_END)]
    assert report.findings[0].detail == "the log ends before the head that was kept, record 9"
    assert report.broken is not None
    line = auditlog.encode(report.broken.accepted(seq=report.next_seq, time=NOON))
    assert verified(stored([*NINE[:7], line])).broken is None
    again = verified(stored([*NINE[:7], line]), kept=head_of(NINE))
    assert again.kept is Kept.MISSING  # the head is kept anew by whoever accepts


def test_a_last_record_that_was_changed_is_found() -> None:
    lines = [*NINE[:8], NINE[8].replace(b'"size":1234', b'"size":1235')]
    assert verified(stored(lines)).broken is None  # by itself the log cannot tell
    assert faults(verified(stored(lines), kept=head_of(NINE))) == [(10, Fault.OTHER_END)]


def test_an_acknowledged_record_is_not_taken_for_a_tear() -> None:
    damaged = stored(NINE)[:-1]  # nothing but the last newline is gone
    assert verified(damaged).torn is not None
    report = verified(damaged, kept=head_of(NINE))
    assert faults(report) == [(9, Fault.UNREADABLE), (10, Fault.MISSING_END)]
    assert (report.torn, report.kept) == (None, Kept.MISSING)
    voided = stored([*NINE, recovered(NINE[:8], NINE[8], seq=10)])
    assert verified(voided).broken is None
    assert verified(voided, kept=head_of(NINE)).kept is Kept.DIFFERS


def test_a_head_before_the_place_where_a_pass_began_is_not_reached() -> None:
    verifier = Verifier(after=head_of(NINE[:4]), kept=head_of(NINE[:2]))
    verifier.begin(FILE, line=4)
    verifier.feed(stored(NINE[4:]))
    assert verifier.finish().kept is Kept.NOT_REACHED


def test_a_head_is_spelled_and_read() -> None:
    head = head_of(NINE)
    assert parse_head(str(head)) == head


@pytest.mark.parametrize("text", ["", "1", "1:", ":" + GENESIS, "-1:" + GENESIS, "1:" + "A" * 64, "٣:" + GENESIS])
def test_other_words_are_no_head(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_head(text)


def test_a9_an_argument_of_any_text_is_one_line() -> None:
    text = 'newline \n, NUL \0, quote ", \u2028, \U0001f980 ' * 1000
    (line,) = chained([decided(arguments=text)])
    assert b"\n" not in line
    report = verified(stored([line]))
    assert report.broken is None
    record = auditlog.decode(line)
    assert isinstance(record, auditlog.Decided)
    assert record.arguments == text


def test_every_event_is_read_by_its_prefix() -> None:
    makes = {"decision": decided(), "approval": answered(1), "started": started(1), "result": ended(1)}
    report = verified(stored(chained(makes.values())))
    assert report.counts == dict.fromkeys(makes, 1)
    assert set(auditlog.EVENTS) == {*makes, "recovery", "accepted_break"}


def test_a_recovery_that_lacks_its_newline_is_described_by_the_next_one() -> None:
    first = recovered(NINE[:4], b"torn")
    content = stored([*NINE[:4], b"torn"]) + first
    report = verified(content)
    assert report.torn is not None
    assert report.torn.line == 6
    assert report.torn.prev == head_of(NINE[:4]).hash
    second = auditlog.encode(report.torn.recovered(seq=report.next_seq, time=NOON))
    again = verified(content + b"\n" + second + b"\n")
    assert (again.findings, again.torn) == ((), None)
    assert [record.line for record in again.recovered] == [5, 6]
    assert again.counts["recovery"] == 1


def test_an_acceptance_that_lacks_its_newline_is_described_and_holds() -> None:
    content = stored(broken_log()) + accepted(broken_log())
    report = verified(content)
    assert report.torn is not None
    assert report.broken is None
    line = auditlog.encode(report.torn.recovered(seq=report.next_seq, time=NOON))
    assert verified(content + b"\n" + line + b"\n").broken is None


def test_a_record_without_its_newline_that_does_not_fit_is_no_tear() -> None:
    report = verified(stored(NINE[:4]) + NINE[6])
    assert faults(report) == [(5, Fault.OUT_OF_ORDER)]
