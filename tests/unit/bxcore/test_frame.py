"""Rows F7, F9 and F14 of the bad-input list, on a real socket."""

import array
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore import frame
from bxcore.deadline import Deadline, SystemClock
from bxcore.errors import DeadlinePassed, FrameTooLarge, WireError
from bxcore.frame import MAX_FRAME, IdlePassed, PeerGone
from bxcore.timestamp import Timestamp

WAIT_MS = 60_000
Pair = tuple[socket.socket, socket.socket]


class SteppingClock:
    """A clock that moves on by `step_ms` each time it is asked: waiting that takes no time."""

    def __init__(self, step_ms: int) -> None:
        self.step_ms = step_ms
        self.asked = 0

    def now_ms(self) -> Timestamp:
        return Timestamp(0)

    def monotonic_ms(self) -> int:
        self.asked += 1
        return self.asked * self.step_ms


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def soon() -> Deadline:
    return Deadline.after(SystemClock(), milliseconds=WAIT_MS)


def receive(sock: socket.socket) -> bytes | None:
    return frame.receive(sock, soon(), frame_ms=WAIT_MS)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_frame_is_four_bytes_of_length_and_the_payload(pair: Pair) -> None:
    ours, theirs = pair
    frame.send(theirs, b"{}", soon())
    assert ours.recv(100) == b"\0\0\0\2{}"


@pytest.mark.parametrize("size", [1, MAX_FRAME - 1, MAX_FRAME])
def test_a_payload_up_to_the_limit_passes(pair: Pair, size: int) -> None:
    ours, theirs = pair
    payload = b"x" * size
    sender = threading.Thread(target=frame.send, args=(theirs, payload, soon()))
    sender.start()
    assert receive(ours) == payload
    sender.join()


@pytest.mark.parametrize("header", ["00000000", "00100001", "7fffffff", "80000000", "ffffffff"])
def test_a_length_out_of_bounds_is_refused_with_the_header_alone(pair: Pair, header: str) -> None:
    ours, theirs = pair
    theirs.sendall(bytes.fromhex(header))  # no body follows: waiting for one would hang here
    with pytest.raises(FrameTooLarge) as caught:
        receive(ours)
    assert caught.value.code == "bad_frame"
    assert str(int(header, 16)) in caught.value.detail


@pytest.mark.parametrize("size", [0, MAX_FRAME + 1])
def test_a_payload_out_of_bounds_is_not_sent(pair: Pair, size: int) -> None:
    ours, theirs = pair
    with pytest.raises(FrameTooLarge):
        frame.send(theirs, b"x" * size, soon())
    theirs.close()
    assert ours.recv(1) == b""


def test_a_peer_that_leaves_between_frames_is_the_end(pair: Pair) -> None:
    ours, theirs = pair
    frame.send(theirs, b"{}", soon())
    theirs.close()
    assert receive(ours) == b"{}"
    assert receive(ours) is None


@pytest.mark.parametrize("length", range(1, 8))
def test_a_peer_that_leaves_inside_a_frame_is_an_error_at_every_byte(pair: Pair, length: int) -> None:
    ours, theirs = pair
    theirs.sendall(b"\0\0\0\4{  }"[:length])
    theirs.close()
    with pytest.raises(WireError) as caught:
        receive(ours)
    assert caught.value.code == "bad_frame"


def test_a_peer_that_resets_between_frames_is_the_end_too(pair: Pair) -> None:
    ours, theirs = pair
    ours.sendall(b"never read")
    theirs.close()  # with bytes unread: the kernel reports a reset
    assert receive(ours) is None


def test_a_slow_sender_meets_the_deadline_of_its_frame(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"\0\0\1\0" + b"x" * 100)
    # Ten seconds pass with each look at the clock, and there is always one more byte to read.
    clock = SteppingClock(step_ms=10_000)
    one_byte_at_a_time = Trickle(ours)
    with pytest.raises(DeadlinePassed) as caught:
        frame.receive(one_byte_at_a_time, Deadline(clock, 10**9), frame_ms=60_000)
    assert not isinstance(caught.value, IdlePassed)
    assert one_byte_at_a_time.calls < 10


class Trickle(socket.socket):
    """A socket that gives one byte at each reading, as from a peer that sends one in ten seconds."""

    def __init__(self, other: socket.socket) -> None:
        super().__init__(fileno=os.dup(other.fileno()))
        self.calls = 0

    def recv_into(self, buffer, nbytes=0, flags=0):  # type: ignore[no-untyped-def]  # the standard library's
        self.calls += 1
        return super().recv_into(buffer, 1, flags)

    def __del__(self) -> None:
        self.close()


