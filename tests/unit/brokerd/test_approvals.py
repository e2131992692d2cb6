"""A question is answered once, by exactly one, for exactly what was shown, and decided again at that moment."""

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerd.approvaltext import block
from brokerd.call import Labels
from brokerd.couriers import Couriers, LocalCourier
from brokerd.faults import NoApproval
from brokerd.runnerfaults import ImageMissing
from bxcore.auditlog import Answered, Decided
from bxcore.errors import ConfigError, StateError
from bxcore.ids import Hash32, SessionId
from bxcore.settings.brokerd import Approvals
from bxcore.timestamp import DAY_MS
from bxcore.wire.admin import ApprovalAnswer, ApprovalEnding, ApprovalOutcome
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolPending, ToolResult
from tests.fakes.brokered import Brokered, grant_text
from tests.fakes.clocks import HandClock

S = SessionId("s")
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def brokered(tmp_path: Path, clock: HandClock) -> Iterator[Brokered]:
    made = Brokered(tmp_path, clock=clock)
    made.grant("g", mode="ask")
    yield made
    made.close()


def fingerprint(brokered: Brokered, pending: ToolPending) -> Hash32:
    return brokered.approvals.question(pending.approval).call.fingerprint


def yes(brokered: Brokered, pending: ToolPending, named: Hash32 | None = None) -> ApprovalOutcome:
    answer = ApprovalAnswer(
        id=pending.approval, approve=True, canonical=named or fingerprint(brokered, pending), reason=None
    )
    return brokered.approvals.answer(answer, approver="bxctl")


def no(brokered: Brokered, pending: ToolPending, reason: str | None = None) -> ApprovalOutcome:
    answer = ApprovalAnswer(id=pending.approval, approve=False, canonical=None, reason=reason)
    return brokered.approvals.answer(answer, approver="bxctl")


def answered(brokered: Brokered) -> Answered:
    return [record for record in brokered.records() if isinstance(record, Answered)][-1]


def denied(answer: object) -> tuple[DenyReason, str | None]:
    assert isinstance(answer, ToolDenied)
    return answer.reason, answer.detail


# -- yes and no ---------------------------------------------------------------------------------


def test_the_number_of_a_question_is_that_of_its_decision(brokered: Brokered) -> None:
    with brokered.asking() as asking:
        pending = asking.pending()
        decided = brokered.records()[-1]
        assert isinstance(decided, Decided)
        assert pending.approval == decided.seq
        assert pending.expires == decided.time + HOUR_MS
        assert decided.canonical == fingerprint(brokered, pending)


def test_a_yes_runs_and_says_who_gave_it(brokered: Brokered) -> None:
    with brokered.asking() as asking:
        assert yes(brokered, asking.pending()).ending is ApprovalEnding.APPROVED
        assert isinstance(asking.answer(), ToolResult)
    record = answered(brokered)
    assert (record.ending, record.approver, record.grant) == (ApprovalEnding.APPROVED, "bxctl", "g")
    assert record.grant_hash == brokered.files.current().grants[0].hash


def test_a_no_is_told_to_the_model_with_the_owners_words_on_one_line(brokered: Brokered) -> None:
    with brokered.asking() as asking:
        assert no(brokered, asking.pending(), "not on\n a  Sunday" + "!" * 500).ending is ApprovalEnding.REFUSED
        reason, detail = denied(asking.answer())
    assert reason is DenyReason.APPROVAL_REFUSED
    assert detail is not None
    assert detail.startswith("not on a Sunday!!!")
    assert len(detail) == 300
    assert answered(brokered).reason == detail
    assert brokered.containers.ran == []


def test_a_yes_is_used_once_and_stored_nowhere(brokered: Brokered) -> None:
    """G8, neighbour 2: the same call a second time asks again, and so does the same call of another session."""
    with brokered.asking() as asking:
        first = asking.pending()
        named = fingerprint(brokered, first)
        yes(brokered, first)
        asking.answer()
    assert yes(brokered, first, named).ending is ApprovalEnding.NOT_PENDING
    with brokered.asking() as again, brokered.asking(brokered.request(session="t")) as other:
        assert again.pending().approval != first.approval
        assert fingerprint(brokered, again.pending()) == named
        assert fingerprint(brokered, other.pending()) != named
    assert len(brokered.containers.ran) == 1


