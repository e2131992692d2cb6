"""One connection's conversation: a request at a time, its answers, and one word about what was wrong.

Invariant: every request gets frames of its own id, exactly one of them final, unless the peer left.
What is wrong before a handler runs (frame, version, message, socket) is answered once and ends the
connection; what a handler raises is answered and the connection goes on. Threads: one per connection;
a Request belongs to that thread. Specified in docs/protocol.md.
"""

import select
import socket
from collections.abc import Callable, Mapping

import attrs

from bxcore import envelope, frame, logs
from bxcore.deadline import Clock, Deadline
from bxcore.envelope import NO_REQUEST, Envelope
from bxcore.errors import BadMessage, BoxmakerError, DeadlinePassed, Forbidden, StateError, UpstreamError, WireError
from bxcore.frame import IdlePassed, PeerGone
from bxcore.wire.control import ErrorCode, WireFault
from bxcore.wire.kinds import KIND_OF

REFUSAL_MS = 100
"""What a last word may take: a peer that does not read now would be handed our time."""

log = logs.get("exchange")

_CODES = {code.value: code for code in ErrorCode}


@attrs.frozen(kw_only=True)
class Patience:
    """How long a peer may take, in milliseconds: for one frame, between two, to take an answer."""

    frame_ms: int
    idle_ms: int
    send_ms: int


class Request:
    """One message of a peer and the way back to it. For the handler's thread only."""

    def __init__(self, asked: Envelope, connection: socket.socket, *, socket_name: str, clock: Clock, send_ms: int):
        self.id = asked.id
        self.message = asked.msg
        self.socket_name = socket_name
        self.answered = False
        self._connection = connection
        self._clock = clock
        self._send_ms = send_ms

    def answer(self, message: object, *, final: bool) -> None:
        """Send one frame; nothing may follow a final one.

        Raises PeerGone where the peer has left, or has not taken the frame within the send deadline.
        """
        if self.answered:
            raise RuntimeError(f"a frame after the final one: {type(message).__name__}")
        payload = envelope.encode(Envelope(id=self.id, final=final, msg=message))
        if len(payload) > frame.MAX_FRAME:  # our fault, so not the WireError that send() would raise
            raise RuntimeError(f"an answer of {len(payload)} bytes: {type(message).__name__}")
        self.answered = final
        try:
            frame.send(self._connection, payload, Deadline.after(self._clock, milliseconds=self._send_ms))
        except DeadlinePassed as error:
            raise PeerGone(f"the peer did not take a frame within {self._send_ms} ms") from error

    def peer_left(self) -> bool:
        """Say whether the peer has closed. One that only ended its sending still reads: it has not left."""
        return self.wait_peer(0)

    def wait_peer(self, timeout_ms: int) -> bool:
        """Wait up to `timeout_ms` for the peer to leave; say whether it has."""
        poll = select.poll()
        poll.register(self._connection, 0)  # a hang-up is reported unasked, and nothing else is
        return bool(poll.poll(timeout_ms))


Handler = Callable[[Request], None]
"""Answers one request, the last frame final, or raises; may just return where the peer has left."""


class Conversation:
    """What is said on one connection. Does not close it."""

    def __init__(
        self,
        connection: socket.socket,
        handlers: Mapping[type, Handler],
        *,
        socket_name: str,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self._connection = connection
        self._handlers = handlers
        self._socket_name = socket_name
        self._clock = clock
        self._patience = patience

    def hold(self, *, begin: Callable[[], bool], end: Callable[[], None]) -> None:
        """Serve requests until the peer leaves or may not go on.

        `begin` is asked before each handler and says no where the connection has been given up
        meanwhile; `end` is told after it.
        """
        while (request := self._next_request()) is not None and begin():
            try:
                self._handle(request)
            except PeerGone:
                kind = KIND_OF[type(request.message)]
                log.info("peer gone during answer socket=%s kind=%s", self._socket_name, kind)
                return
            finally:
                end()

    def _next_request(self) -> Request | None:
        """Return the next request that this socket may carry; None where the conversation is over."""
        untrusted: bytes | None = None
        try:
            idle = Deadline.after(self._clock, milliseconds=self._patience.idle_ms)
            untrusted = frame.receive(self._connection, idle, frame_ms=self._patience.frame_ms)
            if untrusted is None:
                return None
            return self._request(envelope.decode(untrusted))
        except (PeerGone, IdlePassed):
            return None
        except WireError as error:
            log.warning("refused socket=%s code=%s detail=%s", self._socket_name, error.code, error.detail)
            request_id = NO_REQUEST if untrusted is None else envelope.request_id(untrusted)
            refuse(self._connection, _code(error), error.detail, clock=self._clock, request_id=request_id)
            return None

    def _request(self, asked: Envelope) -> Request:
        if type(asked.msg) not in self._handlers:
            raise Forbidden(f"{KIND_OF[type(asked.msg)]}: not a request of this socket")
        if not asked.final:
            raise BadMessage("final: expected true, a request is one frame")
        return Request(
            asked,
            self._connection,
            socket_name=self._socket_name,
            clock=self._clock,
            send_ms=self._patience.send_ms,
        )

    def _handle(self, request: Request) -> None:
        try:
            self._handlers[type(request.message)](request)
            if not request.answered:
                raise PeerGone("the peer left") if request.peer_left() else RuntimeError("no final frame")
        except PeerGone:
            raise
        except (StateError, UpstreamError) as error:  # the world's fault: where it was met would help nobody
            log.warning("request failed socket=%s code=%s detail=%s", self._socket_name, error.code, error.detail)
            _fail_with(request, error)
        except BoxmakerError as error:
            if error.code not in _CODES:
                log.exception("request failed socket=%s code=%s", self._socket_name, error.code)
            _fail_with(request, error)
        except Exception:
            log.exception("request failed socket=%s code=internal", self._socket_name)
            _fail(request, ErrorCode.INTERNAL, "a fault of ours; the log says where")


def refuse(
    connection: socket.socket, code: ErrorCode, detail: str, *, clock: Clock, request_id: int = NO_REQUEST
) -> None:
    """Say one error frame, as far as the peer takes it, on a connection that is about to be closed."""
    fault = Envelope(id=request_id, final=True, msg=WireFault(code=code, detail=detail))
    try:
        frame.send(connection, envelope.encode(fault), Deadline.after(clock, milliseconds=REFUSAL_MS))
    except WireError:
        pass  # gone, or not reading: the close that follows says the rest


def _fail_with(request: Request, error: BoxmakerError) -> None:
    _fail(request, _code(error), error.detail if error.code in _CODES else str(error))


def _fail(request: Request, code: ErrorCode, detail: str) -> None:
    if not request.answered:
        request.answer(WireFault(code=code, detail=detail), final=True)


def _code(error: BoxmakerError) -> ErrorCode:
    return _CODES.get(error.code, ErrorCode.INTERNAL)
