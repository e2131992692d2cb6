"""Asks another role over its socket: one request, then its frames until the final one.

Every wait has a deadline. All failures are UpstreamError: time, or starting the other role, mends
them. Threads: a Connection belongs to one at a time.
"""

import errno
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from bxcore import envelope, frame
from bxcore.deadline import Clock, Deadline
from bxcore.envelope import NO_REQUEST, Envelope
from bxcore.errors import BoxmakerError, DeadlinePassed, FrameTooLarge, UpstreamError, WireError
from bxcore.wire.control import WireFault

CONNECT_MS = 2_000
FRAME_MS = 10_000
SEND_MS = 10_000

_ROLES = {
    "infer.sock": "inferproxy",
    "loop.sock": "loopd",
    "broker.sock": "brokerd",
    "admin.sock": "brokerd",
    "state.sock": "brokerd",
    "gateway.sock": "gatewayd",
    "memory.sock": "memoryd",
}


class PeerAway(UpstreamError):
    """Nobody listens on the socket."""

    code = "peer_away"


class PeerDenied(UpstreamError):
    """The socket's directory is closed to this user."""

    code = "peer_denied"


class PeerLeft(UpstreamError):
    """The role went away before its final frame."""

    code = "peer_gone"


class PeerSilent(UpstreamError):
    """No frame came in the time that one may take."""

    code = "peer_silent"


class PeerUnclear(UpstreamError):
    """The role answered with something that is no answer: two versions of Boxmaker, most likely."""

    code = "peer_unclear"


class RemoteFault(UpstreamError):
    """The role answered with an error frame; `code` is the one that it gave."""

    def __init__(self, fault: WireFault) -> None:
        super().__init__(fault.detail)
        self.code = fault.code.value


class Connection:
    """A connection to one role, for one request after the other."""

    def __init__(self, path: Path, *, clock: Clock, connect_ms: int = CONNECT_MS) -> None:
        self._role = _ROLES.get(path.name, path.name)
        self._clock = clock
        self._last_id = NO_REQUEST
        self._pending = False
        self._socket = self._dial(path, connect_ms)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave; what the role was doing for us it may notice or finish."""
        self._socket.close()

    def fileno(self) -> int:
        """The socket's descriptor, for waiting with select; -1 once it is closed."""
        return self._socket.fileno()

    def request(self, message: object, *, idle_ms: int = FRAME_MS, number: int | None = None) -> Iterator[Envelope]:
        """Send `message` at once and return its frames, each within `idle_ms` of the one before.

        `number` is the envelope's id where the caller has one of his own.

        An iteration that is given up, or that raises anything but RemoteFault, closes the connection:
        the frames that are still to come would be taken for the next answer.
        """
        if self._socket.fileno() < 0:
            raise PeerLeft(f"the connection to {self._role} is closed; open another")
        if self._pending:
            raise RuntimeError("the answers to the request before were not read to their end")
        self._pending = True
        self._last_id = self._last_id + 1 if number is None else number
        payload = envelope.encode(Envelope(id=self._last_id, final=True, msg=message))
        try:
            frame.send(self._socket, payload, Deadline.after(self._clock, milliseconds=SEND_MS))
        except frame.PeerGone:
            pass  # it may have said why before it left: the first receive finds out
        except DeadlinePassed as error:
            self.close()
            raise PeerSilent(f"{self._role} did not take the request within {SEND_MS} ms") from error
        return self._answers(idle_ms)

    def _answers(self, idle_ms: int) -> Iterator[Envelope]:
        try:
            while self._pending:
                answer = self._next(idle_ms)
                self._pending = not answer.final
                if isinstance(answer.msg, WireFault):
                    raise RemoteFault(answer.msg)
                yield answer
        finally:
            if self._pending:
                self.close()

    def _next(self, idle_ms: int) -> Envelope:
        try:
            answer = envelope.decode(self._receive(idle_ms))
        except WireError as error:
            raise PeerUnclear(f"{self._role} answered with something else: {error.detail}") from error
        # An error without an id answers something whose id the role could not read.
        unread = answer.id == NO_REQUEST and isinstance(answer.msg, WireFault)
        if answer.id != self._last_id and not unread:
            raise PeerUnclear(f"{self._role} answered another request")
        return answer

    def _receive(self, idle_ms: int) -> bytes:
        idle = Deadline.after(self._clock, milliseconds=idle_ms)
        try:
            untrusted = frame.receive(self._socket, idle, frame_ms=FRAME_MS)
        except DeadlinePassed as error:
            raise PeerSilent(f"{self._role} said nothing for {idle_ms} ms, or stopped inside a frame") from error
        except FrameTooLarge:
            raise
        except WireError as error:
            raise PeerLeft(f"{self._role} left inside an answer; its log says why") from error
        if untrusted is None:
            raise PeerLeft(f"{self._role} left before it had answered; its log says why")
        return untrusted

    def _dial(self, path: Path, connect_ms: int) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The kernel's own send timeout, not settimeout(): with that, connect() to a listener whose
            # queue is full fails at once instead of waiting for room.
            wait = struct.pack("ll", connect_ms // 1000, connect_ms % 1000 * 1000)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
            connection.connect(str(path))
        except OSError as error:
            connection.close()
            raise self._unreachable(path, error, connect_ms) from error
        return connection

    def _unreachable(self, path: Path, error: OSError, connect_ms: int) -> BoxmakerError:
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTDIR):
            return PeerAway(f"{self._role} is not running: nothing listens on {path}; see docs/runbook.md#peer_away")
        if error.errno in (errno.EACCES, errno.EPERM):
            return PeerDenied(f"this user may not connect to {self._role} on {path}; see docs/runbook.md#peer_denied")
        if error.errno == errno.EAGAIN:
            return PeerSilent(f"{self._role} did not accept a connection within {connect_ms} ms")
        return PeerAway(f"cannot connect to {self._role} on {path}: {error.strerror or error}")
