"""What a process says of its readiness is read without waiting, and made safe to show."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.readiness import FirstLine, NotifySocket


@pytest.fixture
def news(tmp_path: Path) -> Iterator[NotifySocket]:
    news = NotifySocket(tmp_path / "a.sock")
    yield news
    news.close()


def tell(path: Path, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        for datagram in datagrams:
            manager.sendto(datagram, str(path))


def test_nothing_said_is_not_ready(news: NotifySocket) -> None:
    news.read()
    assert (news.ready, news.status) == (False, "")


def test_everything_that_waits_is_read_at_once(news: NotifySocket, tmp_path: Path) -> None:
    tell(tmp_path / "a.sock", b"STATUS=one", b"READY=1\nSTATUS=two", b"STOPPING=1")
    news.read()
    assert (news.ready, news.status) == (True, "two")


NOT_READY = {"nothing": b"", "another value": b"READY=0", "no line of its own": b"STATUS=READY=1", "no text": b"\xff"}


@pytest.mark.parametrize("datagram", NOT_READY.values(), ids=NOT_READY.keys())
def test_only_ready_1_is_ready(news: NotifySocket, tmp_path: Path, datagram: bytes) -> None:
    tell(tmp_path / "a.sock", datagram)
    news.read()
    assert not news.ready


def test_a_status_cannot_drive_the_terminal(news: NotifySocket, tmp_path: Path) -> None:
    tell(tmp_path / "a.sock", b"STATUS=\x1b]0;x\x07")
    news.read()
    assert news.status.isprintable()


def test_a_socket_that_a_killed_launcher_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as old:
        old.bind(str(tmp_path / "a.sock"))
    news = NotifySocket(tmp_path / "a.sock")
    tell(tmp_path / "a.sock", b"READY=1")
    news.read()
    assert news.ready
    news.close()
    assert not (tmp_path / "a.sock").exists()


def test_a_first_line_is_ready_once_it_is_whole() -> None:
    reading, writing = os.pipe()
    news = FirstLine(reading)
    found = []
    for piece in (b"", b'{"socket":', b' "x"}\nmore', b"more"):
        os.write(writing, piece)
        news.read()
        found.append(news.ready)
    assert found == [False, False, True, True]
    os.close(writing)
    news.close()


def test_an_output_that_ended_is_not_waited_on() -> None:
    reading, writing = os.pipe()
    news = FirstLine(reading)
    assert news.descriptors() == (reading,)
    os.close(writing)
    news.read()
    assert news.descriptors() == ()
    assert not news.ready
    news.close()
