"""The one writer of the audit log: what it writes, when, and who else may (rows A5, A7 to A10; INV-7)."""

import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from brokerd.audit import AuditBroken, AuditExposed, AuditUnavailable
from bxcore import auditlog
from bxcore.auditlog import Record, Recovered
from bxcore.chain import MAX_LINE, START, Unsettled
from bxcore.errors import StateError
from bxcore.files import DiskFiles, StateInUse
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp, from_text
from bxcore.wire.admin import ApprovalEnding, Verdict
from tests.fakes import audited
from tests.fakes.audited import answered, chained, decided, ended, head_of, started
from tests.fakes.auditplace import DAY_MS, FIRST, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- writing --------------------------------------------------------------------------------------


def test_a_record_is_on_disk_when_append_returns(place: Place) -> None:
    with place.opened() as log:
        assert log.head == START
        first = log.append(decided())
        assert place.content() == auditlog.encode(first) + b"\n"
        second = log.append(decided(Verdict.DENIED))
        assert (first.seq, second.seq) == (1, 2)
        assert second.prev == sha256(auditlog.encode(first)).hexdigest()
        assert log.head == place.kept() == head_of([auditlog.encode(first), auditlog.encode(second)])
        assert list(log.records()) == [first, second]
    place.assert_whole()


def test_what_is_on_record_is_found_while_another_record_is_being_written(place: Place) -> None:
    """Nobody who looks waits for the disk, nor makes a call wait: the lock is the writer's alone."""
    with place.opened() as log:
        first = log.append(decided())
        with log._lock:
            assert log.find(1) == first
            assert log.find(2) is None
            assert log.head.seq == 1
            assert list(log.records()) == [first]


def test_the_log_goes_on_after_a_restart(place: Place) -> None:
    place.write(2)
    place.write(2)
    assert place.report().head.seq == 4
    place.assert_whole()
    assert place.files() == [FIRST]


def test_a_record_that_is_not_the_next_one_is_refused_and_nothing_is_written(place: Place) -> None:
    with place.opened() as log:
        for make in (
            lambda seq, time, prev: decided()(seq + 1, time, prev),
            lambda seq, time, prev: decided()(seq, Timestamp(time + 1), prev),
            lambda seq, time, prev: decided()(seq, time, audited.SOME),
            lambda seq, time, prev: Recovered(
                seq=seq, time=time, prev=prev, file=FIRST, line=1, bytes=0, sha256=audited.SOME
            ),
        ):
            with pytest.raises(ValueError, match="record"):
                log.append(make)
        assert place.content() == b""
        log.append(decided())
    place.assert_whole()


def test_a9_a_record_longer_than_a_line_may_be_is_refused_and_the_log_goes_on(place: Place) -> None:
    with place.opened() as log:
        with pytest.raises(ValueError, match="longer than"):
            log.append(decided(arguments="x" * MAX_LINE))
        assert not log.broken
        log.append(decided(arguments="x" * (MAX_LINE - 2_000)))
    place.assert_whole()


def test_what_make_raises_is_passed_on_and_harmless(place: Place) -> None:
    def make(*_: object) -> Record:
        raise LookupError

    with place.opened() as log:
        with pytest.raises(LookupError):
            log.append(make)
        log.append(decided())
    place.assert_whole()


def test_a_log_that_was_closed_takes_nothing(place: Place) -> None:
    log = place.open()
    log.close()
    log.close()
    with pytest.raises(AuditUnavailable):
        log.append(decided())


def test_records_are_found_by_number(place: Place) -> None:
    with place.opened() as log:
        records = [log.append(decided()) for _ in range(3)]
        place.clock.wind(DAY_MS)
        records += [log.append(decided()) for _ in range(3)]
        assert [log.find(seq) for seq in range(1, 7)] == records
        assert [log.find(seq) for seq in (0, -1, 7, 10**9)] == [None] * 4
    with place.opened() as log:
        assert [log.find(seq) for seq in range(1, 7)] == records
        for after in range(8):
            assert list(log.records(after=after)) == records[after:]


def test_a_torn_line_is_no_record(place: Place) -> None:
    place.write(2)
    whole_but_its_newline = chained([decided()], after=place.report().head)[0]
    (place.audit / FIRST).write_bytes(place.content() + whole_but_its_newline)
    with place.opened() as log:
        assert log.find(3) is None
        assert isinstance(log.find(4), Recovered)
        assert [record.seq for record in log.records()] == [1, 2, 4]


# -- what a start must know ---------------------------------------------------------------------------


def test_calls_that_have_no_end_are_known_at_the_start(place: Place) -> None:
    with place.opened() as log:
        for make in (
            decided(Verdict.ASK),
            decided(),
            started(2),
            decided(),
            *(decided(Verdict.ASK), answered(5, ApprovalEnding.REFUSED)),
            *(decided(), started(7), ended(7)),
        ):
            log.append(make)
        place.clock.wind(DAY_MS)
        log.append(decided(Verdict.ASK))
    with place.opened() as log:
        assert log.unsettled == Unsettled(asked=(1, 10), allowed=(4,), started=(2,))
        assert [record.seq for record in log.open_questions()] == [1, 10]
        assert [record.seq for record in log.not_started()] == [4]
        assert [record.seq for record in log.unfinished()] == [2]
        log.append(answered(1, ApprovalEnding.VOID))
        assert [record.seq for record in log.open_questions()] == [10]
    # The first day is sealed now, and its records are not looked at again.
    with place.opened() as log:
        assert log.unsettled == Unsettled(asked=(10,), allowed=(4,), started=(2,))


