"""The one path: what is answered, what is on disk by then, and that a fault is never a run."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerd import broker as broker_module
from brokerd import callstate, reading
from brokerd.attached import Stop
from brokerd.call import Labels
from brokerd.mounts import MountRefused
from brokerd.runnerfaults import ImageMissing
from bxcore.auditlog import Answered, Decided, Ended, Record, RunEnding, Started
from bxcore.ids import SessionId
from bxcore.wire.admin import ApprovalAnswer, ApprovalEnding, Verdict
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolFailed, ToolRequest, ToolResult
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


def last_decision(brokered: Brokered) -> Decided:
    return [record for record in brokered.records() if isinstance(record, Decided)][-1]


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
    assert callstate.state_after([decided, started, ended]) is callstate.CallState.ENDED


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


# -- denied -------------------------------------------------------------------------------------


def break_audit(brokered: Brokered, _request: dict[str, Any]) -> None:
    brokered.audit._give_up()


def break_grants(brokered: Brokered, _request: dict[str, Any]) -> None:
    brokered.grant("bad", mode="maybe")


def break_state(brokered: Brokered, _request: dict[str, Any]) -> None:
    path = brokered.state / "sessions" / "s.json"
    path.write_bytes(b"{}")
    path.chmod(0o600)


def name_no_tool(_brokered: Brokered, request: dict[str, Any]) -> None:
    request["tool"], request["text"] = "read_mind", "{}"


def misspell_arguments(_brokered: Brokered, request: dict[str, Any]) -> None:
    request["text"] = '{"pth":"/data/a"}'


def ask_elsewhere(_brokered: Brokered, request: dict[str, Any]) -> None:
    request["path"] = "/etc/passwd"


def break_runner(brokered: Brokered, _request: dict[str, Any]) -> None:
    brokered.containers.unfit = ImageMissing("the tool image is not loaded")


IN_ORDER = [
    (break_audit, DenyReason.AUDIT_UNAVAILABLE),
    (break_grants, DenyReason.GRANTS_INVALID),
    (break_state, DenyReason.STATE_UNREADABLE),
    (name_no_tool, DenyReason.UNKNOWN_TOOL),
    (misspell_arguments, DenyReason.INVALID_ARGUMENTS),
    (ask_elsewhere, DenyReason.NO_GRANT),
    (break_runner, DenyReason.RUNNER_UNAVAILABLE),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)), ids=[reason.value for _, reason in IN_ORDER])
def test_of_all_that_is_wrong_the_first_in_order_is_the_answer(brokered: Brokered, first: int) -> None:
    """INV-3: each is a denial, on record but for the one that could not be recorded, and nothing runs."""
    brokered.grant()
    request: dict[str, Any] = {}
    for wrong, _ in reversed(IN_ORDER[first:]):
        if not (wrong is misspell_arguments and first < 3) and not (wrong is ask_elsewhere and first < 5):
            wrong(brokered, request)
    before = len(brokered.records())
    reason = IN_ORDER[first][1]
    assert denied(brokered.ask(brokered.request(**request)))[0] is reason
    assert brokered.containers.ran == []
    if reason is DenyReason.AUDIT_UNAVAILABLE:
        assert len(brokered.records()) == before
    else:
        [record] = brokered.records()[before:]
        assert isinstance(record, Decided)
        assert (record.verdict, record.reason) == (Verdict.DENIED, reason)


def test_a_bad_grant_is_named_by_file_and_line_and_mended_at_once(brokered: Brokered) -> None:
    """G4, G5: the good one does not work either."""
    brokered.grant("good")
    break_grants(brokered, {})
    reason, detail = denied(brokered.ask())
    assert (reason, detail) == (DenyReason.GRANTS_INVALID, "bad.toml, line 2")
    assert last_decision(brokered).grants is None
    (brokered.grants / "bad.toml").unlink()
    assert isinstance(brokered.ask(), ToolResult)


def test_an_unreadable_state_is_recorded_as_secret_and_untrusted(brokered: Brokered) -> None:
    brokered.grant()
    break_state(brokered, {})
    brokered.ask()
    decided = last_decision(brokered)
    assert (decided.taint, decided.untrusted) == (DataClass.SECRET, True)


def test_nothing_of_the_host_is_looked_at_for_a_call_that_no_grant_covers(brokered: Brokered) -> None:
    brokered.grant()
    brokered.ask(brokered.request(path="/etc/shadow"))
    assert brokered.containers.looked == []


def test_a_deny_grant_is_named_in_the_record(brokered: Brokered) -> None:
    brokered.grant("open")
    brokered.grant("shut", mode="deny", max_taint="secret", paths='["/data/private"]')
    assert denied(brokered.ask(brokered.request(path="/data/private/x")))[0] is DenyReason.DENIED_BY_GRANT
    assert last_decision(brokered).grant == "shut"


def test_what_the_model_reads_of_a_refusal_does_not_say_how_to_lift_it(brokered: Brokered) -> None:
    """Neighbour 6."""
    texts = {broker_module.REPEATED, broker_module.NO_ROOM, broker_module.UNKNOWN, broker_module.WITHHELD}
    texts |= {reading.FAULT, str(denied(brokered.ask())[1])}
    for text in texts:
        assert not {"grant", "toml", "bxctl", "approve", "config"} & set(text.lower().replace(",", "").split())


def test_a_path_that_the_runner_will_not_show_is_a_matter_of_the_arguments(brokered: Brokered) -> None:
    """P11: refused whatever the grant says."""
    brokered.grant()
    brokered.containers.unfit = MountRefused("this path is, holds or lies in something of Boxmaker's own")
    reason, detail = denied(brokered.ask())
    assert reason is DenyReason.INVALID_ARGUMENTS
    assert detail == "this path is, holds or lies in something of Boxmaker's own"


# -- faults -------------------------------------------------------------------------------------


class Broken:
    """Stands for a part of ours that raises what nobody expects."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