def test_a_sender_that_stops_half_way_meets_the_deadline_of_its_frame(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"\0\0\0\4{")
    with pytest.raises(DeadlinePassed) as caught:
        frame.receive(ours, soon(), frame_ms=30)
    assert caught.value.code == "deadline"
    assert not isinstance(caught.value, IdlePassed)


def test_a_header_that_stops_half_way_meets_it_too(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"\0")
    with pytest.raises(DeadlinePassed) as caught:
        frame.receive(ours, soon(), frame_ms=30)
    assert not isinstance(caught.value, IdlePassed)


def test_a_peer_that_sends_nothing_is_idle_and_not_at_fault(pair: Pair) -> None:
    ours, _ = pair
    with pytest.raises(IdlePassed):
        frame.receive(ours, Deadline.after(SystemClock(), milliseconds=10), frame_ms=WAIT_MS)


def test_the_time_of_a_frame_starts_with_its_first_byte(pair: Pair) -> None:
    ours, theirs = pair
    # The clock moves on by 1 s at each look: idle for ten of them, then a frame that takes three.
    clock = SteppingClock(step_ms=1_000)
    clock.asked = 10
    theirs.sendall(b"\0\0\0\2{}")
    assert frame.receive(ours, Deadline(clock, 60_000), frame_ms=5_000) == b"{}"


def test_a_reader_that_takes_nothing_meets_the_deadline_of_the_sender(pair: Pair) -> None:
    _, theirs = pair
    with pytest.raises(DeadlinePassed):
        frame.send(theirs, b"x" * MAX_FRAME, Deadline.after(SystemClock(), milliseconds=30))


def test_sending_to_a_peer_that_left_is_an_error_and_no_signal(pair: Pair) -> None:
    ours, theirs = pair
    ours.close()
    with pytest.raises(PeerGone) as caught:
        frame.send(theirs, b"{}", soon())
    assert caught.value.code == "peer_gone"


def test_no_signal_comes_even_where_a_program_has_asked_for_it(pair: Pair) -> None:
    """A program for the terminal may restore what Python switches off at its start."""
    ours, theirs = pair
    ours.close()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            frame.send(theirs, b"{}", soon())
        except PeerGone:
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_peer_that_leaves_while_being_sent_to_is_an_error(pair: Pair) -> None:
    ours, theirs = pair
    failures: list[WireError] = []

    def send() -> None:
        try:
            frame.send(theirs, b"x" * MAX_FRAME, soon())
        except WireError as error:
            failures.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    ours.recv(10)
    ours.close()
    sender.join()
    assert [type(failure) for failure in failures] == [PeerGone]


def test_a_receiver_is_woken_where_its_socket_is_shut_down(pair: Pair) -> None:
    ours, _ = pair
    results: list[bytes | None] = []
    reader = threading.Thread(target=lambda: results.append(receive(ours)))
    reader.start()
    ours.shutdown(socket.SHUT_RD)
    reader.join()
    assert results == [None]


def test_descriptors_that_a_peer_passes_along_are_dropped(pair: Pair, tmp_path: Path) -> None:
    ours, theirs = pair
    payload = b'{"v":1}'
    raw = len(payload).to_bytes(4, "big") + payload
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    with secret.open("rb") as file:
        before = open_descriptors()
        for start in range(len(raw)):  # with every byte of the frame, header and body
            rights = array.array("i", [file.fileno()] * 20)
            theirs.sendmsg([raw[start : start + 1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        assert receive(ours) == payload
        assert open_descriptors() <= before


def test_the_next_frame_of_the_same_peer_is_read_after_descriptors(pair: Pair) -> None:
    ours, theirs = pair
    rights = array.array("i", [theirs.fileno()])
    theirs.sendmsg([b"\0\0\0\2{}"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    frame.send(theirs, b"[]", soon())
    assert (receive(ours), receive(ours)) == (b"{}", b"[]")


def test_receiving_reads_nothing_beyond_its_frame(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"\0\0\0\2{}rest")
    assert receive(ours) == b"{}"
    assert ours.recv(10) == b"rest"


def test_waiting_leaves_the_socket_as_it_was(pair: Pair) -> None:
    ours, theirs = pair
    frame.send(theirs, b"{}", soon())
    receive(ours)
    assert (ours.gettimeout(), theirs.gettimeout()) == (None, None)
