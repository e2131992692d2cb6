"""A call moves as the table says and in no other way, and the page shows that table."""

import itertools
from pathlib import Path

import pytest

from brokerd import callstate
from brokerd.callstate import MOVES, CallEvent, CallState, IllegalMove, Progress
from bxcore.auditlog import Answered, BreakAccepted, Decided, Ended, Fault, Record, RunEnding, Started
from bxcore.ids import CallId, Hash32, SessionId
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import ApprovalEnding, Verdict
from bxcore.wire.tools import DataClass
from tests.fakes import callstory

PAGE = Path(__file__).parents[3] / "docs" / "authority.md"
S, E = CallState, CallEvent
HASH = Hash32("0" * 64)
SEQ, TIME = 7, Timestamp(0)

WAYS = {
    "denied": ([E.DENY], S.DENIED),
    "granted and run": ([E.ALLOW, E.START, E.END], S.ENDED),
    "granted and not started": ([E.ALLOW, E.END], S.ENDED),
    "asked and run": ([E.ASK, E.APPROVE, E.START, E.END], S.ENDED),
    "asked and refused": ([E.ASK, E.REFUSE], S.REFUSED),
    "asked and forgotten": ([E.ASK, E.EXPIRE], S.EXPIRED),
    "asked and withdrawn": ([E.ASK, E.WITHDRAW], S.VOID),
    "lost while it ran": ([E.ALLOW, E.START, E.LOSE], S.UNKNOWN),
}


@pytest.mark.parametrize(("events", "end"), WAYS.values(), ids=WAYS.keys())
def test_each_way_of_a_call_is_in_the_table(events: list[CallEvent], end: CallState) -> None:
    progress = Progress()
    for event in events:
        progress.move(event)
    assert progress.state is end
    assert callstate.last(end)


def test_the_ways_use_every_state_and_every_move() -> None:
    used = set()
    for events, _ in WAYS.values():
        progress = Progress()
        for event in events:
            used.add((progress.state, event))
            progress.move(event)
    assert used == set(MOVES)
    assert {before for before, _ in MOVES} | set(MOVES.values()) == set(S)


@pytest.mark.parametrize(
    ("before", "event"), [pair for pair in itertools.product(S, E) if pair not in MOVES], ids=lambda it: it.value
)
def test_every_other_move_is_refused_and_changes_nothing(before: CallState, event: CallEvent) -> None:
    """Neighbour 40: nothing leads back from started, ended or unknown."""
    progress = Progress(before)
    with pytest.raises(IllegalMove):
        progress.move(event)
    assert progress.state is before


def test_nothing_has_an_effect_without_having_been_approved() -> None:
    """INV-2: every way into STARTED leads through APPROVED, and into APPROVED through a decision."""
    assert [before for (before, _), after in MOVES.items() if after is S.STARTED] == [S.APPROVED]
    assert {(before, event) for (before, event), after in MOVES.items() if after is S.APPROVED} == {
        (S.RECEIVED, E.ALLOW),
        (S.ASKED, E.APPROVE),
    }


def decided(verdict: Verdict) -> Decided:
    return Decided(
        seq=SEQ,
        time=TIME,
        prev=HASH,
        session=SessionId("s"),
        call=CallId(1),
        tool="read_file",
        arguments="{}",
        canonical=None,
        path=None,
        host=None,
        taint=DataClass.PRIVATE,
        untrusted=False,
        verdict=verdict,
        grant=None,
        grant_hash=None,
        grants=None,
        reason=None,
        detail=None,
    )


def answered(ending: ApprovalEnding) -> Answered:
    return Answered(
        seq=SEQ,
        time=TIME,
        prev=HASH,
        decision=1,
        ending=ending,
        approver=None,
        post=None,
        reason=None,
        grant=None,
        grant_hash=None,
        taint=DataClass.PRIVATE,
        untrusted=False,
    )


def ended(ending: RunEnding) -> Ended:
    return Ended(
        seq=SEQ,
        time=TIME,
        prev=HASH,
        decision=1,
        session=SessionId("s"),
        ending=ending,
        exit=None,
        size=0,
        sha256=HASH,
        truncated=False,
        data_class=DataClass.PRIVATE,
        untrusted=False,
        taint_after=DataClass.PRIVATE,
        untrusted_after=False,
    )


STARTED = Started(seq=SEQ, time=TIME, prev=HASH, decision=1, image="i", plan=HASH)

RECORDS = {
    "denied": (decided(Verdict.DENIED), E.DENY),
    "ask": (decided(Verdict.ASK), E.ASK),
    "allowed": (decided(Verdict.ALLOWED), E.ALLOW),
    "approved": (answered(ApprovalEnding.APPROVED), E.APPROVE),
    "refused": (answered(ApprovalEnding.REFUSED), E.REFUSE),
    "denied_now": (answered(ApprovalEnding.DENIED_NOW), E.REFUSE),
    "changed": (answered(ApprovalEnding.CHANGED), E.REFUSE),
    "expired": (answered(ApprovalEnding.EXPIRED), E.EXPIRE),
    "void": (answered(ApprovalEnding.VOID), E.WITHDRAW),
    "started": (STARTED, E.START),
    "done": (ended(RunEnding.DONE), E.END),
    "tool_error": (ended(RunEnding.TOOL_ERROR), E.END),
    "failed": (ended(RunEnding.FAILED), E.END),
    "unknown": (ended(RunEnding.UNKNOWN), E.LOSE),
}


@pytest.mark.parametrize(("record", "event"), RECORDS.values(), ids=RECORDS.keys())
def test_the_log_tells_each_move(record: Record, event: CallEvent) -> None:
    assert callstate.event_of(record) is event


def test_every_verdict_and_every_ending_has_its_move() -> None:
    for verdict in Verdict:
        assert callstate.event_of(decided(verdict)) is not None
    for ending in set(ApprovalEnding) - {ApprovalEnding.NOT_PENDING}:  # never written: nothing ended
        assert callstate.event_of(answered(ending)) is not None
    for run in RunEnding:
        assert callstate.event_of(ended(run)) is not None


def test_a_log_that_tells_an_impossible_story_is_refused() -> None:
    assert callstory.state_after([decided(Verdict.ALLOWED), STARTED]) is S.STARTED
    stories: list[list[Record]] = [
        [STARTED],
        [decided(Verdict.ASK), STARTED],
        [decided(Verdict.DENIED), ended(RunEnding.DONE)],
    ]
    for story in stories:
        with pytest.raises(IllegalMove):
            callstory.state_after(story)


def test_a_record_about_no_call_is_no_move() -> None:
    accepted = BreakAccepted(
        seq=SEQ, time=TIME, prev=HASH, file="f", line=1, last_good=1, found=next(iter(Fault)), bytes=0, sha256=HASH
    )
    assert callstate.event_of(accepted) is None
    with pytest.raises(IllegalMove):
        Progress().recorded(accepted)


def test_the_page_shows_the_table() -> None:
    assert f"```\n{callstate.drawn()}\n```" in PAGE.read_text(encoding="utf-8")
