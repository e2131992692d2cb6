"""HTTP over a Unix socket: every wait can be ended, nothing is retried or followed, nothing is left open."""

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bxcore.deadline import Deadline, SystemClock
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled, ServerAway, ServerLost, ServerProtocol, ServerSilent
from loopd.unixhttp import Guard, HttpExchange
from loopd.waits import Liveness, Until

Behaviour = Callable[[socket.socket, bytes], None]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Peer:
    """Accepts one connection after the other, reads the request's head, and does what it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heads: list[bytes] = []
        self.left = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._thread: threading.Thread | None = None

    def does(self, behaviour: Behaviour, *, connections: int = 1) -> None:
        def serve() -> None:
            for _ in range(connections):
                connection, _ = self._listener.accept()
                with connection:
                    head = connection.recv(65_536)
                    self.heads.append(head)
                    behaviour(connection, head)
                    self._wait_until_left(connection)

        self._thread = threading.Thread(target=serve)
        self._thread.start()

    def answers(self, raw: bytes) -> None:
        self.does(lambda connection, _: connection.sendall(raw))

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._listener.close()

    def _wait_until_left(self, connection: socket.socket) -> None:
        try:
            while connection.recv(65_536):
                pass
        except OSError:
            pass  # reset is a way of leaving too
        self.left.set()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with tempfile.TemporaryDirectory(prefix="bxm") as name, closing(Peer(Path(name) / "m.sock")) as peer:
        yield peer


def guard(
    cancel: CancelToken | None = None, wake: int = -1, *, milliseconds: int = 30_000, most_bytes: int = 2_000_000
) -> Guard:
    clock = SystemClock()
    timer = Until(Deadline.after(clock, milliseconds=milliseconds), ServerSilent("no answer"))
    return Guard(timer, {wake: cancel.check} if cancel else {}, most_bytes=most_bytes)


def get(peer: Peer, target: str = "/props", *, milliseconds: int = 30_000, most_bytes: int = 2_000_000) -> HttpExchange:
    ready = guard(milliseconds=milliseconds, most_bytes=most_bytes)
    return HttpExchange(peer.path, method="GET", target=target, body=None, guard=ready)


def whole(peer: Peer, *, limit: int = 1_000_000, most_bytes: int = 2_000_000) -> bytes:
    with closing(get(peer, most_bytes=most_bytes)) as exchange:
        return exchange.read(limit=limit)


def test_the_request_goes_out_as_written(peer: Peer) -> None:
    peer.answers(OK)
    with closing(get(peer, "/slots?model=a%2Fb")) as exchange:
        assert (exchange.status, exchange.content_type) == (200, "application/json")
        assert exchange.read(limit=10) == b"{}"
    head = peer.heads[0]
    assert head.startswith(b"GET /slots?model=a%2Fb HTTP/1.1\r\n")
    assert b"\r\nConnection: close\r\n" in head
    assert b"\r\nAccept-Encoding: identity\r\n" in head


def test_the_body_goes_out_byte_for_byte(peer: Peer) -> None:
    sent, received = b'{"a": "\xc3\xa9", "b":  1}', bytearray()

    def take(connection: socket.socket, head: bytes) -> None:
        received.extend(head.partition(b"\r\n\r\n")[2])
        while len(received) < len(sent):
            received.extend(connection.recv(65_536))
        connection.sendall(OK)

    peer.does(take)
    HttpExchange(peer.path, method="POST", target="/x", body=sent, guard=guard()).close()
    assert bytes(received) == sent


def test_settings_of_the_environment_do_nothing(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    peer.answers(OK)
    assert whole(peer) == b"{}"


def test_a_redirect_is_not_followed(peer: Peer) -> None:
    peer.answers(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    with closing(get(peer)) as exchange:
        assert exchange.status == 302


def test_the_body_of_a_redirect_waits_until_somebody_reads_it(peer: Peer) -> None:
    """The client's own redirects would read it whole, unpacked and without a bound, before they say that it is one."""
    peer.answers(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n")
    with closing(get(peer)) as exchange:  # the five bytes never come
        assert exchange.status == 302


@pytest.mark.parametrize("place", [b"http://[::1", b"\xff\xfe", b"http://a:99999999/\x00"], ids=repr)
def test_where_a_redirect_leads_is_not_even_read(peer: Peer, place: bytes) -> None:
    peer.answers(b"HTTP/1.1 302 Found\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n")
    with closing(get(peer)) as exchange:
        assert exchange.status == 302


BODIES = {
    "with a length": b"Content-Length: 4\r\n\r\nabcd",
    "in chunks": b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n3\r\nbcd\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_is_read(peer: Peer, body: bytes) -> None:
    peer.answers(b"HTTP/1.1 200 OK\r\n" + body)
    assert whole(peer) == b"abcd"


def test_a_body_may_end_with_the_connection(peer: Peer) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nabcd")
        connection.shutdown(socket.SHUT_WR)

    peer.does(answer)
    assert whole(peer) == b"abcd"


def test_each_piece_is_handed_on_as_it_comes(peer: Peer) -> None:
    seen = threading.Event()

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        seen.wait()
        connection.sendall(b"3\r\ntwo\r\n0\r\n\r\n")

    peer.does(answer)
    with closing(get(peer)) as exchange:
        pieces = exchange.pieces()
        assert next(pieces) == b"one"
        seen.set()
        assert list(pieces) == [b"two"]


def test_an_answer_beyond_the_limit_is_refused(peer: Peer) -> None:
    peer.answers(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 100)
    with pytest.raises(ServerProtocol, match="longer than 99 bytes"):
        whole(peer, limit=99)


def test_a_chunk_that_claims_to_be_huge_is_not_allocated(peer: Peer) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n" + b"x" * 200_000)

    peer.does(answer)
    with pytest.raises(ServerProtocol):
        whole(peer, limit=100_000)


ENDLESS = {
    "a body that ends with the connection": (b"\r\n", b"x" * 1_000),
    "a chunk of fewer than no bytes": (b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b"x" * 1_000),
    "trailers": (b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 100),
    "answers before the answer": (b"\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
}


@pytest.mark.parametrize(("head", "more"), ENDLESS.values(), ids=ENDLESS.keys())
def test_whatever_never_ends_is_refused(peer: Peer, head: bytes, more: bytes) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        status = b"100 Continue" if b"100" in more else b"200 OK"
        try:
            connection.sendall(b"HTTP/1.1 " + status + b"\r\n" + head)
            while True:
                connection.sendall(more)
        except OSError:
            pass  # the client has left

    peer.does(answer)
    with pytest.raises(ServerProtocol, match="longer than 300000 bytes"):
        whole(peer, most_bytes=300_000)


def test_bytes_that_never_stop_do_not_outlast_the_deadline(peer: Peer) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"x" * 100)
        except OSError:
            pass  # the client has left

    peer.does(answer)
    with closing(get(peer, milliseconds=100, most_bytes=2**60)) as exchange, pytest.raises(ServerSilent):
        for _ in exchange.pieces():
            pass


def test_a_chunk_with_a_number_that_is_none_is_not_the_protocol(peer: Peer) -> None:
    peer.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n")
    with pytest.raises(ServerProtocol, match="not HTTP"):
        whole(peer)


# -- broken connections -----------------------------------------------------------------------------

BROKEN = {
    "before the headers": b"",
    "in the first line": b"HTTP/1.1 20",
    "in a body with a length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
    "in a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nabc",
    "between chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "with a chunk that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
    "with something that is not HTTP": b"\x00\x00\x00\x05hello",
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN.keys())
def test_a_connection_that_breaks_is_lost(peer: Peer, raw: bytes) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_RDWR)

    peer.does(answer)
    with pytest.raises(ServerLost):
        whole(peer)


def test_nobody_there_is_away(tmp_path: Path) -> None:
    with pytest.raises(ServerAway, match="nobody serves"):
        HttpExchange(tmp_path / "none.sock", method="GET", target="/", body=None, guard=guard())


def test_a_socket_that_nobody_listens_on_is_away(peer: Peer) -> None:
    peer.close()
    with pytest.raises(ServerAway, match="nobody serves"):
        get(peer)


# -- waiting ------------------------------------------------------------------------------------------


def test_a_silent_peer_ends_the_wait(peer: Peer) -> None:
    peer.does(lambda *_: None)
    with pytest.raises(ServerSilent):
        get(peer, milliseconds=50)
    assert peer.left.wait(30)


def test_a_peer_that_reads_nothing_ends_the_wait(peer: Peer) -> None:
    stop = threading.Event()

    def wait(*_: object) -> None:
        stop.wait()

    peer.does(wait)
    with pytest.raises(ServerSilent):
        HttpExchange(peer.path, method="POST", target="/", body=b"x" * 8_000_000, guard=guard(milliseconds=50))
    stop.set()


def test_a_listener_that_is_overrun_is_away() -> None:
    with tempfile.TemporaryDirectory(prefix="bxm") as name, socket.socket(socket.AF_UNIX) as listener:
        path = Path(name) / "m.sock"
        listener.bind(str(path))
        listener.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(path))
            with pytest.raises(ServerAway):
                HttpExchange(path, method="GET", target="/", body=None, guard=guard())


