import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore import listener
from bxcore.envelope import NO_REQUEST, Envelope
from bxcore.server import Door, Request, Server
from bxcore.wire.channel import LoopStatus, SelfTestEnd, SessionShow
from bxcore.wire.control import ErrorCode
from tests.unit.bxcore.house import CLOCK, LONG_MS, SHOW, Gate, House, Peer, assert_alive, status

OpenHouse = Callable[..., House]


def test_every_connection_is_logged_with_the_uid_of_its_peer(
    open_house: OpenHouse, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "boxmaker")
    assert_alive(open_house())
    assert f"connected socket=owner uid={os.getuid()}" in caplog.text


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


def busy(house: House, gate: Gate, count: int) -> list[Peer]:
    """Fill the house with requests that do not end by themselves."""
    peers = [house.peer() for _ in range(count)]
    for peer in peers:
        peer.ask(SHOW)
        gate.entered.acquire()
    return peers


def open_reserve(open_house: OpenHouse, gate: Gate, *, reserved_connections: int = 1) -> House:
    handlers = {SessionShow: gate, LoopStatus: status}
    kinds = frozenset({LoopStatus})
    return open_house(handlers, max_connections=2, reserved=kinds, reserved_connections=reserved_connections)


def test_where_all_are_at_work_the_reserve_serves_its_kinds_and_no_other(open_house: OpenHouse) -> None:
    gate = Gate()
    house = open_reserve(open_house, gate)
    peers = busy(house, gate, 2)
    with house.peer() as late:
        late.ask(SHOW)
        assert late.fault() == (7, ErrorCode.TOO_BUSY)
        late.ask(LoopStatus(), number=8)
        assert late.receive() == Envelope(id=8, final=True, msg=SelfTestEnd(passed=1, failed=0))
        house.wait_until_idle_but(2)
        assert_alive(house)  # who is idle in the reserve makes room there
        assert late.receive() is None
    gate.leave.set()
    for peer in peers:
        assert peer.receive() is not None  # the reserve pushed nobody out
        peer.socket.close()


def test_a_full_reserve_refuses_like_a_full_door(open_house: OpenHouse) -> None:
    gate, inside = Gate(), Gate()
    kinds = frozenset({LoopStatus})
    handlers = {SessionShow: gate, LoopStatus: inside}
    house = open_house(handlers, max_connections=1, reserved=kinds, reserved_connections=1)
    (worker,) = busy(house, gate, 1)
    with house.peer() as cancelling:
        cancelling.ask(LoopStatus())
        inside.entered.acquire()
        with house.peer() as last:
            assert last.fault() == (NO_REQUEST, ErrorCode.TOO_BUSY)
        inside.leave.set()
        assert cancelling.receive() is not None
    gate.leave.set()
    assert worker.receive() is not None
    worker.socket.close()


def test_the_reserve_is_not_used_while_there_is_room(open_house: OpenHouse) -> None:
    gate = Gate()
    house = open_reserve(open_house, gate)
    with house.peer() as idle:
        idle.ask(LoopStatus())
        assert idle.receive() is not None
        house.wait_until_idle()
        (first,) = busy(house, gate, 1)
        with house.peer() as second:  # takes the idle one's place
            second.ask(SHOW)
            gate.entered.acquire()
            assert idle.receive() is None
            gate.leave.set()
            assert second.receive() is not None
        assert first.receive() is not None
        first.socket.close()


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
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
    assert "refused socket=owner code=threads_exhausted" in caplog.text


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


def test_stop_before_serve_is_heard(socket_directory: Path) -> None:
    with contextlib.closing(listener.open_socket(socket_directory / "loop.sock")) as listening:
        server = Server([Door(listening=listening, name="owner", handlers={})], clock=CLOCK)
        server.stop()
        server.serve()
