"""Questions go to gatewayd and answers come back, and nothing that gatewayd does holds up a question or answers it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from brokerd.gatewaycourier import GatewayCourier
from brokerd.protected import Protected
from bxcore.auditlog import Answered
from bxcore.deadline import SystemClock
from bxcore.errors import StateError
from bxcore.ids import MattermostId
from bxcore.server import Request
from bxcore.settings.brokerd import BrokerdSettings, Gateway, Listen, Podman
from bxcore.wire.admin import ApprovalAnswer, ApprovalEnding, ApprovalOutcome
from bxcore.wire.approvals import ApprovalClosed, ApprovalNoted, ApprovalOpen, ApprovalPosted, ApprovalReply
from bxcore.wire.tools import DenyReason, ToolDenied, ToolResult
from tests.fakes.brokered import Asking, Brokered
from tests.fakes.rolesocket import FakeRole, Script, replies

POST, HERS, ALICE = MattermostId("p" * 26), MattermostId("h" * 26), MattermostId("a" * 26)
PATIENCE_SECONDS = 60
PATIENCE_MS = 60_000
POSTED = ApprovalPosted(post=POST)
NOTED = replies(ApprovalNoted())
YES = ApprovalReply(approve=True, approver=ALICE, post=HERS, reason=None)
NO = ApprovalReply(approve=False, approver=ALICE, post=HERS, reason="not on a Sunday")


@pytest.fixture
def brokered(tmp_path: Path) -> Iterator[Brokered]:
    (tmp_path / "broker").mkdir()
    made = Brokered(tmp_path / "broker", clock=SystemClock())
    made.grant("g", mode="ask")
    yield made
    made.close()


@pytest.fixture
def courier(brokered: Brokered, tmp_path: Path) -> Iterator[GatewayCourier]:
    made = GatewayCourier(
        Gateway(socket=tmp_path / "run" / "gateway" / "gateway.sock"),
        answer=brokered.approvals.answer,
        clock=SystemClock(),
        most=3,
    )
    brokered.approvals._couriers.add(made)
    yield made
    made.stop()
    assert made.join(PATIENCE_MS)


def gateway(home: Path, opened: Script, closed: Script = NOTED) -> FakeRole:
    scripts: Mapping[Any, Script] = {ApprovalOpen: opened, ApprovalClosed: closed}
    return FakeRole(home, "gateway", "gateway.sock", scripts)


def holding(request: Request) -> None:
    """Post the question, and wait for whatever comes of it."""
    request.answer(POSTED, final=False)
    assert request.wait_peer(PATIENCE_MS)


def when(go: threading.Event, reply: ApprovalReply) -> Script:
    """Post the question, and pass an answer on when the test says so."""

    def script(request: Request) -> None:
        request.answer(POSTED, final=False)
        assert go.wait(PATIENCE_SECONDS)
        request.answer(reply, final=True)

    return script


def bxctl(brokered: Brokered, asking: Asking, *, approve: bool = True) -> ApprovalOutcome:
    number = asking.pending().approval
    named = brokered.approvals.question(number).call.fingerprint
    answer = ApprovalAnswer(id=number, approve=approve, canonical=named, reason=None)
    return brokered.approvals.answer(answer, approver="bxctl")


def answered(brokered: Brokered) -> Answered:
    return [record for record in brokered.records() if isinstance(record, Answered)][-1]


# -- asked and answered -----------------------------------------------------------------------------


def test_a_yes_runs_and_the_record_names_who_said_it_in_which_post(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path
) -> None:
    with gateway(tmp_path, replies(POSTED, YES)) as chat, brokered.asking() as asking:
        assert isinstance(asking.answer(), ToolResult)
        closed = chat.wait(ApprovalClosed)
    assert (closed.id, closed.ending, closed.detail) == (asking.pending().approval, ApprovalEnding.APPROVED, "")
    record = answered(brokered)
    assert (record.approver, record.post) == (f"mattermost:{ALICE}", HERS)


def test_what_is_asked_is_the_whole_question(brokered: Brokered, courier: GatewayCourier, tmp_path: Path) -> None:
    with gateway(tmp_path, holding) as chat, brokered.asking() as asking:
        opened = chat.wait(ApprovalOpen)
        question = brokered.approvals.question(asking.pending().approval)
    assert (opened.id, opened.session, opened.answerable) == (question.id, "s", True)
    assert (opened.opened, opened.expires) == (question.opened, question.expires)
    assert question.call.fingerprint in "".join(opened.parts)


def test_a_no_is_told_to_the_model_with_its_reason(brokered: Brokered, courier: GatewayCourier, tmp_path: Path) -> None:
    with gateway(tmp_path, replies(POSTED, NO)) as chat, brokered.asking() as asking:
        outcome = asking.answer()
        assert chat.wait(ApprovalClosed).ending is ApprovalEnding.REFUSED
    assert isinstance(outcome, ToolDenied)
    assert (outcome.reason, outcome.detail) == (DenyReason.APPROVAL_REFUSED, "not on a Sunday")


def test_what_came_of_an_answer_is_said_on_the_questions_own_connection(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path
) -> None:
    workers: dict[str, int] = {}

    def noting(name: str, script: Script) -> Script:
        def noted(request: Request) -> None:
            workers[name] = threading.get_ident()  # one worker a connection
            script(request)

        return noted

    chat = gateway(tmp_path, noting("open", replies(POSTED, YES)), noting("closed", NOTED))
    with chat, brokered.asking() as asking:
        asking.answer()
        chat.wait(ApprovalClosed)
    assert workers["open"] == workers["closed"]


def test_g6_a_grant_that_is_gone_by_the_time_of_the_yes_denies_after_all_and_says_so(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path
) -> None:
    go = threading.Event()
    with gateway(tmp_path, when(go, YES)) as chat, brokered.asking() as asking:
        asking.pending()
        (brokered.grants / "g.toml").unlink()
        go.set()
        assert isinstance(asking.answer(), ToolDenied)
        closed = chat.wait(ApprovalClosed)
    assert closed.ending is ApprovalEnding.DENIED_NOW
    assert closed.detail.startswith("no_grant")
    assert brokered.containers.ran == []


def test_an_answer_that_cannot_be_recorded_runs_nothing_and_that_is_said(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> ApprovalOutcome:
        raise StateError("no space")

    monkeypatch.setattr(courier, "_answer", full)
    with gateway(tmp_path, replies(POSTED, YES)) as chat, brokered.asking() as asking:
        asking.pending()
        closed = chat.wait(ApprovalClosed)
    assert closed.ending is ApprovalEnding.DENIED_NOW
    assert "could not be recorded" in closed.detail


# -- ended otherwise --------------------------------------------------------------------------------


def test_a_question_that_bxctl_answered_is_closed_on_a_second_connection(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path
) -> None:
    with gateway(tmp_path, holding) as chat, brokered.asking() as asking:
        chat.wait(ApprovalOpen)
        assert bxctl(brokered, asking).ending is ApprovalEnding.APPROVED
        closed = chat.wait(ApprovalClosed)
    assert (closed.ending, closed.detail) == (ApprovalEnding.APPROVED, "answered with bxctl")


def test_a_question_whose_asker_left_is_withdrawn(brokered: Brokered, courier: GatewayCourier, tmp_path: Path) -> None:
    with gateway(tmp_path, holding) as chat:
        with brokered.asking() as asking:
            chat.wait(ApprovalOpen)
            asking.peer.gone.set()
        closed = chat.wait(ApprovalClosed)
    assert (closed.ending, closed.detail) == (ApprovalEnding.VOID, "")


def test_the_slower_of_two_answers_is_told_the_truth(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path
) -> None:
    """A reply is on its way when bxctl answers: it changes nothing, and is told how the question had ended."""
    taken, go = threading.Event(), threading.Event()
    outcome = brokered.approvals.answer

    def late(answer: ApprovalAnswer, *, approver: str, post: str | None = None) -> ApprovalOutcome:
        taken.set()
        assert go.wait(PATIENCE_SECONDS)
        return outcome(answer, approver=approver, post=post)

    courier._answer = late
    with gateway(tmp_path, replies(POSTED, YES)) as chat, brokered.asking() as asking:
        assert taken.wait(PATIENCE_SECONDS)
        assert bxctl(brokered, asking, approve=False).ending is ApprovalEnding.REFUSED
        go.set()
        assert isinstance(asking.answer(), ToolDenied)
        closed = chat.wait(ApprovalClosed)
    assert (closed.ending, closed.detail) == (ApprovalEnding.NOT_PENDING, "it had ended as refused")
    assert answered(brokered).approver == "bxctl"
    assert brokered.containers.ran == []


# -- gatewayd is not there --------------------------------------------------------------------------


def test_g15_without_gatewayd_a_question_is_open_for_bxctl_at_once(brokered: Brokered, courier: GatewayCourier) -> None:
    with brokered.asking() as asking:
        assert bxctl(brokered, asking).ending is ApprovalEnding.APPROVED
        assert isinstance(asking.answer(), ToolResult)


def test_a_gatewayd_that_comes_later_is_asked_then(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with waiting_for(caplog, "cannot ask gatewayd") as failed, brokered.asking() as asking:
        assert failed.wait(PATIENCE_SECONDS)
        with gateway(tmp_path, replies(POSTED, YES)):
            assert isinstance(asking.answer(), ToolResult)


def test_n10_a_gatewayd_that_was_restarted_is_asked_again(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path
) -> None:
    def leaving(request: Request) -> None:
        request.answer(POSTED, final=False)
        raise BrokenPipeError

    with brokered.asking() as asking:
        with gateway(tmp_path, leaving) as chat:
            chat.wait(ApprovalOpen)
        with gateway(tmp_path, replies(POSTED, YES)) as chat:
            assert isinstance(asking.answer(), ToolResult)
            chat.wait(ApprovalClosed)


def test_an_answer_that_is_none_answers_nothing(brokered: Brokered, courier: GatewayCourier, tmp_path: Path) -> None:
    with gateway(tmp_path, replies(POSTED, ApprovalNoted())) as chat, brokered.asking() as asking:
        chat.wait(ApprovalOpen, count=2)  # it is asked again, and the question is still open
        assert brokered.approvals.question(asking.pending().approval) is not None


def test_a_gatewayd_that_says_again_and_again_that_it_posted_is_left(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path
) -> None:
    with gateway(tmp_path, replies(POSTED, POSTED, YES)) as chat, brokered.asking() as asking:
        chat.wait(ApprovalOpen, count=2)  # on another connection, after a pause
        assert brokered.approvals.question(asking.pending().approval) is not None


def test_only_so_many_are_on_the_way_and_the_others_are_left_to_bxctl(
    brokered: Brokered, courier: GatewayCourier, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    requests = [brokered.request(path=f"/data/{number}") for number in range(4)]
    with (
        gateway(tmp_path, holding) as chat,
        brokered.asking(requests[0]),
        brokered.asking(requests[1]),
        brokered.asking(requests[2]),
    ):
        chat.wait(ApprovalOpen, count=3)
        with brokered.asking(requests[3]) as fourth:
            assert bxctl(brokered, fourth).ending is ApprovalEnding.APPROVED
        assert len(chat.of(ApprovalOpen)) == 3
    assert "too many are on the way" in caplog.text


def test_stopped_it_lets_go_of_every_question(brokered: Brokered, courier: GatewayCourier, tmp_path: Path) -> None:
    with gateway(tmp_path, holding) as chat, brokered.asking() as asking:
        chat.wait(ApprovalOpen)
        courier.stop()
        assert courier.join(PATIENCE_MS)
        assert brokered.approvals.question(asking.pending().approval) is not None  # for bxctl


def test_no_grant_shows_a_tool_where_gatewayd_listens() -> None:
    here = Path("/nowhere")
    socket = here / "gateway" / "gateway.sock"
    settings = BrokerdSettings(
        listen=Listen(broker=here / "broker" / "broker.sock", admin=here / "admin" / "admin.sock"),
        grants=here / "grants",
        audit=here / "audit",
        state=here / "state",
        podman=Podman(socket=here / "podman.sock", image_file=here / "i", calls=here / "c", seccomp=here / "s"),
    )
    assert socket.parent not in Protected.of(settings).places
    assert socket.parent in Protected.of(attrs.evolve(settings, gateway=Gateway(socket=socket))).places


@contextmanager
def waiting_for(caplog: pytest.LogCaptureFixture, words: str) -> Iterator[threading.Event]:
    """An event that is set once such a line is in the log."""
    seen = threading.Event()
    emit: Callable[..., None] = caplog.handler.emit

    def watch(record: Any) -> None:
        emit(record)
        if words in record.getMessage():
            seen.set()

    caplog.handler.emit = watch  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        caplog.handler.emit = emit  # type: ignore[method-assign]
