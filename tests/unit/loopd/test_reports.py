from pathlib import Path

import attrs
import pytest

from bxcore.ids import SessionId
from bxcore.sessionrecords import CacheLoss, Record, ThinkingCap
from bxcore.settings.loopd import Sampling
from bxcore.timestamp import Timestamp
from bxcore.wire.channel import CacheRow, SessionRecord, TurnEnded, TurnEnding
from loopd import baseline, endings, toolbox
from loopd.faults import NoSession, NoTurn, SessionDamaged
from loopd.reports import Reports
from loopd.sessionlog import SessionStore
from tests.fakes.clocks import BEGIN, HandClock
from tests.fakes.faulty_files import FaultyFiles
from tests.fakes.records import NOW, call, end, result, said, start, usage, user

S = SessionId("s")
FRONT = baseline.make(sampling=Sampling(), tools=toolbox.core_schemas())
TURN: list[Record] = [user("k", "Hello,\n  you \t there"), start(1, "k"), said("Hi"), usage(), end()]


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions", files=FaultyFiles(None), clock=HandClock())


@pytest.fixture
def reports(store: SessionStore) -> Reports:
    return Reports(store)


def made(store: SessionStore, *records: Record, session: SessionId = S) -> None:
    _, _, log_file = store.create(session, FRONT, slot=0)
    log_file.append(*records)
    log_file.close()


def appended(store: SessionStore, *records: Record) -> None:
    _, _, log_file = store.open(S)
    log_file.append(*records)
    log_file.close()


