"""INV-8 beyond the yes: the runner is handed what was approved, and what differs by then does not run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerd.runnerfaults import NotAsApproved
from bxcore.auditlog import Answered, Decided, Ended, RunEnding
from bxcore.wire.admin import ApprovalAnswer, ApprovalEnding
from bxcore.wire.tools import DenyReason, ToolDenied, ToolPending, ToolResult
from tests.fakes.brokered import Brokered


@pytest.fixture
def brokered(tmp_path: Path) -> Iterator[Brokered]:
    made = Brokered(tmp_path)
    made.grant("g", mode="ask")
    yield made
    made.close()


def yes(brokered: Brokered, pending: ToolPending) -> None:
    named = brokered.approvals.question(pending.approval).call.fingerprint
    answer = ApprovalAnswer(id=pending.approval, approve=True, canonical=named, reason=None)
    assert brokered.approvals.answer(answer, approver="bxctl").ending is ApprovalEnding.APPROVED


def test_inv_8_the_runner_gets_what_the_yes_was_to_with_the_inodes(brokered: Brokered) -> None:
    with brokered.asking() as asking:
        yes(brokered, asking.pending())
        assert isinstance(asking.answer(), ToolResult)
    call = brokered.containers.looked[-1]
    assert brokered.containers.approved == [brokered.containers.effects(call)]


def test_a_call_that_nobody_was_asked_about_is_compared_with_nothing(brokered: Brokered) -> None:
    brokered.grant("g", mode="auto")
    assert isinstance(brokered.ask(), ToolResult)
    assert brokered.containers.approved == [None]


def test_inv_8_what_differs_after_the_yes_is_a_recorded_refusal_and_never_a_run(brokered: Brokered) -> None:
    brokered.containers.fails_before = NotAsApproved("not as it was approved any more: image")
    with brokered.asking() as asking:
        yes(brokered, asking.pending())
        answer = asking.answer()
    assert isinstance(answer, ToolDenied)
    assert answer.reason is DenyReason.APPROVAL_REFUSED
    assert brokered.containers.ran == []
    decided, answered, ended = brokered.records()
    assert isinstance(decided, Decided)
    assert isinstance(answered, Answered)
    assert isinstance(ended, Ended)
    assert (ended.decision, ended.ending) == (decided.seq, RunEnding.FAILED)
