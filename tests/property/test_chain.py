"""Whatever is done to an audit log is found, and where; whatever a crash does to it is recovered (INV-6, INV-7)."""

from hypothesis import given
from hypothesis import strategies as st

from bxcore import auditlog
from bxcore.auditlog import Record
from bxcore.chain import Head, Kept, Report, Unsettled, Verifier
from bxcore.wire.admin import ApprovalEnding, Verdict
from tests.fakes import audited
from tests.fakes.audited import NOON, Make, chained, head_of, stored

FILES = ("2026-11-29.jsonl", "2026-11-30.jsonl", "2026-12-01.jsonl")


@st.composite
def makes(draw: st.DrawFn) -> Make:
    which = draw(st.integers(0, 3))
    number = draw(st.integers(1, 12))
    if which == 0:
        verdict = draw(st.sampled_from(Verdict))
        return audited.decided(verdict, arguments=draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=8)))
    if which == 1:
        return audited.answered(number, draw(st.sampled_from(ApprovalEnding)))
    return audited.started(number) if which == 2 else audited.ended(number)


LOGS = st.lists(makes(), min_size=1, max_size=12).map(chained)


def verified(*contents: bytes, kept: Head | None = None, step: int = 1_000_000) -> Report:
    verifier = Verifier(kept=kept)
    for name, content in zip(FILES, contents, strict=False):
        verifier.begin(name)
        for start in range(0, len(content), step):
            verifier.feed(content[start : start + step])
        verifier.end()
    return verifier.finish()


def days(data: st.DataObject, lines: list[bytes]) -> list[bytes]:
    """Divide a log into three files, some of them empty."""
    first, second = sorted((data.draw(st.integers(0, len(lines))), data.draw(st.integers(0, len(lines)))))
    return [stored(lines[:first]), stored(lines[first:second]), stored(lines[second:])]


def line_of(report: Report, contents: list[bytes]) -> int:
    """Return the number in the whole log of the first line that does not fit."""
    finding = report.findings[0]
    before = sum(content.count(b"\n") for content in contents[: FILES.index(finding.file)])
    return before + finding.line


@given(LOGS, st.integers(1, 700), st.data())
def test_a_log_that_nobody_touched_is_whole(lines: list[bytes], step: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(lines)))
    report = verified(*days(data, lines), kept=head_of(lines[:kept]), step=step)
    assert (report.findings, report.broken, report.torn) == ((), None, None)
    assert (report.kept, report.head) == (Kept.HELD, head_of(lines))
    assert report.records == len(lines)


@given(LOGS, st.data())
def test_any_changed_byte_is_found_in_its_line_or_by_the_next(lines: list[bytes], data: st.DataObject) -> None:
    contents = days(data, lines)
    file = data.draw(st.sampled_from([index for index, content in enumerate(contents) if content]))
    content = contents[file]
    at = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
    changed_line = sum(part.count(b"\n") for part in contents[:file]) + content[:at].count(b"\n") + 1
    contents[file] = content[:at] + bytes([byte]) + content[at + 1 :]
    report = verified(*contents, kept=head_of(lines))
    assert report.broken is not None
    # A newline made out of another byte, or into one, moves the lines behind it by one.
    assert line_of(report, contents) - changed_line in (0, 1) or report.kept is Kept.MISSING


@given(LOGS, st.data())
def test_any_line_moved_copied_or_removed_is_found(lines: list[bytes], data: st.DataObject) -> None:
    order = list(range(len(lines)))
    what = data.draw(st.sampled_from(["swap", "copy", "remove"]))
    at, other = data.draw(st.sampled_from(order)), data.draw(st.integers(0, len(order)))
    if what == "swap" and other < len(order) and other != at:
        order[at], order[other] = order[other], order[at]
    elif what == "copy":
        order.insert(other, at)
    else:
        order.remove(at)
    report = verified(stored(lines[index] for index in order), kept=head_of(lines))
    assert report.broken is not None
    first = next((index for index, number in enumerate(order) if number != index), len(order))
    assert report.findings[0].line == first + 1


@given(LOGS, LOGS, st.data())
def test_a_record_of_another_log_is_found(lines: list[bytes], others: list[bytes], data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(others).filter(lambda line: line not in lines))
    at = data.draw(st.integers(0, len(lines) - 1))
    assert verified(stored([*lines[:at], other, *lines[at + 1 :]]), kept=head_of(lines)).broken is not None
    assert verified(stored([*lines[:at], other, *lines[at:]]), kept=head_of(lines)).broken is not None


GARBAGE = st.binary(max_size=40) | st.just(b"\0" * 30)


@given(LOGS, GARBAGE, st.data())
def test_a_tear_at_any_byte_recovers_and_loses_nothing(lines: list[bytes], junk: bytes, data: st.DataObject) -> None:
    """Row A1: the last record cut anywhere, with zeros or anything else behind the cut."""
    *before, last = lines
    tail = last[: data.draw(st.integers(0, len(last)))] + junk
    content = stored(before) + tail
    report = verified(content, kept=head_of(before))
    assert report.broken is None
    if report.torn is None:
        assert report.head.seq == content.count(b"\n")  # nothing is there behind the last whole record
        return
    record = report.torn.recovered(seq=report.next_seq, time=NOON)
    line = auditlog.encode(record)
    newline = b"" if content.endswith(b"\n") else b"\n"
    more = chained([audited.decided()], after=Head(seq=record.seq, hash=head_of([line]).hash))
    again = verified(
        content + newline + stored([line, *more]), kept=head_of(before), step=data.draw(st.integers(1, 99))
    )
    assert (again.findings, again.broken, again.torn) == ((), None, None)
    assert again.recovered == (record,)


@given(LOGS, st.lists(st.tuples(st.integers(0, 11), st.binary(max_size=20)), max_size=4), st.data())
def test_whatever_was_found_can_be_accepted_once_and_is_pinned(
    lines: list[bytes], edits: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    damaged = [*lines]
    for index, junk in edits:
        damaged[index % len(lines)] = junk
    contents = days(data, damaged)
    found = verified(*contents, kept=head_of(lines))
    if found.broken is None:
        return
    newline = b"\n" if contents[2] and not contents[2].endswith(b"\n") else b""
    line = auditlog.encode(found.broken.accepted(seq=found.next_seq, time=NOON))
    contents[2] += newline + line + b"\n"
    again = verified(*contents)
    assert (again.findings, again.broken, again.torn) == ((), None, None)
    assert len(again.accepted) == 1

    # From here on these bytes are as fixed as any others, but for the last one, which nothing follows.
    whole = b"".join(contents)
    at = data.draw(st.integers(0, len(whole) - len(line) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))
    start = 0
    for index, content in enumerate(contents):
        if start <= at < start + len(content):
            contents[index] = content[: at - start] + bytes([byte]) + content[at - start + 1 :]
        start += len(content)
    assert verified(*contents, kept=head_of([line], before=found.next_seq - 1)).broken is not None


@given(st.lists(st.binary(max_size=200), max_size=3), st.integers(1, 50))
def test_any_bytes_give_a_report(contents: list[bytes], step: int) -> None:
    whole, pieces = verified(*contents), verified(*contents, step=step)
    assert whole == pieces
    assert whole.unsettled == Unsettled()
    assert whole.head.seq == 0


def test_a_record_is_what_an_encoded_one_decodes_to() -> None:
    records: list[Record] = [auditlog.decode(line) for line in chained(audited.calls(1))]
    assert [auditlog.encode(record) for record in records] == chained(audited.calls(1))
