"""loop.sock: a client's request -> the session, and the session's events -> the client.

The request table is at the end. Threads: a worker of the server for each connection; it forwards
a turn's events and may leave at any time without the turn noticing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from bxcore.errors import BadMessage, BoxmakerError, Forbidden, UpstreamError
from bxcore.server import Handler, PeerGone, Request
from bxcore.wire import channel as wire
from bxcore.wire.control import ErrorCode, WireFault
from loopd import fitting
from loopd.broadcast import Lagged, Listener
from loopd.faults import NotReady, NoTurn, TextTooLong
from loopd.parts import Parts
from loopd.reports import Reports
from loopd.selftest import Check
from loopd.session import Accepted, Followed, Session
from loopd.sessions import Sessions
from loopd.sharedtest import SharedTest
from loopd.watch import ServerWatch

Message = TypeVar("Message")

RESERVED: frozenset[type] = frozenset({wire.TurnCancel, wire.LoopStatus})
"""Answered at once with a single frame, so served even where all connections follow turns."""

RESERVED_CONNECTIONS = 8

_LOOK_SECONDS = 1.0
"""How often a worker that waits for events looks whether its client is still there."""


_UNKNOWN = WireFault(code=ErrorCode.INTERNAL, detail="the events of this turn broke off; look it up with turn_follow")


class Channel:
    """The handlers of loop.sock."""

    def __init__(self, parts: Parts, *, sessions: Sessions, reports: Reports, watch: ServerWatch) -> None:
        self._parts, self._sessions, self._reports, self._watch = parts, sessions, reports, watch
        self._self_tests = SharedTest(watch.checks)

    def handlers(self) -> Mapping[type, Handler]:
        """The request table: what may be said on loop.sock, by bxctl and gatewayd alike."""
        return {
            wire.UserMessage: _typed(wire.UserMessage, self._user_message),
            wire.TurnFollow: _typed(wire.TurnFollow, self._turn_follow),
            wire.TurnCancel: _typed(wire.TurnCancel, self._turn_cancel),
            wire.SessionList: _typed(wire.SessionList, self._session_list),
            wire.SessionShow: _typed(wire.SessionShow, self._session_show),
            wire.CacheReport: _typed(wire.CacheReport, self._cache_report),
            wire.SelfTest: _typed(wire.SelfTest, self._self_test),
            wire.LoopStatus: _typed(wire.LoopStatus, self._loop_status),
        }

    def gateway_handlers(self) -> Mapping[type, Handler]:
        """The part of the table that gatewayd may use, in its own sessions: what others said is not for its eyes."""
        every = self.handlers()
        return {
            wire.UserMessage: _own_sessions(every[wire.UserMessage]),
            wire.TurnFollow: _own_sessions(every[wire.TurnFollow]),
            wire.TurnCancel: _own_sessions(every[wire.TurnCancel]),
            wire.LoopStatus: every[wire.LoopStatus],
        }

    # -- turns ----------------------------------------------------------------------------------

    def _user_message(self, request: Request, message: wire.UserMessage) -> None:
        if not self._watch.ready:
            raise NotReady(f"loopd is waiting for {self._watch.waiting_for}")
        if not message.text.strip():
            raise BadMessage("text: expected something other than white space")
        size_bytes = len(message.text.encode())
        if size_bytes > wire.MAX_TEXT_BYTES:
            raise TextTooLong(f"the message is {size_bytes} bytes long; the limit is {wire.MAX_TEXT_BYTES}")
        session, accepted = self._sessions.say(message.session, message.key, message.text, new=message.new)
        request.answer(
            wire.MessageAccepted(
                session=message.session,
                key=message.key,
                turn=accepted.turn,
                queued=accepted.queued,
                duplicate=accepted.duplicate,
            ),
            final=False,
        )
        self._forward(request, session, accepted)

    def _turn_follow(self, request: Request, message: wire.TurnFollow) -> None:
        session, followed = self._sessions.follow(message.session, message.turn)
        if followed is None:
            raise NoTurn("the session has no such turn")
        heard = followed.listener
        snapshot = wire.TurnSnapshot(
            turn=followed.turn,
            state=followed.state,
            step=heard.step if heard else 0,
            reasoning=heard.reasoning if heard else "",
            text=heard.text if heard else "",
        )
        _tell(request, snapshot)
        self._forward(request, session, followed)

    def _forward(self, request: Request, session: Session, told: Accepted | Followed) -> None:
        if told.listener is None:
            _tell(request, self._reports.ended(session.id, told.turn))
            return
        try:
            self._forward_events(request, told.listener)
        except Lagged:
            detail = "this client read too slowly and was let go; the turn goes on, look it up with turn_follow"
            request.answer(WireFault(code=ErrorCode.LAGGED, detail=detail), final=True)
        finally:
            session.leave(told)

    def _forward_events(self, request: Request, listener: Listener) -> None:
        for event in listener.events(look_seconds=_LOOK_SECONDS):
            if event is None:
                if request.peer_left():
                    raise PeerGone("the client left; its turn goes on")
                continue
            _tell(request, event)
            if isinstance(event, wire.TurnEnded):
                return
        request.answer(listener.fault or _UNKNOWN, final=True)

    def _turn_cancel(self, request: Request, message: wire.TurnCancel) -> None:
        turn = self._sessions.cancel(message.session, message.turn)
        request.answer(wire.TurnCancelNoted(session=message.session, turn=turn), final=True)

    # -- looking --------------------------------------------------------------------------------

    def _session_list(self, request: Request, message: wire.SessionList) -> None:
        if message.limit < 1:
            raise BadMessage("limit: expected 1 or more")
        for summary in self._reports.summaries(message.limit):
            request.answer(summary, final=False)
        request.answer(wire.SessionListEnd(total=self._reports.count()), final=True)

    def _session_show(self, request: Request, message: wire.SessionShow) -> None:
        lines = 0
        for record in self._reports.lines(message.session):
            request.answer(record, final=False)
            lines += not record.more
        request.answer(wire.SessionShowEnd(lines=lines), final=True)

    def _cache_report(self, request: Request, message: wire.CacheReport) -> None:
        rows = []
        for row in self._reports.cache_rows(message.session):
            request.answer(row, final=False)
            rows.append((row.prompt, row.cached, row.read, row.reread, int(row.lost)))
        prompt, cached, read, reread, lost = (sum(column) for column in zip(*rows, strict=True)) if rows else (0,) * 5
        end = wire.CacheReportEnd(rows=len(rows), prompt=prompt, cached=cached, read=read, reread=reread, lost=lost)
        request.answer(end, final=True)

    def _self_test(self, request: Request, _: wire.SelfTest) -> None:
        passed = failed = 0
        if request.peer_left():
            raise PeerGone("the client left before its self-test")
        for check in self._checks(request):
            passed, failed = (passed + 1, failed) if check.passed else (passed, failed + 1)
            request.answer(
                wire.CheckResult(
                    name=check.name,
                    passed=check.passed,
                    expected=check.expected,
                    found=check.found,
                    runbook=check.runbook,
                ),
                final=False,
            )
        request.answer(wire.SelfTestEnd(passed=passed, failed=failed), final=True)

    def _checks(self, request: Request) -> Iterable[Check]:
        try:
            checks = self._self_tests.checks(left=request.peer_left, look_seconds=_LOOK_SECONDS)
        except UpstreamError as fault:
            expected = "a model server that can be asked"
            return [Check(name="self-test", passed=False, expected=expected, found=fault.detail, runbook=fault.code)]
        if checks is None:
            raise PeerGone("the client left during its self-test")
        return checks

    def _loop_status(self, request: Request, _: wire.LoopStatus) -> None:
        slots = self._parts.settings.slots
        request.answer(
            wire.LoopStatusReport(
                ready=self._watch.ready,
                waiting_for=self._watch.waiting_for,
                running_turns=self._sessions.running(),
                open_sessions=self._sessions.open_count(),
                model=self._watch.model,
                n_ctx=self._watch.n_ctx,
                main_slot=slots.main,
                background_slot=slots.background,
            ),
            final=True,
        )


def _tell(request: Request, event: object) -> None:
    for piece in fitting.pieces(event):
        request.answer(piece, final=isinstance(piece, wire.TurnEnded))


def _own_sessions(handle: Handler) -> Handler:
    def handler(request: Request) -> None:
        session = getattr(request.message, "session", "")
        if not session.startswith(wire.GATEWAY_SESSIONS):
            raise Forbidden(f"session: the gateway's begin with {wire.GATEWAY_SESSIONS}; others are not its own")
        handle(request)

    return handler


def _typed(kind: type[Message], handle: Callable[[Request, Message], None]) -> Handler:
    def handler(request: Request) -> None:
        if not isinstance(request.message, kind):
            raise BoxmakerError("the request table names the wrong type")
        handle(request, request.message)

    return handler