def no_grants(brokered: Brokered) -> None:
    brokered.reading._grants = Broken()


def no_links(brokered: Brokered) -> None:
    brokered.reading._resolve = fail


def no_effects(brokered: Brokered) -> None:
    brokered.containers.unfit = ZeroDivisionError()


def no_labels(brokered: Brokered) -> None:
    brokered.ledger._book._states = Broken()


def fail(*_: object) -> str:
    raise ZeroDivisionError


FAULTS = {
    "grants": (no_grants, DenyReason.GRANTS_INVALID),
    "labels": (no_labels, DenyReason.STATE_UNREADABLE),
    "links": (no_links, DenyReason.INVALID_ARGUMENTS),
    "effects": (no_effects, DenyReason.RUNNER_UNAVAILABLE),
}


@pytest.mark.parametrize(("fault", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_an_exception_while_deciding_is_a_recorded_denial(brokered: Brokered, fault: Any, reason: DenyReason) -> None:
    """INV-3."""
    brokered.grant()
    fault(brokered)
    assert denied(brokered.ask())[0] is reason
    decided = last_decision(brokered)
    assert (decided.verdict, decided.reason) == (Verdict.DENIED, reason)
    assert brokered.containers.ran == []


def test_an_exception_in_the_decision_itself_is_a_recorded_denial(brokered: Brokered) -> None:
    brokered.grant()
    times = iter([brokered.time.now_ms()])
    brokered.broker._now = lambda: next(times)  # once for a look, and then it fails
    assert denied(brokered.ask()) == (DenyReason.NO_GRANT, reading.FAULT)
    assert last_decision(brokered).reason is DenyReason.NO_GRANT


def test_a_run_that_cannot_begin_is_denied_and_has_ended(brokered: Brokered) -> None:
    """S7: never the host, and the log knows that nothing ran."""
    brokered.grant()
    for fault, reason in (
        (ImageMissing("the tool image is not loaded"), DenyReason.RUNNER_UNAVAILABLE),
        (MountRefused("there is a link now"), DenyReason.INVALID_ARGUMENTS),
        (ZeroDivisionError(), DenyReason.RUNNER_UNAVAILABLE),
    ):
        brokered.containers.fails_before = fault
        assert denied(brokered.ask())[0] is reason
        decided, ended = brokered.records()[-2:]
        assert isinstance(decided, Decided)
        assert isinstance(ended, Ended)
        assert (ended.decision, ended.ending) == (decided.seq, RunEnding.FAILED)
    assert brokered.containers.ran == []
    assert brokered.audit.not_started() == ()


def test_a_run_that_breaks_off_is_unknown_and_counts_as_seen(brokered: Brokered) -> None:
    brokered.grant(more='result_class = "secret"')
    brokered.containers.fails_after = ZeroDivisionError()
    answer = brokered.ask()
    assert answer == ToolFailed(message=broker_module.UNKNOWN)
    assert isinstance(ended := brokered.records()[-1], Ended)
    assert (ended.ending, ended.taint_after) == (RunEnding.UNKNOWN, DataClass.SECRET)
    assert brokered.states.labels(S).data_class is DataClass.SECRET


def test_a_result_whose_labels_cannot_be_kept_is_withheld(brokered: Brokered) -> None:
    """INV-4."""
    brokered.grant()
    brokered.containers.while_it_runs = lambda _: break_state(brokered, {})
    assert brokered.ask() == ToolFailed(message=broker_module.WITHHELD)
    assert isinstance(ended := brokered.records()[-1], Ended)
    assert ended.ending is RunEnding.FAILED


def test_a_result_that_cannot_be_recorded_is_withheld_and_nothing_is_decided_after_it(brokered: Brokered) -> None:
    brokered.grant()
    brokered.containers.while_it_runs = lambda _: break_audit(brokered, {})
    assert brokered.ask() == ToolFailed(message=broker_module.WITHHELD)
    assert denied(brokered.ask())[0] is DenyReason.AUDIT_UNAVAILABLE
    assert len(brokered.containers.ran) == 1


def test_a_start_that_cannot_be_recorded_is_no_start(brokered: Brokered) -> None:
    """INV-2."""
    brokered.grant()
    brokered.containers.before_it_starts = lambda: break_audit(brokered, {})
    assert denied(brokered.ask())[0] is DenyReason.AUDIT_UNAVAILABLE
    assert brokered.containers.ran == []


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
