import queue
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bxcore import listener
from inferproxy.config import Config, Upstream
from inferproxy.proxy import Proxy, dial

Dial = Callable[..., socket.socket]


class Upstairs:
    """What the proxy dials: hands out one end of a pair and keeps the other, or is away."""

    def __init__(self) -> None:
        self.away = False
        self.servers: list[socket.socket] = []
        self._new: queue.Queue[socket.socket] = queue.Queue()

    def dial(self, _: Upstream, *, connect_ms: int) -> socket.socket:
        if self.away:
            raise ConnectionRefusedError(111, "Connection refused")
        near, far = socket.socketpair()
        self.servers.append(far)
        self._new.put(far)
        return near

    def next(self) -> socket.socket:
        return self._new.get()


class House:
    """A running proxy, with everything in this process."""

    def __init__(self, path: Path, **limits: int) -> None:
        self.path = path
        self.upstairs = Upstairs()
        self._listening = listener.open_socket(path)
        config = Config(listen=path, upstream=Upstream(host="nowhere", port=1), **limits)
        self.proxy = Proxy(self._listening, config, dial=self.upstairs.dial)
        self._thread = threading.Thread(target=self.proxy.serve)
        self._thread.start()

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.path))
        return client

    def close(self) -> None:
        self.proxy.stop()
        self._thread.join()
        self._listening.close()
        for server in self.upstairs.servers:
            server.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "infer").mkdir(mode=0o750)
    return tmp_path / "infer" / "infer.sock"


@pytest.fixture
def house(path: Path) -> Iterator[House]:
    with closing(House(path, max_connections=2, accept_burst=1000)) as opened:
        yield opened


def test_each_client_has_a_connection_of_its_own(house: House) -> None:
    with house.connect() as first, house.connect() as second:
        servers = [house.upstairs.next(), house.upstairs.next()]
        first.sendall(b"1")
        second.sendall(b"2")
        assert {server.recv(1) for server in servers} == {b"1", b"2"}


def test_beyond_the_cap_a_client_is_closed_at_once_and_the_others_go_on(house: House) -> None:
    with house.connect() as first, house.connect(), house.connect() as third:
        servers = [house.upstairs.next(), house.upstairs.next()]
        assert third.recv(1) == b""
        first.sendall(b"still here")
        [ready], _, _ = select.select(servers, [], [])
        assert ready.recv(10) == b"still here"


def test_each_time_it_fills_is_logged_once(house: House, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with house.connect(), house.connect() as second:
            servers = [house.upstairs.next(), house.upstairs.next()]
            for _ in range(3):
                with house.connect() as refused:
                    assert refused.recv(1) == b""
            second.close()
        for server in servers:
            wait_for_close(server)
    assert caplog.text.count("code=proxy_full") == 2


def test_a_client_that_left_makes_room(house: House) -> None:
    with house.connect():
        house.upstairs.next()
        for _ in range(20):
            with house.connect() as client:
                server = house.upstairs.next()
                client.sendall(b"x")
                assert server.recv(1) == b"x"
            wait_for_close(server)


def wait_for_close(server: socket.socket) -> None:
    poll = select.poll()
    poll.register(server, 0)  # nothing but the hang-up
    poll.poll()


def test_while_the_upstream_is_away_clients_are_closed_and_then_served(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "boxmaker.proxy")
    house.upstairs.away = True
    for _ in range(5):
        with house.connect() as client:
            assert client.recv(1) == b""
    house.upstairs.away = False
    with house.connect() as client:
        client.sendall(b"x")
        assert house.upstairs.next().recv(1) == b"x"
    changes = [record.getMessage() for record in caplog.records if record.getMessage().startswith("upstream")]
    assert changes[0] == "upstream away reason=Connection refused code=upstream_away"
    assert [change.split("=")[0] for change in changes[1:]] == ["upstream back away_ms"]


def test_stop_cuts_what_is_open_and_takes_the_socket_away(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "boxmaker.proxy")
    house = House(path)
    with house.connect() as client:
        server = house.upstairs.next()
        house.proxy.stop()
        assert client.recv(1) == b""
        assert server.recv(1) == b""
        house.close()
    assert not path.exists()
    assert "stopped left=0" in caplog.text


def test_the_accept_rate_makes_clients_wait_and_refuses_none(path: Path) -> None:
    with closing(House(path, accept_burst=1, accept_per_second=1000)) as house:
        for _ in range(20):
            with house.connect() as client:
                client.sendall(b"x")
                assert house.upstairs.next().recv(1) == b"x"


def test_stop_ends_the_wait_for_a_token(path: Path) -> None:
    house = House(path, accept_burst=1, accept_per_second=1)
    clients = [house.connect() for _ in range(30)]  # half a minute of tokens
    house.upstairs.next()
    house.close()
    for client in clients:
        client.close()


def test_out_of_threads_a_client_is_closed_and_the_next_is_served(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    refusals = [RuntimeError("can't start new thread")]

    def start_or_not(thread: threading.Thread) -> None:
        if refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)
    with house.connect() as client:
        assert client.recv(1) == b""
    with house.connect() as client:
        client.sendall(b"x")
        assert house.upstairs.next().recv(1) == b"x"


# -- dialing ------------------------------------------------------------------------------------


def test_a_host_and_port_are_dialed_without_delaying_small_pieces() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with dial(Upstream(host="127.0.0.1", port=port), connect_ms=1000) as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_path_is_dialed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "llama.sock"))
        server.listen()
        dial(Upstream(path=str(tmp_path / "llama.sock")), connect_ms=1000).close()


def test_nobody_there_is_an_os_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for nobody in (Upstream(host="127.0.0.1", port=port), Upstream(path=str(tmp_path / "nobody"))):
        with pytest.raises(OSError, match=r"refused|No such"):
            dial(nobody, connect_ms=1000)
