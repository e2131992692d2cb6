"""Frames on a Unix stream socket: 4 bytes of length, big-endian, then that many bytes.

Reads and writes: the socket that is handed in, which must be in blocking mode (it is never changed:
waiting is done with poll). Invariant: a length of 0 or above MAX_FRAME is refused before anything is
allocated or read. Descriptors that a peer passes along are dropped by the kernel, because nothing
here calls recvmsg. One thread may receive while another sends. Specified in docs/protocol.md.
"""

import select
import socket

from bxcore.deadline import Deadline
from bxcore.errors import DeadlinePassed, FrameTooLarge, WireError

MAX_FRAME = 1_048_576
HEADER_BYTES = 4


class IdlePassed(DeadlinePassed):
    """Not one byte of a frame came within the time given: nobody is at fault."""

    code = "deadline"


class PeerGone(WireError):
    """The peer has left, or takes nothing any more; nothing can be said to it."""

    code = "peer_gone"


def receive(sock: socket.socket, idle: Deadline, *, frame_ms: int) -> bytes | None:
    """Return one payload (1 to MAX_FRAME bytes), or None where the peer left between frames.

    Waits until `idle` for the first byte (IdlePassed after that); from the first byte on, the whole
    frame has `frame_ms` (DeadlinePassed), however the bytes trickle in. FrameTooLarge comes before
    the body is read; WireError where the peer left inside a frame.
    """
    header = bytearray(HEADER_BYTES)
    view = memoryview(header)
    try:
        count = _receive_some(sock, view, idle)
    except DeadlinePassed:
        raise IdlePassed("nothing came in the time that the connection may be idle") from None
    except PeerGone:
        return None
    if count == 0:
        return None
    deadline = Deadline.after(idle.clock, milliseconds=frame_ms)
    _fill(sock, view[count:], deadline)
    size = int.from_bytes(header, "big")
    _check_size(size)
    body = bytearray(size)
    _fill(sock, memoryview(body), deadline)
    return bytes(body)


def send(sock: socket.socket, payload: bytes, deadline: Deadline) -> None:
    """Send one frame. Raises PeerGone, DeadlinePassed (the peer reads too slowly) or FrameTooLarge.

    After any of the first two a part of the frame may have left: the connection must be closed.
    """
    _check_size(len(payload))
    rest = memoryview(len(payload).to_bytes(HEADER_BYTES, "big") + payload)
    while rest:
        rest = rest[_send_some(sock, rest, deadline) :]


def _check_size(size: int) -> None:
    if not 1 <= size <= MAX_FRAME:
        raise FrameTooLarge(f"expected a frame of 1 to {MAX_FRAME} bytes, got one of {size}")


def _fill(sock: socket.socket, view: memoryview, deadline: Deadline) -> None:
    while view:
        count = _receive_some(sock, view, deadline)
        if count == 0:
            raise WireError(f"the peer left inside a frame, {len(view)} bytes before its next mark")
        view = view[count:]


def _receive_some(sock: socket.socket, view: memoryview, deadline: Deadline) -> int:
    while True:
        # The deadline is asked each time: a peer that sends one byte in ten seconds always has some.
        _check(deadline)
        try:
            return sock.recv_into(view, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            _wait(sock, select.POLLIN, deadline)
        except OSError as error:
            raise PeerGone(f"the peer left: {error.strerror}") from None


def _send_some(sock: socket.socket, rest: memoryview, deadline: Deadline) -> int:
    while True:
        _check(deadline)
        try:
            return sock.send(rest, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            _wait(sock, select.POLLOUT, deadline)
        except OSError as error:
            raise PeerGone(f"the peer left: {error.strerror}") from None


def _wait(sock: socket.socket, direction: int, deadline: Deadline) -> None:
    poll = select.poll()
    try:
        poll.register(sock, direction)
    except ValueError:  # closed by another thread since the last call
        raise PeerGone("the connection was closed here") from None
    poll.poll(deadline.remaining_ms())


def _check(deadline: Deadline) -> None:
    if deadline.passed():
        raise DeadlinePassed("the peer did not finish a frame in the time that one may take")
