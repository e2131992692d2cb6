import array
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from bxcore import envelope, frame, listener
from bxcore.deadline import Deadline, SystemClock
from bxcore.envelope import NO_REQUEST, Envelope
from bxcore.errors import StateError, UpstreamError, WireError
from bxcore.frame import MAX_FRAME, PeerGone
from bxcore.ids import SessionId
from bxcore.server import Door, Handler, Request, Server
from bxcore.wire.channel import LoopStatus, SelfTestEnd, SessionList, SessionListEnd, SessionShow, TurnCancel
from bxcore.wire.control import ErrorCode, WireFault

CLOCK = SystemClock()
LONG_MS = 3_600_000
SECRET = "the owner's words"
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
        while any(guest.busy for guest in list(self.server._guests)):
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


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir(mode=0o750)
    return tmp_path / "run"


OpenHouse = Callable[..., House]


@pytest.fixture
def open_house(directory: Path) -> Iterator[OpenHouse]:
    opened: list[House] = []

    def opener(handlers: Mapping[type, Handler] | None = None, **settings: object) -> House:
        opened.append(House(directory, handlers or {LoopStatus: status}, **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield opener
    for house in opened:
        house.close()


def assert_alive(house: House) -> None:
    with house.peer() as peer:
        peer.ask(LoopStatus())
        assert peer.receive() == Envelope(id=7, final=True, msg=SelfTestEnd(passed=1, failed=0))


# -- requests and answers ----------------------------------------------------------------------


def test_every_frame_of_an_answer_has_the_id_of_its_request(open_house: OpenHouse) -> None:
    def count(request: Request) -> None:
        assert (request.id, request.message, request.socket_name) == (41, SessionList(limit=3), "owner")
        request.answer(SessionListEnd(total=1), final=False)
        request.answer(SessionListEnd(total=2), final=True)

    with open_house({SessionList: count}).peer() as peer:
        peer.ask(SessionList(limit=3), number=41)
        assert peer.receive() == Envelope(id=41, final=False, msg=SessionListEnd(total=1))
        assert peer.receive() == Envelope(id=41, final=True, msg=SessionListEnd(total=2))


def test_a_connection_carries_one_request_after_the_other(open_house: OpenHouse) -> None:
    with open_house().peer() as peer:
        for number in range(3):
            peer.ask(LoopStatus(), number=number)
        assert [answer.id for _ in range(3) if (answer := peer.receive())] == [0, 1, 2]


def test_every_connection_is_logged_with_the_uid_of_its_peer(
    open_house: OpenHouse, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "boxmaker")
    assert_alive(open_house())
    assert f"connected socket=owner uid={os.getuid()}" in caplog.text


# -- what is refused before a handler runs -----------------------------------------------------

REFUSED = {
    "an answer for a request": (
        envelope.encode(Envelope(id=7, final=True, msg=SelfTestEnd(passed=1, failed=0))),
        ErrorCode.FORBIDDEN,
    ),
    "another door's message": (
        envelope.encode(Envelope(id=7, final=True, msg=TurnCancel(session=SessionId("main")))),
        ErrorCode.FORBIDDEN,
    ),
    "a request that is not final": (
        envelope.encode(Envelope(id=7, final=False, msg=LoopStatus())),
        ErrorCode.BAD_MESSAGE,
    ),
    "an unknown kind": (
        b'{"v":1,"id":7,"final":true,"msg":{"kind":"approval_grant","body":{}}}',
        ErrorCode.BAD_MESSAGE,
    ),
    "an unknown field": (
        b'{"v":1,"id":7,"final":true,"msg":{"kind":"loop_status","body":{"x":1}}}',
        ErrorCode.BAD_MESSAGE,
    ),
    "another version": (b'{"v":2,"id":7,"anything":[]}', ErrorCode.BAD_VERSION),
}


@pytest.mark.parametrize(("payload", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_message_gets_one_error_with_its_id_and_then_the_end(
    payload: bytes, code: ErrorCode, open_house: OpenHouse
) -> None:
    house = open_house()
    with house.peer() as peer:
        peer.send(payload)
        assert peer.fault() == (7, code)
        assert peer.receive() is None
    assert_alive(house)


BROKEN = {
    "a length of nothing": b"\0\0\0\0",
    "a length above the limit": (MAX_FRAME + 1).to_bytes(4, "big"),
    "the largest length": b"\xff\xff\xff\xff",
    "not JSON": b"\0\0\0\1{",
    "no object": b"\0\0\0\1" + b"7",
    "not UTF-8": b"\0\0\0\1\xff",
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_frame_gets_one_error_without_an_id_and_then_the_end(raw: bytes, open_house: OpenHouse) -> None:
    house = open_house()
    with house.peer() as peer:
        peer.socket.sendall(raw)
        number, code = peer.fault()
        assert number == NO_REQUEST
        assert code in (ErrorCode.BAD_FRAME, ErrorCode.BAD_MESSAGE)
        assert peer.receive() is None
    assert_alive(house)


def test_the_refusal_names_the_field_and_never_the_value(
    open_house: OpenHouse, caplog: pytest.LogCaptureFixture
) -> None:
    with open_house().peer() as peer:
        peer.send(b'{"v":1,"id":7,"final":"%b","msg":{}}' % SECRET.encode())
        answer = peer.receive()
    assert answer is not None
    assert isinstance(answer.msg, WireFault)
    assert answer.msg.detail.startswith("final:")
    assert SECRET not in answer.msg.detail + caplog.text


# -- what a handler raises ---------------------------------------------------------------------


class NoSession(WireError):
    code = "no_session"


FAILURES = {
    "an error with a code of the wire": (NoSession("no such session"), ErrorCode.NO_SESSION, "no such session"),
    "an error with another code": (StateError("cannot write"), ErrorCode.INTERNAL, "cannot write [state]"),
    "a peer's error": (UpstreamError("server away"), ErrorCode.INTERNAL, "server away [upstream]"),
    "a fault of ours": (KeyError(SECRET), ErrorCode.INTERNAL, "a fault of ours; the log says where"),
}


@pytest.mark.parametrize(("error", "code", "detail"), FAILURES.values(), ids=FAILURES.keys())
def test_what_a_handler_raises_is_answered_and_the_connection_goes_on(
    error: Exception, code: ErrorCode, detail: str, open_house: OpenHouse
) -> None:
    def fail(request: Request) -> None:
        request.answer(SessionListEnd(total=1), final=False)
        raise error

    with open_house({SessionList: fail, LoopStatus: status}).peer() as peer:
        peer.ask(SessionList(limit=1))
        assert peer.receive() == Envelope(id=7, final=False, msg=SessionListEnd(total=1))
        assert peer.receive() == Envelope(id=7, final=True, msg=WireFault(code=code, detail=detail))
        peer.ask(LoopStatus(), number=8)
        assert peer.receive() == Envelope(id=8, final=True, msg=SelfTestEnd(passed=1, failed=0))


def test_a_request_that_was_left_unanswered_is_answered_with_an_error(open_house: OpenHouse) -> None:
    with open_house({LoopStatus: lambda request: None}).peer() as peer:
        peer.ask(LoopStatus())
        assert peer.fault() == (7, ErrorCode.INTERNAL)


def test_nothing_follows_a_final_frame(open_house: OpenHouse) -> None:
    raised: list[Exception] = []

    def talk_on(request: Request) -> None:
        status(request)
        try:
            status(request)
        except RuntimeError as error:
            raised.append(error)
            raise

    with open_house({LoopStatus: talk_on}).peer() as peer:
        for number in (1, 2):
            peer.ask(LoopStatus(), number=number)
            assert peer.receive() == Envelope(id=number, final=True, msg=SelfTestEnd(passed=1, failed=0))
    assert "after the final one" in str(raised[0])


def test_an_answer_that_no_frame_can_hold_is_an_error_and_not_the_peers(open_house: OpenHouse) -> None:
    def too_much(request: Request) -> None:
        request.answer(WireFault(code=ErrorCode.INTERNAL, detail="x" * MAX_FRAME), final=True)

    with open_house({LoopStatus: too_much}).peer() as peer:
        peer.ask(LoopStatus())
        assert peer.fault() == (7, ErrorCode.INTERNAL)


# -- peers that leave, or do not listen --------------------------------------------------------


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


def test_a_peer_that_closed_has_left_and_one_that_ended_its_sending_has_not(open_house: OpenHouse) -> None:
    gate = Gate()
    house = open_house({SessionShow: gate, LoopStatus: status})
    with house.peer() as peer:
        peer.ask(SHOW)
        gate.entered.acquire()
        assert not gate.requests[0].peer_left()
        peer.socket.shutdown(socket.SHUT_WR)
        assert not gate.requests[0].peer_left()
        assert not gate.requests[0].wait_peer(1)
    assert gate.requests[0].wait_peer(LONG_MS)
    assert gate.requests[0].peer_left()
    gate.leave.set()
    house.wait_for_workers()
    assert_alive(house)


def test_one_that_ended_its_sending_still_gets_its_answer(open_house: OpenHouse) -> None:
    with open_house().peer() as peer:
        peer.ask(LoopStatus())
        peer.socket.shutdown(socket.SHUT_WR)
        assert peer.receive() == Envelope(id=7, final=True, msg=SelfTestEnd(passed=1, failed=0))
        assert peer.receive() is None


def test_an_answer_to_a_peer_that_left_raises_and_ends_the_connection(open_house: OpenHouse) -> None:
    raised: list[BaseException] = []
    entered = threading.Event()

    def tell(request: Request) -> None:
        entered.set()
        request.wait_peer(LONG_MS)
        try:
            status(request)
        except PeerGone as error:
            raised.append(error)
            raise

    house = open_house({SessionShow: tell, LoopStatus: status})
    with house.peer() as peer:
        peer.ask(SHOW)
        entered.wait()
    house.wait_for_workers()
    assert len(raised) == 1
    assert_alive(house)


def test_a_peer_that_does_not_read_is_given_up_and_holds_up_nobody(open_house: OpenHouse) -> None:
    given_up = threading.Event()
    others_were_served = threading.Event()

    def talk_without_end(request: Request) -> None:
        try:
            while True:
                request.answer(WireFault(code=ErrorCode.INTERNAL, detail="x" * 100_000), final=False)
                started.set()
                if not others_were_served.is_set():
                    others_were_served.wait()
        except PeerGone:
            given_up.set()
            raise

    started = threading.Event()
    house = open_house({SessionShow: talk_without_end, LoopStatus: status}, send_ms=50)
    with house.peer() as peer:
        peer.ask(SHOW)
        started.wait()
        assert_alive(house)
        others_were_served.set()
        given_up.wait()
        assert_alive(house)


INSIDE_A_FRAME = {
    "one byte of the header": b"\0",
    "the header alone": b"\0\0\1\0",
    "half of the body": b"\0\0\0\4{}",
}


@pytest.mark.parametrize("raw", INSIDE_A_FRAME.values(), ids=INSIDE_A_FRAME.keys())
def test_a_frame_that_is_not_finished_in_time_is_refused_and_holds_up_nobody(raw: bytes, open_house: OpenHouse) -> None:
    house = open_house(frame_ms=50)
    with house.peer() as peer:
        peer.socket.sendall(raw)
        assert_alive(house)
        assert peer.fault() == (NO_REQUEST, ErrorCode.DEADLINE)
        assert peer.receive() is None
    house.wait_for_workers()


@pytest.mark.parametrize("raw", INSIDE_A_FRAME.values(), ids=INSIDE_A_FRAME.keys())
def test_a_peer_that_leaves_inside_a_frame_leaves_nothing_behind(raw: bytes, open_house: OpenHouse) -> None:
    house = open_house()
    assert_alive(house)
    house.wait_for_workers()
    before = descriptors()
    with house.peer() as peer:
        peer.socket.sendall(raw)
    assert_alive(house)
    house.wait_for_workers()
    assert descriptors() == before


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_a_connection_that_is_idle_too_long_is_closed(open_house: OpenHouse) -> None:
    with open_house(idle_ms=1).peer() as peer:
        assert peer.receive() is None


def test_a_passed_descriptor_is_dropped(open_house: OpenHouse) -> None:
    reading, writing = os.pipe()
    with open_house().peer() as peer:
        payload = envelope.encode(Envelope(id=7, final=True, msg=LoopStatus()))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writing]))]
        peer.socket.sendmsg([len(payload).to_bytes(4, "big") + payload], rights)
        os.close(writing)
        assert peer.receive() is not None
        assert os.read(reading, 1) == b""  # the end of file: nobody holds the other end any more
    os.close(reading)


# -- the cap ------------------------------------------------------------------------------------


def test_at_the_cap_the_longest_idle_makes_room(open_house: OpenHouse) -> None:
    house = open_house(max_connections=2)
    with house.peer() as first, house.peer() as second:
        for peer in (first, second, first):  # so the second is idle longest
            peer.ask(LoopStatus())
            assert peer.receive() is not None
            house.wait_until_idle()
        assert_alive(house)
        assert second.receive() is None
        first.ask(LoopStatus())
        assert first.receive() is not None


def test_an_unfinished_frame_does_not_protect_from_the_cap(open_house: OpenHouse) -> None:
    house = open_house(max_connections=1)
    with house.peer() as peer:
        peer.socket.sendall(b"\0\0")
        assert_alive(house)
        assert peer.receive() is None


def test_where_all_are_at_work_a_new_one_is_told_and_the_other_door_is_open(open_house: OpenHouse) -> None:
    gate = Gate()
    house = open_house({SessionShow: gate}, max_connections=2)
    with house.peer() as first, house.peer() as second:
        for peer in (first, second):
            peer.ask(SHOW)
            gate.entered.acquire()
        with house.peer() as third:
            assert third.fault() == (NO_REQUEST, ErrorCode.TOO_BUSY)
            assert third.receive() is None
        with Peer(house.gateway) as other_door:
            other_door.ask(LoopStatus())
            assert other_door.receive() is not None
        gate.leave.set()
        assert first.receive() is not None
        assert second.receive() is not None


def test_a_flood_at_one_door_leaves_no_threads_and_the_other_door_answers(open_house: OpenHouse) -> None:
    house = open_house(max_connections=4)
    flood = [house.peer() for _ in range(200)]
    with Peer(house.gateway) as other_door:
        other_door.ask(LoopStatus())
        assert other_door.receive() is not None
    assert_alive(house)
    assert sum(thread.name == "owner" for thread in threading.enumerate()) <= 4
    for peer in flood:
        peer.socket.close()


def test_out_of_threads_a_peer_is_closed_and_the_next_is_served(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = open_house()
    start = threading.Thread.start
    refusals = [RuntimeError("can't start new thread")]

    def start_or_not(thread: threading.Thread) -> None:
        if refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)
    with house.peer() as peer:
        assert peer.receive() is None
    assert_alive(house)


# -- the end ------------------------------------------------------------------------------------


def test_stop_lets_a_request_in_progress_finish(open_house: OpenHouse, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "boxmaker")
    gate = Gate()
    house = open_house({SessionShow: gate})
    with house.peer() as peer, house.peer() as idle:
        peer.ask(SHOW)
        gate.entered.acquire()
        house.server.stop()
        assert idle.receive() is None
        with pytest.raises(OSError, match=r"refused|No such"):
            house.peer()
        gate.leave.set()
        assert peer.receive() == Envelope(id=7, final=True, msg=SelfTestEnd(passed=1, failed=0))
        assert peer.receive() is None
    house.thread.join()
    assert "stopped workers_left=0" in caplog.text


def test_a_request_that_outlasts_the_drain_is_cut(open_house: OpenHouse, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "boxmaker")
    entered = threading.Event()

    def waits_for_the_cut(request: Request) -> None:
        entered.set()
        request.wait_peer(LONG_MS)
        status(request)

    house = open_house({SessionShow: waits_for_the_cut}, drain_seconds=0)
    with house.peer() as peer:
        peer.ask(SHOW)
        entered.wait()
        house.server.stop()
        assert peer.receive() is None
    house.thread.join()
    assert "cut requests=1 code=drain_passed" in caplog.text
    assert "stopped workers_left=0" in caplog.text


def test_stop_says_how_many_workers_it_left(
    open_house: OpenHouse, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bxcore import server

    monkeypatch.setattr(server, "_LEAVE_MS", 1)
    caplog.set_level("INFO", "boxmaker")
    gate = Gate()
    house = open_house({SessionShow: gate}, drain_seconds=0)
    with house.peer() as peer:
        peer.ask(SHOW)
        gate.entered.acquire()
        house.server.stop()
        house.thread.join()
        assert "stopped workers_left=1" in caplog.text
        gate.leave.set()
    house.wait_for_workers()


def test_no_request_begins_once_a_connection_was_given_up(open_house: OpenHouse) -> None:
    gate = Gate()
    house = open_house({SessionShow: gate, LoopStatus: status})
    with house.peer() as peer, house.peer() as idle:
        peer.ask(SHOW)
        peer.ask(LoopStatus(), number=8)  # waits in the connection while the first is at work
        gate.entered.acquire()
        house.server.stop()
        assert idle.receive() is None  # the drain has begun
        gate.leave.set()
        answer = peer.receive()
        assert answer is not None
        assert answer.id == 7
        assert peer.receive() is None


def test_stop_before_serve_is_heard(directory: Path) -> None:
    with closing(listener.open_socket(directory / "loop.sock")) as listening:
        server = Server([Door(listening=listening, name="owner", handlers={})], clock=CLOCK)
        server.stop()
        server.serve()
