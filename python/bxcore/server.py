"""Serves the framed sockets of one role until it is told to stop.

Threads: the main one accepts, one worker a connection. Shared: who is connected, under `_lock`, never
held while calling out. Invariant: a door has at most `max_connections` connections, and its reserve
beside them, so that a flood at one door leaves the others their threads and descriptors.
"""

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence

import attrs

from bxcore import exchange, logs
from bxcore.deadline import Clock, Deadline
from bxcore.exchange import Conversation, Handler, Patience, Request
from bxcore.frame import PeerGone
from bxcore.listener import Entrance, Listening
from bxcore.wire.control import ErrorCode, WireFault

__all__ = ["Door", "Handler", "PeerGone", "Request", "Server"]

MAX_CONNECTIONS = 64
FRAME_MS = 10_000
IDLE_MS = 600_000
SEND_MS = 30_000
DRAIN_SECONDS = 5

_LEAVE_MS = 1_000
"""What an idle worker gets to end in once its connection has been cut; it needs microseconds."""

log = logs.get("server")


@attrs.frozen(kw_only=True)
class Door:
    """One socket: who may enter is decided by its directory, what may be asked by `handlers`.

    A message that is in no handler's place is answered with `forbidden`. Where all `max_connections` are at
    work, `reserved_connections` more may come in; on those, only the types in `reserved` are served, the rest
    is too busy. Reserve what is answered at once, and what ends the work of others.
    """

    listening: Listening
    name: str
    handlers: Mapping[type, Handler]
    max_connections: int = MAX_CONNECTIONS
    reserved: frozenset[type] = frozenset()
    reserved_connections: int = 0

    def in_reserve(self) -> Mapping[type, Handler]:
        """Return the handlers of a connection of the reserve."""
        return {kind: handle if kind in self.reserved else self.too_busy for kind, handle in self.handlers.items()}

    def too_busy(self, request: Request) -> None:
        """Answer a request for which there is no room; a Handler."""
        log.warning("refused socket=%s code=too_busy", self.name)
        request.answer(self.full(), final=True)

    def full(self) -> WireFault:
        """Return what a client is told for which there is no room."""
        detail = f"{self.max_connections} connections are at work; try again"
        return WireFault(code=ErrorCode.TOO_BUSY, detail=detail)


class _Guest:
    """One connection. `busy`: a handler runs. `dropped`: given up, no further handler may begin.

    `reserved`: it came in through the reserve. `last_active` numbers its coming and the end of each
    request; the smallest is idle longest.
    """

    def __init__(self, door: Door, connection: socket.socket, *, last_active: int) -> None:
        self.door = door
        self.connection = connection
        self.last_active = last_active
        self.reserved = False
        self.busy = False
        self.dropped = False
        self.worker: threading.Thread | None = None

    def join(self, milliseconds: int) -> bool:
        """Wait for the worker to end; say whether it has."""
        if self.worker is None:
            return True
        self.worker.join(milliseconds / 1000)
        return not self.worker.is_alive()