def log_of(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / "s" / "0.jsonl"


# -- the list -----------------------------------------------------------------------------------------


def test_a_summary_counts_and_quotes_the_opening(store: SessionStore, reports: Reports, tmp_path: Path) -> None:
    made(store, *TURN, user("k2", "more"), start(2, "k2"), end(turn=2))
    (summary,) = reports.summaries(10)
    assert (summary.session, summary.turns, summary.records, summary.damaged) == ("s", 2, 9, False)
    assert summary.opening == "Hello, you there"
    assert (summary.started, summary.last) == (BEGIN, NOW)
    assert summary.bytes == log_of(tmp_path).stat().st_size


def test_a_long_opening_is_cut(store: SessionStore, reports: Reports) -> None:
    made(store, user("k", "word " * 100))
    (summary,) = reports.summaries(10)
    assert len(summary.opening) == 120


def test_a_session_in_which_nothing_was_said_is_listed(store: SessionStore, reports: Reports) -> None:
    made(store)
    (summary,) = reports.summaries(10)
    assert (summary.turns, summary.opening, summary.damaged) == (0, "", False)


TEARS = {
    "the only message": ([], 5),
    "a later message": (TURN, 5),
    "the first message, after one byte": ([], 1),
}


@pytest.mark.parametrize(("records", "length"), TEARS.values(), ids=TEARS.keys())
@pytest.mark.parametrize("reopened", [False, True], ids=["as the crash left it", "opened since"])
def test_s36_a_torn_line_is_no_damage(
    store: SessionStore, reports: Reports, tmp_path: Path, records: list[Record], length: int, reopened: bool
) -> None:
    made(store, *records)
    with log_of(tmp_path).open("ab") as file:
        file.write(b'{"type":"user","ti'[:length])
    if reopened:
        appended(store, user("k9", "after the crash"))
    (summary,) = reports.summaries(10)
    assert not summary.damaged
    assert summary.opening == ("Hello, you there" if records else "after the crash" if reopened else "")


def test_a_damaged_session_is_listed_as_such_beside_the_good_ones(
    store: SessionStore, reports: Reports, tmp_path: Path
) -> None:
    made(store, *TURN)
    made(store, *TURN, session=SessionId("good"))
    log_of(tmp_path).write_bytes(b"hello\n" + log_of(tmp_path).read_bytes())
    assert {summary.session: summary.damaged for summary in reports.summaries(10)} == {"s": True, "good": False}
    assert reports.count() == 2


def test_the_limit_bounds_what_is_read(store: SessionStore, reports: Reports) -> None:
    for number in range(5):
        made(store, *TURN, session=SessionId(f"s{number}"))
    assert len(list(reports.summaries(2))) == 2
    assert reports.count() == 5


# -- the lines ----------------------------------------------------------------------------------------


def joined(pieces: list[SessionRecord]) -> list[str]:
    lines, text = [], ""
    for piece in pieces:
        text += piece.text
        if not piece.more:
            lines.append(text)
            text = ""
    assert text == ""
    return lines


def test_every_stored_line_is_shown_as_it_is(store: SessionStore, reports: Reports, tmp_path: Path) -> None:
    made(store, *TURN)
    shown = list(reports.lines(S))
    assert joined(shown) == log_of(tmp_path).read_text().splitlines()
    assert [piece.line for piece in shown] == list(range(1, 7))


def test_a_line_longer_than_a_frame_comes_in_pieces(store: SessionStore, reports: Reports, tmp_path: Path) -> None:
    made(store, user("k", "\x01" * 250_000 + "🦞" * 100))
    shown = list(reports.lines(S))
    assert len(shown) > 10
    assert joined(shown) == log_of(tmp_path).read_text().splitlines()
    assert {piece.line for piece in shown} == {1, 2}


def test_damage_can_be_looked_at(store: SessionStore, reports: Reports, tmp_path: Path) -> None:
    made(store)
    with log_of(tmp_path).open("ab") as file:
        file.write(b"\n\xff\xfe not a record\ntorn")
    assert joined(list(reports.lines(S)))[1:] == ["", "\ufffd\ufffd not a record", "torn"]


def test_a_session_that_is_not_there_has_nothing_to_show(reports: Reports) -> None:
    for look in (reports.lines, reports.cache_rows):
        with pytest.raises(NoSession):
            list(look(S))
    with pytest.raises(NoSession):
        reports.ended(S, 1)


# -- the cache ----------------------------------------------------------------------------------------


def row(turn: int, step: int, *, lost: bool) -> CacheRow:
    return CacheRow(turn=turn, step=step, prompt=9, cached=4, read=5, reread=0, output=3, lost=lost)


def test_s31_the_cache_report_has_a_row_for_each_request(store: SessionStore, reports: Reports) -> None:
    """Statement 31: cached against new, for each request."""
    loss = CacheLoss(time=NOW, turn=1, step=2, expected=9, got=4)
    cap = ThinkingCap(time=NOW, turn=2, step=1, tokens=9, ended=True)
    made(store, usage(), usage(step=2), loss, usage(turn=2), cap, usage(turn=2, step=2))
    assert list(reports.cache_rows(S)) == [
        row(1, 1, lost=False),
        row(1, 2, lost=True),
        row(2, 1, lost=False),
        row(2, 2, lost=False),
    ]


def test_a_session_without_a_request_has_no_row(store: SessionStore, reports: Reports) -> None:
    made(store)
    assert list(reports.cache_rows(S)) == []


# -- a turn of the past -------------------------------------------------------------------------------


def test_a_turn_that_ended_is_told_from_its_records(store: SessionStore, reports: Reports) -> None:
    records: list[Record] = [
        user("k"),
        start(1, "k"),
        said("Let me look", calls=(call(),)),
        usage(prompt=10, cached=2, output=3),
        result("a"),
        said("Noon.", step=2),
        usage(step=2, prompt=20, cached=12, output=4),
        end(TurnEnding.LENGTH, sentence="Cut off."),
    ]
    made(store, *records, user("l"), start(2, "l"), said("Other", turn=2), end(turn=2))
    assert reports.ended(S, 1) == TurnEnded(
        turn=1,
        ending=TurnEnding.LENGTH,
        text="Noon.",
        sentence="Cut off.",
        steps=2,
        prompt=30,
        cached=14,
        read=16,
        output=7,
        elapsed_ms=0,
    )
    assert reports.ended(S, 2).text == "Other"


def test_the_time_between_two_records_is_never_negative(store: SessionStore, reports: Reports) -> None:
    """The owner may set the clock back in the middle of a turn."""
    made(store, user("k"), start(1, "k"), attrs.evolve(end(), time=Timestamp(5)))
    assert reports.ended(S, 1).elapsed_ms == 0


def test_a_turn_that_was_killed_and_not_completed_yet_is_told_as_interrupted(
    store: SessionStore, reports: Reports
) -> None:
    made(store, user("k"), start(1, "k"), said("half"))
    ended = reports.ended(S, 1)
    assert (ended.ending, ended.text) == (TurnEnding.INTERRUPTED, "half")
    assert ended.sentence == endings.sentence(TurnEnding.INTERRUPTED)


@pytest.mark.parametrize("turn", [0, -1, 2, 2**53 - 1])
def test_a_turn_that_never_was_is_refused(store: SessionStore, reports: Reports, turn: int) -> None:
    made(store, *TURN)
    with pytest.raises(NoTurn):
        reports.ended(S, turn)


def test_a_damaged_session_tells_no_turn(store: SessionStore, reports: Reports, tmp_path: Path) -> None:
    made(store, *TURN)
    log_of(tmp_path).write_bytes(log_of(tmp_path).read_bytes().replace(b'"turn":1', b'"turn":x', 1))
    with pytest.raises(SessionDamaged):
        reports.ended(S, 1)
