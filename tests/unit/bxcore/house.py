"""A server with two doors in a thread of the test's process, and a peer that can also misbehave."""

import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from bxcore import envelope, frame, listener
from bxcore.deadline import Deadline, SystemClock
from bxcore.envelope import Envelope
from bxcore.frame import PeerGone
from bxcore.ids import SessionId
from bxcore.server import Door, Handler, Request, Server
from bxcore.wire.channel import LoopStatus, SelfTestEnd, SessionShow
from bxcore.wire.control import ErrorCode, WireFault

CLOCK = SystemClock()
LONG_MS = 3_600_000
SHOW = SessionShow(session=SessionId("main"))


class Peer:
    """A client made of the frame codec alone, so that it can also say what must not be said."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise

    def ask(self, message: object, *, number: int = 7, final: bool = True) -> None:
        self.send(envelope.encode(Envelope(id=number, final=final, msg=message)))

    def send(self, payload: bytes) -> None:
        frame.send(self.socket, payload, Deadline.after(CLOCK, milliseconds=LONG_MS))

    def receive(self) -> Envelope | None:
        """Return the next frame, or None where the server has closed."""
        try:
            got = frame.receive(self.socket, Deadline.after(CLOCK, milliseconds=LONG_MS), frame_ms=LONG_MS)
        except PeerGone:
            return None
        return None if got is None else envelope.decode(got)

    def fault(self) -> tuple[int, ErrorCode]:
        """Return the id and the code of the error frame that must come next."""
        answer = self.receive()
        assert answer is not None
        assert isinstance(answer.msg, WireFault)
        assert answer.final
        return answer.id, answer.msg.code

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def status(request: Request) -> None:
    request.answer(SelfTestEnd(passed=1, failed=0), final=True)


class House:
    """A server with the doors `owner` and `gateway`, running in a thread of this process."""

    def __init__(
        self,
        directory: Path,
        handlers: Mapping[type, Handler],
        *,
        max_connections: int = 4,
        reserved: frozenset[type] = frozenset(),
        reserved_connections: int = 0,
        frame_ms: int = LONG_MS,
        idle_ms: int = LONG_MS,
        send_ms: int = LONG_MS,
        drain_seconds: float = 3600,
    ) -> None:
        self.path, self.gateway = directory / "loop.sock", directory / "gateway.sock"
        self._doors = [
            Door(
                listening=listener.open_socket(self.path),
                name="owner",
                handlers=handlers,
                max_connections=max_connections,
                reserved=reserved,
                reserved_connections=reserved_connections,
            ),
            Door(listening=listener.open_socket(self.gateway), name="gateway", handlers={LoopStatus: status}),
        ]
        self.server = Server(
            self._doors,
            clock=CLOCK,
            frame_ms=frame_ms,
            idle_ms=idle_ms,
            send_ms=send_ms,
            drain_seconds=drain_seconds,
        )
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def peer(self) -> Peer:
        return Peer(self.path)

    def wait_until_idle(self) -> None:
        """Wait until no handler runs: an answer is out a moment before its handler has ended."""
        self.wait_until_idle_but(0)

    def wait_until_idle_but(self, busy: int) -> None:
        """Wait until only so many handlers run."""
        while sum(guest.busy for guest in list(self.server._guests)) > busy:
            pass

    def wait_for_workers(self, name: str = "owner") -> None:
        for thread in threading.enumerate():
            if thread.name == name:
                thread.join()

    def close(self) -> None:
        self.server.stop()
        self.thread.join()
        for door in self._doors:
            door.listening.close()


class Gate:
    """A handler that stays inside until it is let out, and shows its request meanwhile."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.leave = threading.Event()
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> None:
        self.requests.append(request)
        self.entered.release()
        self.leave.wait()
        status(request)


def assert_alive(house: House) -> None:
    with house.peer() as peer:
        peer.ask(LoopStatus())
        assert peer.receive() == Envelope(id=7, final=True, msg=SelfTestEnd(passed=1, failed=0))