class Server:
    """`serve` until `stop`. The doors' listeners stop accepting then; their locks stay with the caller."""

    def __init__(
        self,
        doors: Sequence[Door],
        *,
        clock: Clock,
        frame_ms: int = FRAME_MS,
        idle_ms: int = IDLE_MS,
        send_ms: int = SEND_MS,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self._doors = {door.listening: door for door in doors}
        self._entrance = Entrance([door.listening for door in doors])
        self._clock = clock
        self._patience = Patience(frame_ms=frame_ms, idle_ms=idle_ms, send_ms=send_ms)
        self._drain_ms = int(drain_seconds * 1000)
        self._lock = threading.Lock()
        self._guests: set[_Guest] = set()
        self._activity = itertools.count()

    def stop(self) -> None:
        """Make `serve` drain and return. Any thread, signal handlers too; harmless when repeated."""
        self._entrance.stop()

    def serve(self, *, before_drain: Callable[[], None] = lambda: None) -> None:
        """Accept and serve until `stop`; then let requests in progress finish, up to the drain deadline.

        `before_drain` is called in between, in this thread: what takes locks has no place in a signal handler.
        """
        log.info("serving doors=%s", ",".join(door.name for door in self._doors.values()))
        for listening, connection in self._entrance.connections():
            self._admit(self._doors[listening], connection)
        before_drain()
        left = self._drain()
        self._entrance.close()
        log.info("stopped workers_left=%d", left)

    # -- coming in ------------------------------------------------------------------------------

    def _admit(self, door: Door, connection: socket.socket) -> None:
        guest = _Guest(door, connection, last_active=next(self._activity))
        guest.reserved = not self._make_room(door, reserved=False)
        if guest.reserved and not self._make_room(door, reserved=True):
            log.warning("refused socket=%s code=too_busy", door.name)
            fault = door.full()
            exchange.refuse(connection, fault.code, fault.detail, clock=self._clock)
            connection.close()
            return
        guest.worker = threading.Thread(target=self._work, args=(guest,), name=door.name, daemon=True)
        with self._lock:
            self._guests.add(guest)
        log.info("connected socket=%s uid=%d", door.name, _peer_uid(connection))
        try:
            guest.worker.start()
        except RuntimeError:  # no more threads: as with descriptors, the next one may have better luck
            log.error("refused socket=%s code=threads_exhausted", door.name)
            self._remove(guest)

    def _make_room(self, door: Door, *, reserved: bool) -> bool:
        """Say whether the door, or its reserve, has room; a full one drops the connection that is idle longest."""
        most = door.reserved_connections if reserved else door.max_connections
        with self._lock:
            guests = [guest for guest in self._guests if guest.door is door and guest.reserved is reserved]
            if len(guests) < most:
                return True
            idle = [guest for guest in guests if not guest.busy]
            if not idle:
                return False
            longest = min(idle, key=lambda guest: guest.last_active)
            longest.dropped = True
        log.info("dropped longest idle socket=%s", door.name)
        self._cut([longest], socket.SHUT_RDWR)
        # Joined, so that a flood cannot pile up threads and descriptors faster than they end.
        return longest.join(_LEAVE_MS)

    # -- one worker -----------------------------------------------------------------------------

    def _work(self, guest: _Guest) -> None:
        door = guest.door
        conversation = Conversation(
            guest.connection,
            door.in_reserve() if guest.reserved else door.handlers,
            socket_name=door.name,
            clock=self._clock,
            patience=self._patience,
        )
        try:
            conversation.hold(begin=lambda: self._begin(guest), end=lambda: self._end(guest))
        except Exception:
            log.exception("connection failed socket=%s code=internal", door.name)
        finally:
            self._remove(guest)

    def _begin(self, guest: _Guest) -> bool:
        with self._lock:
            guest.busy = not guest.dropped
            return guest.busy

    def _end(self, guest: _Guest) -> None:
        with self._lock:
            guest.busy = False
            guest.last_active = next(self._activity)

    def _remove(self, guest: _Guest) -> None:
        with self._lock:
            self._guests.discard(guest)
        guest.connection.close()

    # -- going out ------------------------------------------------------------------------------

    def _drain(self) -> int:
        """End all reading, wait for the workers, cut the rest; return how many did not end even then."""
        deadline = Deadline.after(self._clock, milliseconds=self._drain_ms)
        for door in self._doors.values():
            door.listening.refuse()
        with self._lock:
            guests = list(self._guests)
            for guest in guests:
                guest.dropped = True
        self._cut(guests, socket.SHUT_RD)
        late = [guest for guest in guests if not guest.join(deadline.remaining_ms())]
        if late:
            log.warning("cut requests=%d code=drain_passed", len(late))
        self._cut(late, socket.SHUT_RDWR)
        grace = Deadline.after(self._clock, milliseconds=_LEAVE_MS)
        return sum(not guest.join(grace.remaining_ms()) for guest in late)

    def _cut(self, guests: Sequence[_Guest], how: int) -> None:
        """End the connections' reading, or all of it, under whoever waits on them."""
        with self._lock:  # who is in the set has not been closed, so its descriptor is still its own
            for guest in self._guests.intersection(guests):
                with contextlib.suppress(OSError):  # the peer has left by itself
                    guest.connection.shutdown(how)


def _peer_uid(connection: socket.socket) -> int:
    """Return the uid of the peer, for the log alone: it cannot tell two roles' containers apart."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])
