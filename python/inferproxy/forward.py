"""Moves bytes between two connected sockets until both directions have ended.

The bytes go from socket to socket through a kernel pipe (splice) and never enter this process, so
it could neither read nor log them. Back-pressure: a direction reads on only when what it holds (one
pipe) has been taken. Half-close: the end of one direction is passed on, the other goes on.
Threads: one per `relay`. Descriptors: four per `relay` beside the two sockets.
"""

import contextlib
import fcntl
import os
import select
import socket
from collections.abc import Iterator
from enum import Enum

PIPE_BYTES = 524_288
"""What one direction may hold. Measured: twice the throughput of 64 KiB on a large body, and a 1 MiB
pipe gains little but reaches the kernel's allowance for a user's pipes (64 MiB) at 32 connections."""

_ROUNDS = 4
"""Reads that one direction may make before the other has its turn."""

_FLAGS = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE
_GONE = select.POLLHUP | select.POLLERR


class Ending(Enum):
    """Why a relay ended."""

    FINISHED = "finished"
    CLIENT_LEFT = "client_left"
    IDLE = "idle"
    BROKEN = "broken"


class Flow:
    """One direction. `held` bytes lie in the pipe; `ended`: the source will send no more."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.held = 0
        self.ended = False
        self.finished = False
        self._out, self._in = os.pipe()
        with contextlib.suppress(OSError):  # this user has many pipes: 64 KiB does as well, slower
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)

    def wants_input(self) -> bool:
        return not self.held and not self.ended

    def move(self) -> None:
        """Move what can be moved without waiting; pass the end on once everything before it is out."""
        for _ in range(_ROUNDS):
            if self.wants_input():
                self._fill()
            if not self.held or not self._drain():
                break
        if self.ended and not self.held and not self.finished:
            self.finished = True
            self.sink.shutdown(socket.SHUT_WR)

    def _fill(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.held = os.splice(self.source.fileno(), self._in, PIPE_BYTES, flags=_FLAGS)
            self.ended = self.held == 0

    def _drain(self) -> bool:
        """Say whether the pipe is empty now."""
        with contextlib.suppress(BlockingIOError):
            while self.held:
                self.held -= os.splice(self._out, self.sink.fileno(), self.held, flags=_FLAGS)
        return not self.held


def relay(client: socket.socket, server: socket.socket, *, idle_ms: int) -> Ending:
    """Forward both ways until both have ended, the client has left, or nothing moved for `idle_ms`.

    Closes neither socket: the caller closes both, at once, so that the server sees a client go.
    """
    client.settimeout(0)
    server.settimeout(0)
    try:
        with _flow(client, server) as up, _flow(server, client) as down:
            return _pump(up, down, idle_ms)
    except OSError:  # a reset by either side, or no descriptors for the pipes
        return Ending.BROKEN


@contextlib.contextmanager
def _flow(source: socket.socket, sink: socket.socket) -> Iterator[Flow]:
    flow = Flow(source, sink)
    try:
        yield flow
    finally:
        flow.close()


def _pump(up: Flow, down: Flow, idle_ms: int) -> Ending:
    client = up.source.fileno()
    while not (up.finished and down.finished):
        ready = dict(_poll(up, down).poll(idle_ms))
        if not ready:
            return Ending.IDLE
        # A Unix peer that only ended its sending is not "gone" to poll(), one that closed is. Once
        # we have ended our own sending, its end of sending looks the same: then it is read as one.
        if ready.get(client, 0) & _GONE and not down.finished:
            return Ending.CLIENT_LEFT
        up.move()
        down.move()
    return Ending.FINISHED


def _poll(up: Flow, down: Flow) -> select.poll:
    """Return a poll of what matters now. A side of no interest is left out: its hang-up would spin."""
    poll = select.poll()
    for side, reading, writing in ((up.source, up, down), (down.source, down, up)):
        events = (select.POLLIN if reading.wants_input() else 0) | (select.POLLOUT if writing.held else 0)
        watched = side is up.source and not down.finished  # for its leaving, at any time
        if events or watched:
            poll.register(side, events)
    return poll
