import array
import fcntl
import hashlib
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferproxy import forward
from inferproxy.forward import Ending, Flow

LONG_MS = 3_600_000


class Line:
    """A relay between two socket pairs: what the client and the server hold, and how it ended."""

    def __init__(self, *, idle_ms: int = LONG_MS, tcp: bool = False) -> None:
        self.client, self._client_end = socket.socketpair()
        self._server_end, self.server = tcp_pair() if tcp else socket.socketpair()
        self._ending: Ending | None = None
        self._thread = threading.Thread(target=self._relay, args=(idle_ms,))
        self._thread.start()

    def _relay(self, idle_ms: int) -> None:
        with self._client_end, self._server_end:
            self._ending = forward.relay(self._client_end, self._server_end, idle_ms=idle_ms)

    def ending(self) -> Ending | None:
        self._thread.join()
        return self._ending

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self._thread.join()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    return near, far


def read_all(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(65_536), b""))


def read_exactly(sock: socket.socket, size: int) -> bytes:
    return sock.recv(size, socket.MSG_WAITALL)


@pytest.fixture(params=[False, True], ids=["unix upstream", "tcp upstream"])
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    opened = Line(tcp=request.param)
    yield opened
    opened.close()


def test_bytes_go_both_ways(line: Line) -> None:
    line.client.sendall(b"request")
    assert read_exactly(line.server, 7) == b"request"
    line.server.sendall(b"response")
    assert read_exactly(line.client, 8) == b"response"


def test_the_clients_end_of_sending_is_passed_on_and_the_answer_still_comes(line: Line) -> None:
    line.client.sendall(b"request")
    line.client.shutdown(socket.SHUT_WR)
    assert read_all(line.server) == b"request"
    line.server.sendall(b"answer")
    line.server.close()
    assert read_all(line.client) == b"answer"
    assert line.ending() is Ending.FINISHED


def test_the_servers_end_of_sending_is_passed_on_and_the_request_goes_on(line: Line) -> None:
    line.server.sendall(b"early answer")
    line.server.shutdown(socket.SHUT_WR)
    assert read_all(line.client) == b"early answer"
    line.client.sendall(b"rest of the request")
    line.client.shutdown(socket.SHUT_WR)
    assert read_all(line.server) == b"rest of the request"
    assert line.ending() is Ending.FINISHED


def test_a_client_that_leaves_ends_the_server_connection_while_the_server_is_silent(line: Line) -> None:
    line.client.sendall(b"request")
    read_exactly(line.server, 7)
    line.client.close()
    assert line.ending() is Ending.CLIENT_LEFT
    assert line.server.recv(1) == b""


def test_a_client_that_leaves_ends_a_stream_at_once(line: Line) -> None:
    line.server.sendall(b"token")
    read_exactly(line.client, 5)
    line.client.close()
    assert line.ending() is Ending.CLIENT_LEFT


def test_a_client_that_leaves_after_the_server_ended_is_noticed(line: Line) -> None:
    line.server.shutdown(socket.SHUT_WR)
    assert read_all(line.client) == b""
    line.client.close()
    assert line.ending() in (Ending.FINISHED, Ending.CLIENT_LEFT)


def test_a_server_that_answers_and_closes_loses_nothing_to_a_slow_client(line: Line) -> None:
    body = os.urandom(3_000_000)

    def answer_and_close() -> None:
        line.server.sendall(body)
        line.server.close()

    sender = threading.Thread(target=answer_and_close)
    sender.start()
    first = read_exactly(line.client, 1)
    assert hashlib.sha256(first + read_all(line.client)).digest() == hashlib.sha256(body).digest()
    sender.join()


def test_large_bodies_pass_each_other_whole(line: Line) -> None:
    up, down = os.urandom(2_000_000), os.urandom(2_000_000)
    got: dict[str, bytes] = {}
    threads = [
        threading.Thread(target=lambda: line.client.sendall(up)),
        threading.Thread(target=lambda: line.server.sendall(down)),
        threading.Thread(target=lambda: got.update(up=read_exactly(line.server, len(up)))),
        threading.Thread(target=lambda: got.update(down=read_exactly(line.client, len(down)))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {"up": up, "down": down}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=5_000)), max_size=20))
