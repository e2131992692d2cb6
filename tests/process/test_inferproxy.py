import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bxcore.errors import EXIT_CONFIG
from tests.process.role import Role

SECRET = b"the owner's words"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "infer").mkdir(mode=0o750)
    return tmp_path


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A listening socket in the place of the model server; each test plays the server itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def configure(home: Path, server: socket.socket, *more: str) -> str:
    path = home / "inferproxy.toml"
    address = f"http://127.0.0.1:{server.getsockname()[1]}"
    path.write_text("\n".join([f'listen = "{home}/infer/infer.sock"', f'upstream = "{address}"', *more]))
    return str(path)


@pytest.fixture
def proxy(home: Path, server: socket.socket) -> Iterator[Role]:
    with Role("inferproxy", "--config", configure(home, server), home=home) as role:
        yield role.wait_ready()


def dial(home: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(str(home / "infer/infer.sock"))
    except OSError:
        client.close()
        raise
    return client


def meet(home: Path, server: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = dial(home)
    far, _ = server.accept()
    return client, far


def test_http_passes_as_it_is(home: Path, server: socket.socket, proxy: Role) -> None:
    class Echo(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body[::-1])

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Echo, bind_and_activate=False)
    http.socket.close()
    http.socket = server
    threading.Thread(target=http.serve_forever).start()
    try:
        with dial(home) as client:
            client.sendall(b"POST /v1 HTTP/1.0\r\ncontent-length: 6\r\n\r\nabcdef")
            answer = b"".join(iter(lambda: client.recv(4096), b""))
    finally:
        http.shutdown()
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nfedcba")


def test_nothing_of_what_passes_is_logged(home: Path, server: socket.socket, proxy: Role) -> None:
    client, far = meet(home, server)
    with client, far:
        client.sendall(SECRET)
        far.sendall(far.recv(100))
        assert client.recv(100) == SECRET
    assert proxy.terminate() == 0
    assert "the owner" not in proxy.log()
    assert "infer.sock" not in proxy.log()
    assert "127.0.0.1" not in proxy.log()


def test_a_client_that_leaves_closes_the_servers_connection(home: Path, server: socket.socket, proxy: Role) -> None:
    client, far = meet(home, server)
    with far:
        client.sendall(b"x")
        assert far.recv(1) == b"x"
        client.close()
        assert far.recv(1) == b""


def test_a_server_that_dies_mid_stream_ends_the_clients_stream(home: Path, server: socket.socket, proxy: Role) -> None:
    client, far = meet(home, server)
    with client:
        far.sendall(b"data: half")
        far.close()
        assert b"".join(iter(lambda: client.recv(100), b"")) == b"data: half"


def test_a_server_that_is_down_closes_clients_and_serves_them_once_it_is_back(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        config, port = configure(home, server), server.getsockname()[1]
    with Role("inferproxy", "--config", config, home=home) as proxy:
        proxy.wait_ready()
        for _ in range(3):
            with dial(home) as client:
                assert client.recv(1) == b""
        with socket.create_server(("127.0.0.1", port)) as server:
            client, far = meet(home, server)
            with client, far:
                client.sendall(b"x")
                assert far.recv(1) == b"x"
        assert proxy.terminate() == 0
        assert proxy.log().count('upstream away reason="Connection refused" code=upstream_away') == 1
        assert proxy.log().count("upstream back away_ms=") == 1


def test_sigterm_cuts_what_is_open_and_leaves_in_order(home: Path, server: socket.socket, proxy: Role) -> None:
    client, far = meet(home, server)
    with client, far:
        assert proxy.terminate() == 0
        assert client.recv(1) == b""
        assert far.recv(1) == b""
    assert not (home / "infer/infer.sock").exists()
    assert "stopped left=0" in proxy.log()


def test_a_second_start_is_refused_and_the_first_goes_on(home: Path, server: socket.socket, proxy: Role) -> None:
    with Role("inferproxy", "--config", configure(home, server), home=home) as second:
        assert second.exit_code() == EXIT_CONFIG
        assert second.log().strip().endswith("[already_running]")
        assert second.log().count("\n") == 1
    client, far = meet(home, server)
    client.close()
    far.close()


def test_twenty_kills_in_a_row_and_it_comes_up_each_time(home: Path, server: socket.socket) -> None:
    for _ in range(20):
        with Role("inferproxy", "--config", configure(home, server), home=home) as proxy:
            proxy.wait_ready()
            client, far = meet(home, server)
            proxy.kill()
            assert (client.recv(1), far.recv(1)) == (b"", b"")
            client.close()
            far.close()


def test_a_burst_as_large_as_the_cap_is_served_in_a_small_process(
    home: Path, server: socket.socket, proxy: Role
) -> None:
    with contextlib.ExitStack() as stack:
        pairs = [meet(home, server) for _ in range(32)]
        for client, far in pairs:
            stack.enter_context(client)
            stack.enter_context(far)
        for _, far in pairs:
            far.sendall(b"x" * 200_000)
        for client, _ in pairs:
            assert len(client.recv(200_000, socket.MSG_WAITALL)) == 200_000
        with dial(home) as beyond:
            assert beyond.recv(1) == b""
        assert proxy.resident_bytes() < 20_000_000
    assert proxy.terminate() == 0
    assert "refusing connections_max=32 code=proxy_full" in proxy.log()


def test_it_runs_without_any_installed_package(home: Path, server: socket.socket) -> None:
    isolated = ("-S",)  # no site-packages
    with Role("inferproxy", "--config", configure(home, server), home=home, python=isolated) as proxy:
        assert proxy.wait_ready().terminate() == 0


BAD = {
    "an unknown key": ("colour = 1", "inferproxy.toml:3: colour: unknown key [config]"),
    "a wrong type": ('idle_ms = "long"', "inferproxy.toml:3: idle_ms: expected a whole number"),
}


@pytest.mark.parametrize(("line", "fault"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("check", [(), ("--check",)], ids=["start", "check"])
def test_a_wrong_file_is_a_line_and_exit_78(
    home: Path, server: socket.socket, line: str, fault: str, check: tuple[str, ...]
) -> None:
    with Role("inferproxy", "--config", configure(home, server, line), *check, home=home) as proxy:
        assert proxy.exit_code() == EXIT_CONFIG
        assert fault in proxy.log()
        assert proxy.log().count("\n") == 1


def test_check_starts_nothing(home: Path, server: socket.socket) -> None:
    with Role("inferproxy", "--config", configure(home, server), "--check", home=home) as proxy:
        assert proxy.exit_code() == 0
        assert proxy.log() == ""
    assert list((home / "infer").iterdir()) == []


def test_an_unsafe_directory_is_refused(home: Path, server: socket.socket) -> None:
    (home / "infer").chmod(0o777)
    with Role("inferproxy", "--config", configure(home, server), home=home) as proxy:
        assert proxy.exit_code() == EXIT_CONFIG
        assert "mode is 0777" in proxy.log()
