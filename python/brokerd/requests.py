"""The request table: what may be said on which socket, and who answers it. What is not here is `forbidden`.

broker.sock takes tool requests, admin.sock the owner's words, state.sock one question. Who speaks is
known by the socket alone, never by what a message says. Threads: a worker of the server for each connection.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TypeVar

from brokerd import approvaltext
from brokerd.approvals import Approvals
from brokerd.approvaltext import Question
from brokerd.broker import Asker, Broker
from brokerd.call import UNREADABLE, Labels
from brokerd.condition import Condition
from brokerd.couriers import LocalCourier
from brokerd.grantdesk import GrantDesk
from brokerd.ledger import Ledger
from bxcore.errors import BoxmakerError, StateError
from bxcore.ids import SessionId
from bxcore.server import Handler, Request
from bxcore.wire import admin, state
from bxcore.wire.tools import ToolRequest

Message = TypeVar("Message")

PIECE_CHARACTERS = 100_000
"""Of a block in one frame: its characters take four bytes each at most, and twice that as JSON."""

RESERVED: frozenset[type] = frozenset(
    {admin.ApprovalList, admin.ApprovalShow, admin.ApprovalAnswer, admin.BrokerStatus}
)
"""Answered soon, so that the owner gets through where all connections of admin.sock are at work."""

RESERVED_CONNECTIONS = 4


class Socket(Enum):
    """brokerd's sockets; each belongs to one pair of roles."""

    BROKER = "broker"
    ADMIN = "admin"
    STATE = "state"


class Requests:
    """The handlers."""

    def __init__(
        self, *, broker: Broker, approvals: Approvals, desk: GrantDesk, ledger: Ledger, condition: Condition
    ) -> None:
        self._broker = broker
        self._approvals = approvals
        self._desk = desk
        self._ledger = ledger
        self._condition = condition

    def table(self) -> Mapping[Socket, Mapping[type, Handler]]:
        """Return every message that brokerd answers, by the socket that it must come in on."""
        return {
            Socket.BROKER: {ToolRequest: _typed(ToolRequest, self._tool_request)},
            Socket.ADMIN: {
                admin.ApprovalList: _typed(admin.ApprovalList, self._approval_list),
                admin.ApprovalShow: _typed(admin.ApprovalShow, self._approval_show),
                admin.ApprovalAnswer: _typed(admin.ApprovalAnswer, self._approval_answer),
                admin.GrantsCheck: _typed(admin.GrantsCheck, self._grants_check),
                admin.GrantsTest: _typed(admin.GrantsTest, self._grants_test),
                admin.GrantsExplain: _typed(admin.GrantsExplain, self._grants_explain),
                admin.GrantsSuggest: _typed(admin.GrantsSuggest, self._grants_suggest),
                admin.SessionRebuild: _typed(admin.SessionRebuild, self._session_rebuild),
                admin.BrokerStatus: _typed(admin.BrokerStatus, self._broker_status),
                state.SessionStateAsk: _typed(state.SessionStateAsk, self._session_state),
            },
            Socket.STATE: {state.SessionStateAsk: _typed(state.SessionStateAsk, self._session_state)},
        }

    # -- broker.sock ----------------------------------------------------------------------------

    def _tool_request(self, request: Request, message: ToolRequest) -> None:
        asker = Asker(pending=lambda pending: request.answer(pending, final=False), left=request.peer_left)
        request.answer(self._broker.handle(message, asker), final=True)

    # -- admin.sock: approvals ------------------------------------------------------------------

    def _approval_list(self, request: Request, _: admin.ApprovalList) -> None:
        questions = self._approvals.questions()
        for question in questions:
            request.answer(_summary(question), final=False)
        request.answer(admin.ApprovalListEnd(total=len(questions)), final=True)

    def _approval_show(self, request: Request, message: admin.ApprovalShow) -> None:
        question = self._approvals.question(message.id)
        text = approvaltext.block(question)
        for start in range(0, len(text), PIECE_CHARACTERS):
            request.answer(admin.ApprovalText(text=text[start : start + PIECE_CHARACTERS]), final=False)
        shown = admin.ApprovalShown(
            summary=_summary(question), canonical=question.call.fingerprint, characters=len(text)
        )
        request.answer(shown, final=True)

    def _approval_answer(self, request: Request, message: admin.ApprovalAnswer) -> None:
        request.answer(self._approvals.answer(message, approver=LocalCourier.name), final=True)

    # -- admin.sock: grants ---------------------------------------------------------------------

    def _grants_check(self, request: Request, _: admin.GrantsCheck) -> None:
        _answer_all(request, self._desk.check())

    def _grants_test(self, request: Request, message: admin.GrantsTest) -> None:
        session = Labels(data_class=message.taint, untrusted=message.untrusted)
        _answer_all(request, self._desk.test(message.tool, message.arguments, session))

    def _grants_explain(self, request: Request, message: admin.GrantsExplain) -> None:
        _answer_all(request, self._desk.explain(message.seq))

    def _grants_suggest(self, request: Request, message: admin.GrantsSuggest) -> None:
        request.answer(self._desk.suggest(message.seq), final=True)

    # -- state ----------------------------------------------------------------------------------

    def _session_rebuild(self, request: Request, message: admin.SessionRebuild) -> None:
        request.answer(_report(message.session, self._ledger.rebuild(message.session)), final=True)

    def _session_state(self, request: Request, message: state.SessionStateAsk) -> None:
        try:
            with self._ledger.held() as book:
                report = _report(message.session, book.labels(message.session))
        except StateError:
            report = _report(message.session, UNREADABLE, readable=False)
        request.answer(report, final=True)

    def _broker_status(self, request: Request, _: admin.BrokerStatus) -> None:
        request.answer(self._condition.report(), final=True)


_LAST = (admin.GrantsCheckEnd, admin.GrantsVerdict)


def _answer_all(request: Request, answers: Iterable[object]) -> None:
    for answer in answers:
        request.answer(answer, final=isinstance(answer, _LAST))


def _summary(question: Question) -> admin.ApprovalSummary:
    call = question.call
    return admin.ApprovalSummary(
        id=question.id,
        session=call.request.session,
        call=call.request.call,
        tool=call.kind.name,
        grant=question.grant,
        opened=question.opened,
        expires=question.expires,
        canonical=call.fingerprint,
    )


def _report(session: SessionId, labels: Labels, *, readable: bool = True) -> state.SessionStateReport:
    return state.SessionStateReport(
        session=session, taint=labels.data_class, untrusted=labels.untrusted, readable=readable
    )


def _typed(kind: type[Message], handle: Callable[[Request, Message], None]) -> Handler:
    def handler(request: Request) -> None:
        if not isinstance(request.message, kind):
            raise BoxmakerError("the request table names the wrong type")
        handle(request, request.message)

    return handler