def many_rounds(brokered: Brokered) -> None:
    brokered.approvals._table._limits = Approvals(per_minute=10_000)
    brokered.containers.on_disk = list  # nobody reads the whole log at each run


def test_of_two_who_answer_exactly_one_counts(brokered: Brokered) -> None:
    """Two who say yes at once, a thousand rounds: one run each."""
    many_rounds(brokered)
    outcomes: list[ApprovalEnding] = []
    rounds = 1000
    for _ in range(rounds):
        with brokered.asking() as asking:
            pending = asking.pending()
            named, together = fingerprint(brokered, pending), threading.Barrier(2)

            def answer(
                pending: ToolPending = pending, named: Hash32 = named, together: threading.Barrier = together
            ) -> None:
                together.wait()
                outcomes.append(yes(brokered, pending, named).ending)

            threads = [threading.Thread(target=answer) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert isinstance(asking.answer(), ToolResult)
    assert outcomes.count(ApprovalEnding.APPROVED) == outcomes.count(ApprovalEnding.NOT_PENDING) == rounds
    assert len(brokered.containers.ran) == rounds


@pytest.mark.parametrize("late", ["leaves", "expires"])
def test_a_yes_and_an_end_at_the_same_moment_are_one_of_them(brokered: Brokered, clock: HandClock, late: str) -> None:
    many_rounds(brokered)
    endings: dict[int, ApprovalEnding] = {}
    for _ in range(200):
        with brokered.asking() as asking:
            pending = asking.pending()
            named = fingerprint(brokered, pending)
            asking.peer.gone.set() if late == "leaves" else clock.wind(HOUR_MS)
            ending, answer = yes(brokered, pending, named).ending, asking.answer()
        endings[pending.approval] = ending
        assert isinstance(answer, ToolDenied)
    ended = [record for record in brokered.records() if isinstance(record, Answered)]
    assert [record.decision for record in ended] == list(endings)
    assert all(endings[record.decision] in {ApprovalEnding.NOT_PENDING, record.ending} for record in ended)
    assert brokered.approvals.questions() == []


# -- what a yes must name -----------------------------------------------------------------------


def test_a_yes_to_another_call_answers_nothing(brokered: Brokered) -> None:
    """G8: one byte changed; and a yes that names nothing."""
    other = Hash32("ab" * 32)
    with brokered.asking() as asking:
        pending = asking.pending()
        for named in (other, None):
            answer = ApprovalAnswer(id=pending.approval, approve=True, canonical=named, reason=None)
            assert brokered.approvals.answer(answer, approver="bxctl").ending is ApprovalEnding.NOT_PENDING
        wrong_no = ApprovalAnswer(id=pending.approval, approve=False, canonical=other, reason=None)
        assert brokered.approvals.answer(wrong_no, approver="bxctl").ending is ApprovalEnding.NOT_PENDING
        assert [question.id for question in brokered.approvals.questions()] == [pending.approval]
        assert yes(brokered, pending).ending is ApprovalEnding.APPROVED


def test_a_number_that_was_never_asked_is_not_pending(brokered: Brokered) -> None:
    assert yes(brokered, ToolPending(approval=7, expires=brokered.clock.now_ms()), Hash32("0" * 64)).ending is (
        ApprovalEnding.NOT_PENDING
    )
    with pytest.raises(NoApproval):
        brokered.approvals.question(7)


# -- decided again ------------------------------------------------------------------------------

Change = Callable[[Brokered], Any]


def rises(session: DataClass, *, untrusted: bool = True) -> Change:
    def change(brokered: Brokered) -> None:
        with brokered.ledger.held() as book:
            book.raise_to(S, Labels(data_class=session, untrusted=untrusted))

    return change


def replaced(**keys: str) -> Change:
    return lambda brokered: brokered.grant("g", **keys)


DENIED_NOW: dict[str, tuple[Change, DenyReason]] = {
    "removed": (lambda brokered: (brokered.grants / "g.toml").unlink(), DenyReason.NO_GRANT),
    "narrowed": (replaced(mode="ask", paths='["/data/b"]'), DenyReason.NO_GRANT),
    "turned into a no": (replaced(mode="deny", max_taint="secret"), DenyReason.DENIED_BY_GRANT),
    "another says no": (
        lambda brokered: brokered.grant("no", mode="deny", max_taint="secret"),
        DenyReason.DENIED_BY_GRANT,
    ),
    "another file is bad": (lambda brokered: brokered.grant("bad", mode="maybe"), DenyReason.GRANTS_INVALID),
    "expired": (replaced(mode="ask", more="expires = 2025-12-31T00:00:00Z"), DenyReason.GRANT_EXPIRED),
    "taint has risen": (rises(DataClass.SECRET), DenyReason.TAINT_TOO_HIGH),
    "state unreadable": (
        lambda brokered: (brokered.state / "sessions" / "s.json").write_text("{}"),
        DenyReason.STATE_UNREADABLE,
    ),
    "image gone": (
        lambda brokered: setattr(brokered.containers, "unfit", ImageMissing("gone")),
        DenyReason.RUNNER_UNAVAILABLE,
    ),
}


@pytest.mark.parametrize(("change", "reason"), DENIED_NOW.values(), ids=DENIED_NOW.keys())
def test_a_yes_is_decided_again_by_what_holds_now(brokered: Brokered, change: Change, reason: DenyReason) -> None:
    """G6: an approval does not survive what has become stricter meanwhile."""
    with brokered.asking() as asking:
        pending = asking.pending()
        change(brokered)
        outcome = yes(brokered, pending)
        assert outcome.ending is ApprovalEnding.DENIED_NOW
        assert outcome.detail.startswith(reason.value)
        assert denied(asking.answer())[0] is reason
    assert answered(brokered).ending is ApprovalEnding.DENIED_NOW
    assert brokered.containers.ran == []


CHANGED: dict[str, Change] = {
    "image": lambda brokered: setattr(brokered.containers, "image", "3c" * 32),
    "limits": lambda brokered: setattr(brokered.containers, "limits", ("20 s",)),
    "session": rises(DataClass.PRIVATE),
    "result": replaced(mode="ask", more='result_class = "secret"'),
    "result through another grant": lambda brokered: brokered.grant("more", more='result_class = "secret"'),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_a_yes_to_other_terms_than_were_shown_runs_nothing(brokered: Brokered, change: Change) -> None:
    """INV-8."""
    with brokered.asking() as asking:
        pending = asking.pending()
        change(brokered)
        outcome = yes(brokered, pending)
        assert outcome.ending is ApprovalEnding.CHANGED
        assert denied(asking.answer())[0] is DenyReason.APPROVAL_REFUSED
    assert answered(brokered).ending is ApprovalEnding.CHANGED
    assert brokered.containers.ran == []


def test_a_link_that_leads_elsewhere_meanwhile_runs_nothing(brokered: Brokered, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    brokered.grant("g", mode="ask", paths=f'["{tmp_path}"]')
    with brokered.asking(brokered.request(path=str(link))) as asking:
        pending = asking.pending()
        assert brokered.approvals.question(pending.approval).call.path == str(tmp_path / "a")
        link.unlink()
        link.symlink_to(tmp_path / "b")
        assert yes(brokered, pending).ending is ApprovalEnding.CHANGED
    assert brokered.containers.ran == []


STILL_RUNS: dict[str, Change] = {
    "widened": replaced(mode="ask", paths='["/data", "/more"]'),
    "turned into a yes": replaced(mode="auto"),
    "another came": lambda brokered: brokered.grant("other", tool="list_directory"),
    "a comment": lambda brokered: brokered.grant("g", text="# for the boat\n" + grant_text(mode="ask")),
}


@pytest.mark.parametrize("change", STILL_RUNS.values(), ids=STILL_RUNS.keys())
def test_a_yes_holds_where_nothing_of_it_has_changed(brokered: Brokered, change: Change) -> None:
    with brokered.asking() as asking:
        pending = asking.pending()
        change(brokered)
        assert yes(brokered, pending).ending is ApprovalEnding.APPROVED
        assert isinstance(asking.answer(), ToolResult)
    assert answered(brokered).grant_hash == brokered.files.current().by_tool["read_file"][0].hash


def test_a_grant_that_is_replaced_again_and_again_while_the_owner_answers(brokered: Brokered) -> None:
    """A thousand rounds: what runs was allowed by a whole file that said so, and nothing runs half decided."""
    many_rounds(brokered)
    texts = [grant_text(mode="ask"), grant_text(mode="ask", paths='["/other"]')]
    done = threading.Event()

    def replace() -> None:
        for number in itertools.count():
            brokered.grant("g", text=texts[number % 2])
            if done.wait(0.002):
                return

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(1000):
            before = len(brokered.containers.ran)
            with brokered.asking() as asking:
                while not asking.peer.asked.wait(0.001) and asking._thread.is_alive():
                    pass
                if not asking.peer.told:
                    assert denied(asking.answer())[0] in {DenyReason.NO_GRANT, DenyReason.GRANTS_INVALID}
                    continue
                ending = yes(brokered, asking.peer.told[0]).ending
                asking.answer()
            assert ending in {ApprovalEnding.APPROVED, ApprovalEnding.DENIED_NOW}
            assert len(brokered.containers.ran) == before + (ending is ApprovalEnding.APPROVED)
    finally:
        done.set()
        writer.join()
    assert brokered.audit.unsettled.asked == ()


def test_an_exception_at_a_yes_is_a_denial(brokered: Brokered, monkeypatch: pytest.MonkeyPatch) -> None:
    with brokered.asking() as asking:
        pending = asking.pending()
        monkeypatch.setattr(brokered.approvals, "_now", lambda: 1 // 0)
        assert yes(brokered, pending).ending is ApprovalEnding.DENIED_NOW
        assert denied(asking.answer())[0] is DenyReason.APPROVAL_REFUSED
    assert brokered.containers.ran == []


@pytest.mark.parametrize("approve", [True, False])
def test_an_answer_that_cannot_be_recorded_runs_nothing_and_is_an_error(brokered: Brokered, approve: bool) -> None:
    """INV-3: a refusal that is not on disk is not called one."""
    with brokered.asking() as asking:
        pending = asking.pending()
        named = fingerprint(brokered, pending)
        brokered.audit._give_up()
        with pytest.raises(StateError) as caught:
            yes(brokered, pending, named) if approve else no(brokered, pending)
        assert caught.value.code == "audit_unavailable"
        assert denied(asking.answer())[0] is DenyReason.AUDIT_UNAVAILABLE
    assert brokered.containers.ran == []


# -- time ---------------------------------------------------------------------------------------


def test_nobody_answers_in_time(brokered: Brokered, clock: HandClock) -> None:
    """G15, neighbour 11: the model is told once, and a yes afterwards is no yes."""
    with brokered.asking() as asking:
        pending = asking.pending()
        named = fingerprint(brokered, pending)
        clock.wind(HOUR_MS)
        assert denied(asking.answer()) == (DenyReason.APPROVAL_EXPIRED, None)
        assert len(asking.peer.told) == 1
    assert answered(brokered).ending is ApprovalEnding.EXPIRED
    assert yes(brokered, pending, named).ending is ApprovalEnding.NOT_PENDING


def test_a_yes_a_second_after_the_end_is_refused_also_where_nobody_has_looked_yet(tmp_path: Path) -> None:
    clock = HandClock()
    brokered = Brokered(tmp_path, clock=clock, look_ms=60_000)
    brokered.grant("g", mode="ask")
    with brokered.asking() as asking:
        pending = asking.pending()
        clock.wind(HOUR_MS + 1_000)
        assert yes(brokered, pending).ending is ApprovalEnding.EXPIRED
        assert denied(asking.answer())[0] is DenyReason.APPROVAL_EXPIRED
    brokered.close()


def test_the_wall_clock_neither_ends_nor_lengthens_a_question(brokered: Brokered, clock: HandClock) -> None:
    """G3: an NTP step during an open question."""
    with brokered.asking() as asking:
        pending = asking.pending()
        clock.set_wall(365 * DAY_MS)
        clock.set_wall(-400 * DAY_MS)
        assert not asking.peer.gone.wait(0.05)
        assert [question.id for question in brokered.approvals.questions()] == [pending.approval]
        clock.wind(HOUR_MS)
        assert denied(asking.answer())[0] is DenyReason.APPROVAL_EXPIRED


def test_no_question_stays_open_beyond_a_day() -> None:
    with pytest.raises((ValueError, ConfigError)):
        Approvals(ttl_ms=DAY_MS + 1)


# -- how much may be asked ----------------------------------------------------------------------


def test_too_many_open_questions_are_a_recorded_refusal(tmp_path: Path) -> None:
    """G14."""
    brokered = Brokered(tmp_path, limits=Approvals(open=1))
    brokered.grant("g", mode="ask")
    with brokered.asking() as asking:
        asking.pending()
        assert denied(brokered.ask()) == (DenyReason.APPROVAL_REFUSED, "too many questions are open")
        decided = brokered.records()[-1]
        assert isinstance(decided, Decided)
        assert decided.reason is DenyReason.APPROVAL_REFUSED
    brokered.close()


def test_a_refused_call_is_not_asked_about_again(brokered: Brokered) -> None:
    """G14: the identical repeat is answered from the denial; another call, or another session, asks."""
    with brokered.asking() as asking:
        no(brokered, asking.pending())
    assert denied(brokered.ask()) == (DenyReason.APPROVAL_REFUSED, "the owner refused this very call before")
    with (
        brokered.asking(brokered.request(path="/data/b")) as other,
        brokered.asking(brokered.request(session="t")) as t,
    ):
        other.pending()
        t.pending()


class Sound:
    broken = False


def test_a_place_is_given_back_where_the_decision_cannot_be_recorded(
    brokered: Brokered, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokered.audit._give_up()
    monkeypatch.setattr(brokered.ledger, "_audit", Sound())  # so that only the append fails
    assert denied(brokered.ask())[0] is DenyReason.AUDIT_UNAVAILABLE
    assert brokered.approvals._table._places == 0


# -- showing and carrying -----------------------------------------------------------------------


def test_the_block_shows_the_terms_of_the_question(brokered: Brokered) -> None:
    with brokered.asking(brokered.request(path="/data/notes.md")) as asking:
        text = block(brokered.approvals.question(asking.pending().approval))
    for words in ('"/data/notes.md", read only', '"g", which asks', "private, has read nothing untrusted", "10 s"):
        assert words in text


class Loud:
    name = "loud"

    def __init__(self, fails: bool = False) -> None:
        self.heard: list[object] = []
        self._fails = fails

    def ask(self, question: Any) -> None:
        self.heard.append(question.id)
        if self._fails:
            raise ZeroDivisionError

    def close(self, question: Any, ending: ApprovalEnding) -> None:
        self.heard.append(ending)
        if self._fails:
            raise OSError("no way out")


def test_every_courier_is_told_and_one_that_fails_harms_nothing(brokered: Brokered) -> None:
    broken, sound = Loud(fails=True), Loud()
    brokered.approvals._couriers = Couriers([broken, LocalCourier(), sound])
    with brokered.asking() as asking:
        pending = asking.pending()
        yes(brokered, pending)
        assert isinstance(asking.answer(), ToolResult)
    assert broken.heard == sound.heard == [pending.approval, ApprovalEnding.APPROVED]
