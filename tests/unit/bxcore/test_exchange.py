import array
import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable

import pytest

from bxcore import envelope
from bxcore.envelope import NO_REQUEST, Envelope
from bxcore.errors import StateError, UpstreamError, WireError
from bxcore.files import StateInUse, StateUnreadable
from bxcore.frame import MAX_FRAME, PeerGone
from bxcore.ids import SessionId
from bxcore.server import Request
from bxcore.wire.channel import LoopStatus, SelfTestEnd, SessionList, SessionListEnd, SessionShow, TurnCancel
from bxcore.wire.control import ErrorCode, WireFault
from tests.unit.bxcore.house import LONG_MS, SHOW, Gate, House, assert_alive, status

OpenHouse = Callable[..., House]
SECRET = "the owner's words"

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


# -- what is refused before a handler runs -----------------------------------------------------

REFUSED = {
    "an answer for a request": (
        envelope.encode(Envelope(id=7, final=True, msg=SelfTestEnd(passed=1, failed=0))),
        ErrorCode.FORBIDDEN,
    ),
    "another door's message": (
        envelope.encode(Envelope(id=7, final=True, msg=TurnCancel(session=SessionId("main"), turn=0))),
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
    "a file that cannot be read": (StateUnreadable("s/0.jsonl: gone"), ErrorCode.STATE_UNREADABLE, "s/0.jsonl: gone"),
    "a file in use": (StateInUse("s/0.jsonl: open"), ErrorCode.STATE_IN_USE, "s/0.jsonl: open"),
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


@pytest.mark.parametrize("error", [StateError("no space"), StateInUse("no space"), UpstreamError("no space")], ids=repr)
def test_what_the_world_does_to_a_request_is_a_warning_without_a_trace(
    error: Exception, open_house: OpenHouse, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Request) -> None:
        raise error

    with open_house({LoopStatus: fail}).peer() as peer:
        peer.ask(LoopStatus())
        assert peer.receive() is not None
    (told,) = [record for record in caplog.records if "request failed" in record.message]
    assert told.levelname == "WARNING"
    assert told.exc_info is None
    assert "no space" in told.getMessage()


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


def test_a_handler_may_return_once_the_peer_has_left(open_house: OpenHouse, caplog: pytest.LogCaptureFixture) -> None:
    entered = threading.Event()

    def watch(request: Request) -> None:
        entered.set()
        request.wait_peer(LONG_MS)

    house = open_house({SessionShow: watch})
    with house.peer() as peer:
        peer.ask(SHOW)
        entered.wait()
    house.wait_for_workers()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


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


def test_a_frame_that_trickles_in_has_no_more_time_than_another(open_house: OpenHouse) -> None:
    house = open_house(frame_ms=50)
    with house.peer() as peer:
        peer.socket.sendall((1_000_000).to_bytes(4, "big"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while not select.select([peer.socket], [], [], 0.001)[0]:
                peer.socket.send(b" ")  # a thousand seconds' worth
        assert peer.fault() == (NO_REQUEST, ErrorCode.DEADLINE)
    assert_alive(house)


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
    assert descriptors() <= before


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
