"""brokerd.attached: Podman's frames, however they are cut."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd import attached
from brokerd.attached import Frames, Reading
from brokerd.exited import Stop
from bxcore.deadline import Deadline, SystemClock


def frame(stream: int, body: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(body).to_bytes(4, "big") + body


FRAMES = st.lists(st.tuples(st.integers(1, 2), st.binary(max_size=20)), max_size=8)


@given(FRAMES, st.lists(st.integers(1, 15)))
def test_frames_survive_any_cutting_of_the_stream(pieces: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(frame(*piece) for piece in pieces)
    frames = Frames(most_bytes=1_000)
    for cut in cuts:
        frames.feed(data[:cut])
        data = data[cut:]
    frames.feed(data)
    assert bytes(frames.stdout) == b"".join(body for stream, body in pieces if stream == 1)
    assert frames.size == sum(len(body) for _, body in pieces)
    assert frames.between
    assert not frames.broken


@given(FRAMES, st.integers(0, 40))
def test_no_more_is_kept_than_may_come(pieces: list[tuple[int, bytes]], most: int) -> None:
    frames = Frames(most_bytes=most)
    for piece in pieces:
        frames.feed(frame(*piece))
    assert len(frames.stdout) <= most
    assert frames.full == (sum(len(body) for _, body in pieces) > most)


@given(st.binary(max_size=100))
def test_any_bytes_are_frames_or_broken(data: bytes) -> None:
    frames = Frames(most_bytes=1_000)
    frames.feed(data)
    assert len(frames.stdout) <= frames.size <= len(data)


BROKEN = {
    "text": b"HTTP/1.1 500 Internal Server Error\r\n",
    "no such stream": frame(3, b"x"),
    "not zero": b"\x01\x00\x01\x00\x00\x00\x00\x01x",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_no_frame_is_not_taken_for_output(data: bytes) -> None:
    frames = Frames(most_bytes=1_000)
    frames.feed(data)
    assert frames.broken
    assert not frames.stdout


@pytest.mark.parametrize("data", [frame(1, b"hello")[:-1], b"\x01\x00"], ids=["in a body", "in a header"])
def test_a_stream_that_ends_inside_a_frame_is_broken(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    reading = Reading(deadline=Deadline.after(SystemClock(), milliseconds=20_000), cancelled=lambda: False)
    with ours:
        with theirs:
            theirs.sendall(data)
        assert attached.pump(ours, b"", Frames(most_bytes=10), reading) is Stop.BROKEN