def cancel_soon(cancel: CancelToken) -> threading.Thread:
    def run() -> None:
        time.sleep(0.05)
        cancel.cancel()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_cancelling_ends_a_wait_for_headers_and_the_peer_sees_it(peer: Peer) -> None:
    peer.does(lambda *_: None)
    cancel = CancelToken()
    with cancel.waking() as wake:
        thread = cancel_soon(cancel)
        with pytest.raises(Cancelled):
            HttpExchange(peer.path, method="GET", target="/", body=None, guard=guard(cancel, wake))
        assert peer.left.wait(30)
        thread.join()


def test_cancelling_ends_a_wait_in_the_middle_of_a_body(peer: Peer) -> None:
    peer.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    cancel = CancelToken()
    with cancel.waking() as wake:
        exchange = HttpExchange(peer.path, method="GET", target="/", body=None, guard=guard(cancel, wake))
        pieces = exchange.pieces()
        assert next(pieces) == b"abc"
        thread = cancel_soon(cancel)
        with pytest.raises(Cancelled):
            next(pieces)
        exchange.close()
        assert peer.left.wait(30)
        thread.join()


def test_closing_in_the_middle_is_seen_at_once_although_a_reader_is_left(peer: Peer) -> None:
    peer.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    exchange = get(peer)
    pieces = exchange.pieces()
    next(pieces)
    exchange.close()
    assert peer.left.wait(30)
    del pieces


def test_the_timer_may_be_exchanged_between_two_reads(peer: Peer) -> None:
    peer.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    exchange = get(peer, milliseconds=30_000)
    pieces = exchange.pieces()
    assert next(pieces) == b"abc"
    exchange.guard.timer = Liveness(SystemClock(), limit_ms=30, stall_ms=60_000)
    with pytest.raises(ServerSilent, match="30 ms"):
        next(pieces)
    exchange.close()


def test_nothing_is_left_open(peer: Peer) -> None:
    opened = Path("/proc/self/fd")
    peer.does(lambda connection, _: connection.sendall(OK), connections=20)
    for _ in range(5):
        whole(peer)
    before = len(list(opened.iterdir()))
    for _ in range(15):
        whole(peer)
    assert len(list(opened.iterdir())) <= before
