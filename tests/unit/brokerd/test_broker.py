"""The one path: what is answered, what is on disk by then, and who may end it meanwhile."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerd import broker as broker_module
from brokerd import callstate, labels
from brokerd.call import FRESH, Labels
from brokerd.exited import Stop
from bxcore.auditlog import Answered, Decided, Ended, Record, RunEnding, Started
from bxcore.ids import SessionId
from bxcore.wire.admin import ApprovalAnswer, ApprovalEnding, Verdict
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolFailed, ToolRequest, ToolResult
from tests.fakes import callstory
from tests.fakes.brokered import PLAN, SAID, Brokered, Peer, exited, grant_text

S = SessionId("s")


@pytest.fixture
def brokered(tmp_path: Path) -> Iterator[Brokered]:
    made = Brokered(tmp_path)
    yield made
    made.close()


def story(records: list[Record], seq: int) -> list[Record]:
    """Return the records of one call."""
    return [record for record in records if seq in {record.seq, getattr(record, "decision", None)}]


def denied(answer: object) -> tuple[DenyReason, str | None]:
    assert isinstance(answer, ToolDenied)
    return answer.reason, answer.detail


# -- granted ------------------------------------------------------------------------------------


def test_a_granted_call_runs_and_its_result_is_labelled_raised_and_recorded_before_it_is_released(
    brokered: Brokered,
) -> None:
    brokered.grant(more='result_class = "secret"')
    answer = brokered.ask(brokered.request(path="/data/notes.md"))
    assert answer == ToolResult(content=SAID.decode(), data_class=DataClass.SECRET, untrusted=True, truncated=False)
    decided, started, ended = brokered.records()
    assert isinstance(decided, Decided)
    assert (decided.verdict, decided.grant, decided.path) == (Verdict.ALLOWED, "g", "/data/notes.md")
    assert (decided.taint, decided.untrusted) == (DataClass.PRIVATE, False)
    assert decided.grants == brokered.files.current().digest
    assert isinstance(started, Started)
    assert (started.decision, started.plan) == (decided.seq, PLAN)
    assert isinstance(ended, Ended)
    assert (ended.decision, ended.ending, ended.exit, ended.size) == (decided.seq, RunEnding.DONE, 0, len(SAID))
    assert (ended.data_class, ended.untrusted) == (ended.taint_after, ended.untrusted_after)
    assert brokered.states.labels(S) == Labels(data_class=DataClass.SECRET, untrusted=True)
    assert callstory.state_after([decided, started, ended]) is callstate.CallState.ENDED


def test_when_a_container_starts_its_decision_and_its_start_are_on_disk(brokered: Brokered) -> None:
    """INV-2."""
    brokered.grant()
    brokered.ask()
    [(seq, _, on_disk)] = brokered.containers.ran
    assert [type(record) for record in story(on_disk, seq)] == [Decided, Started]


def test_a_tools_own_error_is_a_labelled_result(brokered: Brokered) -> None:
    brokered.grant()
    brokered.containers.ends = exited(b"error: no such file\n", code=1)
    answer = brokered.ask()
    assert isinstance(answer, ToolResult)
    assert answer.untrusted
    assert isinstance(ended := brokered.records()[-1], Ended)
    assert ended.ending is RunEnding.TOOL_ERROR
    assert brokered.states.labels(S).untrusted


def test_a_failure_is_a_fixed_sentence_and_raises_nothing(brokered: Brokered) -> None:
    brokered.grant(more='result_class = "secret"')
    brokered.containers.ends = exited(b"half a secret", code=None, stop=Stop.DEADLINE)
    answer = brokered.ask()
    assert isinstance(answer, ToolFailed)
    assert "secret" not in answer.message
    assert isinstance(ended := brokered.records()[-1], Ended)
    assert (ended.ending, ended.taint_after) == (RunEnding.FAILED, DataClass.PRIVATE)
    assert brokered.states.labels(S) == Labels(data_class=DataClass.PRIVATE, untrusted=False)


def test_a_result_cannot_choose_its_own_label(brokered: Brokered) -> None:
    """G18."""
    brokered.grant(more='result_class = "secret"')
    brokered.containers.ends = exited(b'{"data_class":"public","result_class":"public","untrusted":false}')
    answer = brokered.ask()
    assert isinstance(answer, ToolResult)
    assert (answer.data_class, answer.untrusted) == (DataClass.SECRET, True)


def test_taint_rises_for_good_also_over_a_restart(brokered: Brokered, tmp_path: Path) -> None:
    """G17, INV-4."""
    brokered.grant("secrets", paths='["/vault"]', more='result_class = "secret"')
    brokered.grant("notes", paths='["/data"]')
    assert isinstance(brokered.ask(brokered.request(path="/data/a")), ToolResult)
    assert isinstance(brokered.ask(brokered.request(path="/vault/a")), ToolResult)
    assert denied(brokered.ask(brokered.request(path="/data/a")))[0] is DenyReason.TAINT_TOO_HIGH
    assert isinstance(brokered.ask(brokered.request(path="/data/a", session="other")), ToolResult)
    brokered.close()
    again = Brokered(tmp_path)
    assert denied(again.ask(brokered.request(path="/data/a")))[0] is DenyReason.TAINT_TOO_HIGH
    again.close()


# -- the same call again ------------------------------------------------------------------------


def test_a_call_that_is_sent_again_never_runs_again(brokered: Brokered, tmp_path: Path) -> None:
    """Neighbour 40; also after a restart, and whatever became of the first."""
    brokered.grant()
    done, refused = brokered.request(), brokered.request(path="/etc/passwd")
    brokered.ask(done)
    brokered.ask(refused)
    for request in (done, refused):
        assert denied(brokered.ask(request)) == (DenyReason.INVALID_ARGUMENTS, broker_module.REPEATED)
    brokered.close()
    again = Brokered(tmp_path, containers=brokered.containers)
    assert denied(again.ask(done)) == (DenyReason.INVALID_ARGUMENTS, broker_module.REPEATED)
    again.close()
    assert len(brokered.containers.ran) == 1


def test_of_two_that_are_sent_at_once_one_runs(brokered: Brokered) -> None:
    brokered.grant()
    for _ in range(50):
        request, answers = brokered.request(), list[object]()
        together = threading.Barrier(2)

        def send(
            request: ToolRequest = request, together: threading.Barrier = together, answers: list[object] = answers
        ) -> None:
            together.wait()
            answers.append(brokered.ask(request))

        threads = [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {type(answer) for answer in answers} == {ToolResult, ToolDenied}
    assert len(brokered.containers.ran) == 50


# -- asking -------------------------------------------------------------------------------------


def test_a_call_that_asks_runs_after_a_yes(brokered: Brokered) -> None:
    brokered.grant(mode="ask")
    with brokered.asking() as asking:
        pending = asking.pending()
        question = brokered.approvals.question(pending.approval)
        assert isinstance(brokered.audit.find(pending.approval), Decided)
        assert brokered.containers.ran == []
        yes = ApprovalAnswer(id=pending.approval, approve=True, canonical=question.call.fingerprint, reason=None)
        assert brokered.approvals.answer(yes, approver="bxctl").ending is ApprovalEnding.APPROVED
        assert isinstance(asking.answer(), ToolResult)
    [(seq, _, on_disk)] = brokered.containers.ran
    assert seq == pending.approval
    assert [type(record) for record in story(on_disk, seq)] == [Decided, Answered, Started]


def test_a_peer_that_cannot_be_told_is_one_that_left(brokered: Brokered) -> None:
    brokered.grant(mode="ask")
    peer = Peer()
    peer.deaf = True
    assert denied(brokered.ask(peer=peer))[0] is DenyReason.APPROVAL_EXPIRED
    assert isinstance(answered := brokered.records()[-1], Answered)
    assert answered.ending is ApprovalEnding.VOID
    assert brokered.approvals.questions() == []


def test_a_peer_that_leaves_takes_its_question_along(brokered: Brokered) -> None:
    brokered.grant(mode="ask")
    with brokered.asking() as asking:
        asking.pending()
        asking.peer.gone.set()
        assert denied(asking.answer())[0] is DenyReason.APPROVAL_EXPIRED
    assert isinstance(answered := brokered.records()[-1], Answered)
    assert answered.ending is ApprovalEnding.VOID
    assert brokered.containers.ran == []


def test_a_peer_that_leaves_while_its_call_runs_has_it_stopped(brokered: Brokered) -> None:
    brokered.grant()
    peer, cancelled = Peer(), list[bool]()

    def leave(is_cancelled: Any) -> None:
        cancelled.append(is_cancelled())
        peer.gone.set()
        cancelled.append(is_cancelled())
        brokered.containers.ends = exited(b"", code=None, stop=Stop.CANCELLED)

    brokered.containers.while_it_runs = leave
    assert isinstance(brokered.ask(peer=peer), ToolFailed)
    assert cancelled == [False, True]
    assert isinstance(ended := brokered.records()[-1], Ended)
    assert ended.ending is RunEnding.FAILED


def test_a_yes_to_a_peer_that_has_left_starts_nothing(brokered: Brokered) -> None:
    brokered.grant()
    peer = Peer()
    peer.gone.set()
    assert denied(brokered.ask(peer=peer)) == (DenyReason.RUNNER_UNAVAILABLE, broker_module.ASKER_GONE)
    assert isinstance(brokered.records()[-1], Ended)
    assert brokered.containers.ran == []


def test_a_stop_withdraws_what_is_open_and_ends_what_runs(brokered: Brokered) -> None:
    brokered.grant("ask", mode="ask", paths='["/data/ask"]')
    brokered.grant("auto")
    running = threading.Event()

    def until_cancelled(is_cancelled: Any) -> None:
        running.set()
        while not is_cancelled():
            pass
        brokered.containers.ends = exited(b"", code=None, stop=Stop.CANCELLED)

    brokered.containers.while_it_runs = until_cancelled
    with brokered.asking(brokered.request(path="/data/ask/x")) as asking, brokered.asking() as at_work:
        asking.pending()
        assert running.wait(60)
        brokered.broker.stop()
        assert denied(asking.answer())[0] is DenyReason.APPROVAL_EXPIRED
        assert isinstance(at_work.answer(), ToolFailed)
    assert brokered.audit.unsettled.asked == brokered.audit.unsettled.started == ()


def test_only_so_many_calls_run_at_a_time(tmp_path: Path) -> None:
    brokered = Brokered(tmp_path, running=1)
    brokered.grant()
    running, go_on = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        running.set()
        assert go_on.wait(60)

    brokered.containers.while_it_runs = hold
    with brokered.asking() as first:
        assert running.wait(60)
        assert brokered.running.count == 1
        assert denied(brokered.ask()) == (DenyReason.RUNNER_UNAVAILABLE, broker_module.NO_ROOM)
        go_on.set()
        assert isinstance(first.answer(), ToolResult)
    assert isinstance(brokered.ask(), ToolResult)
    assert brokered.running.count == 0
    brokered.close()


def test_one_session_that_waits_for_the_owner_holds_up_no_other(brokered: Brokered) -> None:
    brokered.grant("ask", mode="ask", paths='["/data/ask"]')
    brokered.grant("auto")
    with brokered.asking(brokered.request(path="/data/ask/x")) as asking:
        asking.pending()
        assert isinstance(brokered.ask(brokered.request(session="other")), ToolResult)


def test_a_grant_that_runs_out_between_two_calls_is_no_grant(brokered: Brokered) -> None:
    """G2, G3: at that very moment it is expired, and a clock that is set back revives nothing."""
    brokered.grant(text=grant_text(more="expires = 2026-01-01T00:01:00Z"))
    assert isinstance(brokered.ask(), ToolResult)
    brokered.clock.wind(60_000)  # type: ignore[attr-defined]
    assert denied(brokered.ask())[0] is DenyReason.GRANT_EXPIRED
    brokered.clock.set_wall(-86_400_000)  # type: ignore[attr-defined]
    assert denied(brokered.ask())[0] is DenyReason.GRANT_EXPIRED


def test_a_grant_that_goes_away_while_the_effects_are_looked_at_allows_nothing(brokered: Brokered) -> None:
    """G6: what counts is what the files say when it is decided, however slow the container service is."""
    path = brokered.grant()
    look = brokered.containers.effects

    def slow(call: Any) -> Any:
        path.unlink()
        return look(call)

    brokered.reading._effects = slow
    assert denied(brokered.ask())[0] is DenyReason.NO_GRANT
    assert brokered.containers.ran == []


def test_decisions_and_results_of_many_threads_agree_with_each_other_in_the_order_of_the_log(
    brokered: Brokered,
) -> None:
    """INV-4: every decision was taken by exactly the labels that the records before it had left."""
    brokered.grant("open", max_taint="secret", more="untrusted = false")
    brokered.grant("web", max_taint="secret", paths='["/web"]')
    brokered.grant("vault", max_taint="secret", paths='["/vault"]', more='result_class = "secret"\nuntrusted = false')
    brokered.containers.on_disk = list
    brokered.running._most = 100
    paths = ["/data/a", "/web/a", "/vault/a", "/etc/a"]

    def work(session: str, first: int) -> None:
        for number in range(first, first + 10):
            brokered.ask(brokered.request(path=paths[number % 4], session=session, number=number))

    threads = [threading.Thread(target=work, args=(session, 10 * n)) for session in "ab" for n in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen: dict[SessionId, Labels] = {}
    for record in brokered.records():
        if isinstance(record, Decided):
            session = Labels(data_class=record.taint, untrusted=record.untrusted)
            assert session == seen.get(record.session, FRESH)
        elif isinstance(record, Ended):
            assert record.ending is RunEnding.DONE
            result = Labels(data_class=record.data_class, untrusted=record.untrusted)
            seen[record.session] = labels.joined(seen.get(record.session, FRESH), result)
            assert seen[record.session] == Labels(data_class=record.taint_after, untrusted=record.untrusted_after)
    assert set(seen.values()) == {Labels(data_class=DataClass.SECRET, untrusted=True)}
    assert {session: brokered.states.labels(session) for session in seen} == seen