# -- days ---------------------------------------------------------------------------------------------


def test_a7_each_day_has_its_file_and_a_clock_that_goes_back_does_not(place: Place) -> None:
    with place.opened() as log:
        for wind in (0, DAY_MS, -DAY_MS, 2 * DAY_MS, -3 * DAY_MS, 0):
            place.clock.set_wall(wind)
            log.append(decided())
    assert place.files() == [FIRST, "2026-01-02.jsonl", "2026-01-03.jsonl"]
    assert [place.content(name).count(b"\n") for name in place.files()] == [1, 2, 3]
    place.assert_whole()


def test_a7_forward_a_year_and_back_over_a_restart(place: Place) -> None:
    place.clock.set_wall(365 * DAY_MS)
    place.write(1)
    place.clock.set_wall(-365 * DAY_MS)
    place.write(1)
    assert place.files() == ["2027-01-01.jsonl"]
    place.assert_whole()


EDGES = {
    "the end of a month": ("2026-02-28T23:59:59.999Z", "2026-02-28.jsonl", "2026-03-01.jsonl"),
    "a leap day": ("2028-02-28T23:59:59.999Z", "2028-02-28.jsonl", "2028-02-29.jsonl"),
    "the end of a year": ("2026-12-31T23:59:59.999Z", "2026-12-31.jsonl", "2027-01-01.jsonl"),
    "a leap second": ("2016-12-31T23:59:59.999Z", "2016-12-31.jsonl", "2017-01-01.jsonl"),
}


@pytest.mark.parametrize(("time", "before", "after"), EDGES.values(), ids=EDGES.keys())
def test_a7_one_millisecond_turns_the_page(place: Place, time: str, before: str, after: str) -> None:
    place.clock.set_wall(from_text(time) - place.clock.now_ms())
    with place.opened() as log:
        log.append(decided())
        place.clock.wind(1)
        log.append(decided())
    assert place.files() == [before, after]
    place.assert_whole()


def test_a7_the_last_day_of_all_has_a_file(place: Place) -> None:
    place.clock.set_wall(MAX_TIMESTAMP - place.clock.now_ms())
    place.write(1)
    assert place.files() == ["9999-12-31.jsonl"]


def test_a8_a_call_over_midnight_is_one_call(place: Place) -> None:
    with place.opened() as log:
        log.append(decided())
        log.append(started(1))
        place.clock.wind(DAY_MS)
        log.append(ended(1))
        assert log.unsettled == Unsettled()
    place.assert_whole()


def test_a_file_of_tomorrow_that_is_not_ours_is_not_written_to(place: Place) -> None:
    with place.opened() as log:
        log.append(decided())
        (place.audit / "2026-01-02.jsonl").write_bytes(b"")
        place.clock.wind(DAY_MS)
        with pytest.raises(AuditUnavailable, match="not by our hand"):
            log.append(decided())
        assert log.broken


# -- two writers ----------------------------------------------------------------------------------------


def test_a5_a_second_brokerd_is_refused_whatever_was_deleted(place: Place) -> None:
    with place.opened() as log:
        log.append(decided())
        with pytest.raises(StateInUse):
            place.open()
        (place.audit / FIRST).unlink()
        with pytest.raises(StateInUse):
            place.open()


def test_a5_the_file_itself_is_locked_too(place: Place) -> None:
    place.write()
    with place.opened(), pytest.raises(StateInUse):
        DiskFiles().open_append(place.audit / FIRST)


def test_a_log_that_could_not_be_opened_is_locked_no_more(place: Place) -> None:
    place.write()
    place.change(b"read_file", b"tead_file")
    for _ in range(2):
        with pytest.raises(AuditBroken):
            place.open()


# -- who may read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o710, 0o770])
def test_a10_a_directory_that_is_open_to_others_is_refused(place: Place, mode: int) -> None:
    place.write()
    place.audit.chmod(mode)
    with pytest.raises(AuditExposed, match="open to others"):
        place.open()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a10_a_file_that_is_open_to_others_is_refused(place: Place, mode: int) -> None:
    place.write()
    (place.audit / FIRST).chmod(mode)
    with pytest.raises(AuditExposed, match="open to others"):
        place.open()


def test_a10_links_and_other_things_in_its_place_are_refused(place: Place, tmp_path: Path) -> None:
    place.write()
    shutil.move(place.audit, tmp_path / "elsewhere")
    place.audit.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError):
        place.open()
    place.audit.unlink()
    place.audit.mkdir(mode=0o700)
    (place.audit / FIRST).symlink_to(tmp_path / "elsewhere" / FIRST)
    with pytest.raises(AuditExposed, match="expected a file"):
        place.open()
