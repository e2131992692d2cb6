"""The stream of one running container: our bytes to its stdin, its stdout and stderr back, on one socket.

Podman frames what comes back: one byte which stream (1 stdout, 2 stderr), three of zero, four of length.
`Frames` reads that and is pure; `pump` moves the bytes, and stops at the end, at a limit, or when asked to.
Stdin is never closed here: it is the leash by which the container knows that brokerd lives.
"""

import select
import socket
from collections.abc import Callable

import attrs

from brokerd.exited import Stop
from bxcore.deadline import Deadline

STDOUT = 1
_HEADER = 8
_PIECE = 262_144
_GLANCE_MS = 25
"""How often a call that waits looks whether it was cancelled."""


class Frames:
    """Takes the framed stream apart, however it is cut. `stdout` grows to the cap at most, `size` counts everything."""

    def __init__(self, *, most_bytes: int) -> None:
        self.stdout = bytearray()
        self.size = 0
        self.broken = False
        self._most_bytes = most_bytes
        self._header = bytearray()
        self._stream, self._left = 0, 0

    @property
    def full(self) -> bool:
        """Whether more came than may come, both streams together."""
        return self.size > self._most_bytes

    @property
    def between(self) -> bool:
        """Whether the stream stands between two frames, where it may end."""
        return not self._header and not self._left

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Nothing is taken after a header that is none, or beyond the cap."""
        view = memoryview(data)
        while view and not self.broken and not self.full:
            view = self._take_body(view) if self._left else self._take_header(view)

    def _take_header(self, view: memoryview) -> memoryview:
        missing = _HEADER - len(self._header)
        self._header += view[:missing]
        if len(self._header) == _HEADER:
            self._stream, self._left = self._header[0], int.from_bytes(self._header[4:], "big")
            self.broken = self._stream > 2 or any(self._header[1:4])
            self._header.clear()
        return view[missing:]

    def _take_body(self, view: memoryview) -> memoryview:
        piece = view[: self._left]
        self._left -= len(piece)
        self.size += len(piece)
        if self._stream == STDOUT:
            self.stdout += piece[: max(0, self._most_bytes - len(self.stdout))]
        return view[len(piece) :]


@attrs.frozen(kw_only=True)
class Reading:
    """What a pump needs to know beside its socket."""

    deadline: Deadline
    cancelled: Callable[[], bool]


def pump(sock: socket.socket, stdin: bytes, frames: Frames, reading: Reading) -> Stop:
    """Send `stdin` and read into `frames` until something ends it. The socket stays open, with stdin open in it."""
    left = memoryview(stdin)
    poll = select.poll()
    while True:
        if frames.broken or frames.full:
            return Stop.BROKEN if frames.broken else Stop.OUTPUT
        if reading.cancelled():
            return Stop.CANCELLED
        if reading.deadline.passed():
            return Stop.DEADLINE
        poll.register(sock, select.POLLIN | (select.POLLOUT if left else 0))
        ready = poll.poll(min(_GLANCE_MS, reading.deadline.remaining_ms()))
        events = ready[0][1] if ready else 0
        if events & select.POLLOUT and left:
            left = _send(sock, left)
        if events & ~select.POLLOUT:
            try:
                data = sock.recv(_PIECE)
            except OSError:
                return Stop.BROKEN
            if not data:
                return Stop.END if frames.between else Stop.BROKEN
            frames.feed(data)


def _send(sock: socket.socket, left: memoryview) -> memoryview:
    """Send what fits. A container that does not want its input any more has ended, or will be seen to."""
    try:
        return left[sock.send(left, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]
    except BlockingIOError:
        return left
    except OSError:
        return left[:0]
