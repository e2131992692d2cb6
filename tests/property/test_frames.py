"""Frames: any cutting of the stream gives the same payloads; any bytes give a payload, the end or a WireError."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import frame
from bxcore.deadline import Deadline, SystemClock
from bxcore.errors import FrameTooLarge, WireError
from bxcore.frame import MAX_FRAME

PAYLOADS = st.lists(st.binary(min_size=1, max_size=300), max_size=5)
WAIT_MS = 60_000


def soon() -> Deadline:
    return Deadline.after(SystemClock(), milliseconds=WAIT_MS)


@contextmanager
def fed(pieces: list[bytes]) -> Iterator[socket.socket]:
    """Yield a socket on which the pieces arrive one after the other, and then the end."""
    ours, theirs = socket.socketpair()

    def feed() -> None:
        with theirs:
            try:
                for piece in pieces:
                    theirs.sendall(piece)
            except OSError:
                return  # the reader has seen enough and closed

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        with ours:
            yield ours
    finally:
        thread.join()


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def received(sock: socket.socket) -> list[bytes]:
    payloads = []
    while (payload := frame.receive(sock, soon(), frame_ms=WAIT_MS)) is not None:
        payloads.append(payload)
    return payloads


def cut(raw: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(raw[:size])
        raw = raw[size:]
    return [piece for piece in [*pieces, raw] if piece]


@given(PAYLOADS, st.lists(st.integers(1, 7), max_size=200))
def test_frames_survive_any_cutting_of_the_stream(payloads: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(framed(payload) for payload in payloads)
    with fed(cut(stream, sizes)) as sock:
        assert received(sock) == payloads


@given(PAYLOADS)
def test_what_is_sent_is_what_is_received(payloads: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for payload in payloads:
            frame.send(theirs, payload, soon())
            assert frame.receive(ours, soon(), frame_ms=WAIT_MS) == payload


@given(st.binary(max_size=300))
def test_any_bytes_give_a_frame_the_end_or_a_wire_error(raw: bytes) -> None:
    with fed([raw] if raw else []) as sock:
        try:
            payloads = received(sock)
        except WireError:
            return
        assert b"".join(framed(payload) for payload in payloads) == raw


@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_peer_that_leaves_inside_a_frame_is_never_taken_for_the_end(payload: bytes, data: st.DataObject) -> None:
    whole = framed(payload)
    length = data.draw(st.integers(1, len(whole) - 1))
    with fed([whole[:length]]) as sock, pytest.raises(WireError):
        frame.receive(sock, soon(), frame_ms=WAIT_MS)


@given(st.integers(0, 2**32 - 1).filter(lambda size: not 1 <= size <= MAX_FRAME))
def test_a_length_out_of_bounds_is_refused_before_the_body(size: int) -> None:
    with fed([size.to_bytes(4, "big")]) as sock, pytest.raises(FrameTooLarge):
        frame.receive(sock, soon(), frame_ms=WAIT_MS)
