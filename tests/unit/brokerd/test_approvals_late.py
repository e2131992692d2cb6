"""An answer that takes a while: what counts is what holds when it is there, and nobody spins until then."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerd.call import Call
from brokerd.runner import Effects
from bxcore.auditlog import Answered, Decided
from bxcore.wire.admin import ApprovalAnswer, ApprovalEnding, ApprovalOutcome
from bxcore.wire.tools import DenyReason, ToolDenied, ToolPending
from tests.fakes.brokered import PATIENCE_SECONDS, Brokered, grant_text
from tests.fakes.clocks import HandClock

HOUR_MS = 3_600_000
LOOK_MS = 5


@pytest.fixture
def brokered(tmp_path: Path) -> Iterator[Brokered]:
    made = Brokered(tmp_path, look_ms=LOOK_MS)
    made.grant("g", mode="ask")
    yield made
    made.close()


def yes(brokered: Brokered, pending: ToolPending) -> ApprovalOutcome:
    named = brokered.approvals.question(pending.approval).call.fingerprint
    answer = ApprovalAnswer(id=pending.approval, approve=True, canonical=named, reason=None)
    return brokered.approvals.answer(answer, approver="bxctl")


def while_effects_are_looked_at(brokered: Brokered, happens: Callable[[], object]) -> None:
    """The container service takes its time, and meanwhile something happens, once."""
    look, left = brokered.containers.effects, [happens]

    def slow(call: Call) -> Effects:
        found = look(call)
        while left:
            left.pop()()
        return found

    brokered.reading._effects = slow


# -- the grants change while the container service is asked ---------------------------------------

CHANGES: dict[str, tuple[Callable[[Brokered], object], DenyReason]] = {
    "removed": (lambda brokered: (brokered.grants / "g.toml").unlink(), DenyReason.NO_GRANT),
    "narrowed": (lambda brokered: brokered.grant("g", mode="ask", paths='["/data/b"]'), DenyReason.NO_GRANT),
    "another says no": (
        lambda brokered: brokered.grant("no", mode="deny", max_taint="secret"),
        DenyReason.DENIED_BY_GRANT,
    ),
    "expired": (
        lambda brokered: brokered.grant("g", text=grant_text(mode="ask", more="expires = 2025-12-31T00:00:00Z")),
        DenyReason.GRANT_EXPIRED,
    ),
    "one is bad": (lambda brokered: brokered.grant("bad", mode="maybe"), DenyReason.GRANTS_INVALID),
}


@pytest.mark.parametrize(("change", "reason"), CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_a_request_is_decided_by_the_grants_as_they_are_after_its_effects_were_looked_at(
    brokered: Brokered, mode: str, change: Callable[[Brokered], object], reason: DenyReason
) -> None:
    """G6."""
    brokered.grant("g", mode=mode)
    while_effects_are_looked_at(brokered, lambda: change(brokered))
    answer = brokered.ask()
    assert isinstance(answer, ToolDenied)
    assert answer.reason is reason
    [decided] = brokered.records()
    assert isinstance(decided, Decided)
    assert decided.grants == (None if reason is DenyReason.GRANTS_INVALID else brokered.files.current().digest)
    assert brokered.containers.ran == []


@pytest.mark.parametrize(("change", "reason"), CHANGES.values(), ids=CHANGES.keys())
def test_a_yes_is_decided_by_the_grants_as_they_are_after_its_effects_were_looked_at(
    brokered: Brokered, change: Callable[[Brokered], object], reason: DenyReason
) -> None:
    """G6."""
    with brokered.asking() as asking:
        pending = asking.pending()
        while_effects_are_looked_at(brokered, lambda: change(brokered))
        outcome = yes(brokered, pending)
        assert outcome.ending is ApprovalEnding.DENIED_NOW
        answer = asking.answer()
    assert isinstance(answer, ToolDenied)
    assert answer.reason is reason
    assert brokered.containers.ran == []


# -- the time runs out while an answer is worked on -----------------------------------------------


class Waits(threading.Event):
    """An event that notes how long it is waited for, and says when that was often enough."""

    def __init__(self, enough: int) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.often = threading.Event()
        self._enough = enough

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        if len(self.seconds) >= self._enough:
            self.often.set()
        return super().wait(timeout)


def test_a_question_past_its_end_is_not_looked_at_more_often_while_its_answer_is_worked_on(brokered: Brokered) -> None:
    clock = brokered.clock
    assert isinstance(clock, HandClock)
    with brokered.asking() as asking:
        pending = asking.pending()
        [open_question] = brokered.approvals._table.entries()
        waits = Waits(enough=10)

        def runs_out() -> None:
            clock.wind(HOUR_MS)
            open_question.over = waits  # from its next look on the worker waits for this one
            assert waits.often.wait(PATIENCE_SECONDS)

        while_effects_are_looked_at(brokered, runs_out)
        assert yes(brokered, pending).ending is ApprovalEnding.EXPIRED
        asking.answer()
    assert set(waits.seconds) == {LOOK_MS / 1000}
    assert isinstance(ended := brokered.records()[-1], Answered)
    assert ended.ending is ApprovalEnding.EXPIRED