def test_any_exchange_arrives_in_order(pieces: list[tuple[bool, bytes]]) -> None:
    line = Line()
    for to_server, piece in pieces:
        (line.client if to_server else line.server).sendall(piece)
    line.client.shutdown(socket.SHUT_WR)
    line.server.shutdown(socket.SHUT_WR)
    up, down = read_all(line.server), read_all(line.client)
    assert line.ending() is Ending.FINISHED
    line.close()
    assert up == b"".join(piece for to_server, piece in pieces if to_server)
    assert down == b"".join(piece for to_server, piece in pieces if not to_server)


def send_until_full(sock: socket.socket) -> int:
    """Send until the other side has taken nothing more, and return how much it took."""
    sock.settimeout(0.3)
    sent = 0
    try:
        while True:
            sent += sock.send(b"x" * 65_536)
    except TimeoutError:
        sock.settimeout(None)
        return sent


def test_a_reader_that_stops_stops_the_writer(line: Line) -> None:
    sent = send_until_full(line.client)
    # What the sockets and one pipe hold, not what the writer would like to send.
    assert sent < 16_000_000
    line.client.shutdown(socket.SHUT_WR)
    assert len(read_all(line.server)) == sent


def test_a_full_direction_does_not_hold_up_the_other(line: Line) -> None:
    send_until_full(line.server)
    line.client.sendall(b"stop")
    assert read_exactly(line.server, 4) == b"stop"


def test_a_server_that_resets_ends_the_relay() -> None:
    line = Line(tcp=True)
    line.client.sendall(b"request")
    read_exactly(line.server, 7)
    line.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.server.close()  # with a linger of nothing, this is a reset
    assert line.ending() is Ending.BROKEN
    assert line.client.recv(1) == b""
    line.close()


def test_silence_beyond_the_limit_ends_the_relay() -> None:
    line = Line(idle_ms=1)
    assert line.ending() is Ending.IDLE
    assert line.server.recv(1) == b""
    line.close()


def test_without_descriptors_for_the_pipes_the_relay_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pipe() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pipe", no_pipe)
    line = Line()
    assert line.ending() is Ending.BROKEN
    line.close()


def test_a_user_with_too_many_pipes_is_served_with_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    line = Line()
    body = os.urandom(500_000)
    threading.Thread(target=lambda: line.client.sendall(body)).start()
    assert read_exactly(line.server, len(body)) == body
    line.close()


def test_a_passed_descriptor_is_dropped_and_nothing_leaks(line: Line) -> None:
    line.client.sendall(b"x")
    assert read_exactly(line.server, 1) == b"x"  # the relay has its pipes
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    reading, writing = os.pipe()
    rights = array.array("i", [writing])
    line.client.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    os.close(writing)
    assert read_exactly(line.server, 1) == b"x"
    assert os.read(reading, 1) == b""  # the end of file comes once no copy of the other end is left
    os.close(reading)
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


def test_a_relay_leaves_no_descriptor_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(20):
        line = Line()
        line.client.sendall(b"x")
        line.close()
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


@pytest.fixture
def flows() -> Iterator[tuple[Flow, Flow, socket.socket, socket.socket]]:
    client, client_end = socket.socketpair()
    server_end, server = socket.socketpair()
    for sock in (client_end, server_end):
        sock.settimeout(0)
    up, down = Flow(client_end, server_end), Flow(server_end, client_end)
    with client, server, client_end, server_end:
        yield up, down, client, server
    up.close()
    down.close()


def test_a_hung_up_server_whose_bytes_wait_for_a_slow_client_does_not_spin(
    flows: tuple[Flow, Flow, socket.socket, socket.socket],
) -> None:
    up, down, _, server = flows
    server.settimeout(0)
    try:
        while True:
            server.send(b"x" * 65_536)
            down.move()
    except BlockingIOError:
        server.close()
    down.move()
    assert down.held
    assert forward._poll(up, down).poll(0) == []


def test_a_client_that_has_left_is_seen_while_its_bytes_wait_for_a_slow_server(
    flows: tuple[Flow, Flow, socket.socket, socket.socket],
) -> None:
    up, down, client, _ = flows
    client.settimeout(0)
    try:
        while True:
            client.send(b"x" * 65_536)
            up.move()
    except BlockingIOError:
        client.close()
    up.move()
    assert up.held
    assert [events & select.POLLHUP for _, events in forward._poll(up, down).poll(0)] == [select.POLLHUP]
