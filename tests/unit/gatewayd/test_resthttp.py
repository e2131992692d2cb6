"""One request and its answer, against servers that are none, that are too slow, or that are not whom they should be."""

import gzip
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore.deadline import SystemClock
from bxcore.secrets import Secret, SecretRefused
from bxcore.settings.gatewayd import Mattermost as Settings
from gatewayd import resthttp
from gatewayd.faults import MattermostAway, MattermostFault, MattermostUnclear
from gatewayd.resthttp import RestHttp
from tests.fakes.egress import Listener
from tests.fakes.web_server import CERTIFICATES, Answer, WebServer, page

CA_FILE = CERTIFICATES / "ca.pem"
TOKEN = "t0ken" * 5
ME = "/api/v4/users/me"


def ask(server: WebServer, *, host: str = "127.0.0.1", ca_file: Path | None = None, ms: int = 60_000) -> bytes:
    scheme = "http" if ca_file is None and server._context is None else "https"
    settings = Settings(url=f"{scheme}://{host}:{server.port}", ca_file=ca_file, reply_ms=ms, connect_ms=ms)
    http = RestHttp(settings, Secret("mattermost-token", TOKEN), SystemClock())
    try:
        return http.ask("GET", "/users/me").body
    finally:
        http.close()


def asked(answer: bytes | Answer, *, ms: int = 60_000) -> bytes:
    with WebServer({ME: answer}, tls=False) as server:
        return ask(server, ms=ms)


# -- what is sent ---------------------------------------------------------------------------------


def test_the_token_is_in_one_header_and_nothing_else_is_said() -> None:
    with WebServer({ME: page("{}")}, tls=False) as server:
        ask(server)
        head = server.requests[0].decode()
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    assert first == f"GET {ME} HTTP/1.1"
    assert dict(line.split(": ", 1) for line in lines) == {
        "Host": f"127.0.0.1:{server.port}",
        "Authorization": f"Bearer {TOKEN}",
        "Accept-Encoding": "identity",
        "User-Agent": "boxmaker-gatewayd",
    }


def test_a_cookie_is_not_kept() -> None:
    """The server would believe a cookie before the token."""
    with WebServer({ME: page("{}", "Set-Cookie: MMAUTHTOKEN=x; Path=/")}, tls=False) as server:
        http = RestHttp(Settings(url=f"http://127.0.0.1:{server.port}"), Secret("t", TOKEN), SystemClock())
        for _ in range(2):
            http.ask("GET", "/users/me")
        http.close()
        assert len(server.requests) == 2
        assert b"ookie" not in b"".join(server.requests)


def test_neither_proxies_nor_netrc_of_the_environment_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with WebServer({ME: page("{}")}, tls=False) as server:
        assert ask(server) == b"{}"
        assert b"Basic" not in server.requests[0]


@pytest.mark.parametrize(
    "token", ["", "two words", "line\nend", "line\r\nX-Other: 1", "caf\N{LATIN SMALL LETTER E}\u0301"]
)
def test_a_token_that_no_header_can_hold_is_refused_unseen(token: str) -> None:
    with pytest.raises(SecretRefused) as caught:
        RestHttp(Settings(url="http://127.0.0.1:1"), Secret("mattermost-token", token), SystemClock())
    assert token == "" or token not in str(caught.value)


# -- who answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_server_of_the_owners_authority_is_believed(host: str) -> None:
    with WebServer({ME: page("{}")}) as server:
        assert ask(server, host=host, ca_file=CA_FILE) == b"{}"


def test_c8_a_server_of_nobodys_authority_is_not_believed() -> None:
    with WebServer({ME: page("{}")}) as server:
        with pytest.raises(MattermostAway, match=r"not believed.*see ca_file"):
            ask(server)
        assert server.requests == []


def test_c8_a_certificate_for_another_name_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    with WebServer({ME: page("{}")}) as server:
        found = socket.getaddrinfo("127.0.0.1", server.port, type=socket.SOCK_STREAM)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(MattermostAway, match="not believed"):
            ask(server, host="chat.example.org", ca_file=CA_FILE)
        assert server.requests == []


def test_c8_plain_http_where_tls_should_be_fails() -> None:
    with Listener(lambda peer: peer.sendall(page("plain HTTP", status="400 Bad Request"))) as server:
        settings = Settings(url=f"https://127.0.0.1:{server.port}", ca_file=CA_FILE)
        http = RestHttp(settings, Secret("t", TOKEN), SystemClock())
        with pytest.raises(
            MattermostAway, match=r"TLS failed .*; no TLS is spoken there: is it another port, or http://\?"
        ):
            http.ask("GET", "/users/me")
        http.close()


CERTIFI = """
import sys, types
stub = types.ModuleType("certifi")
stub.where = lambda: sys.argv[2]
stub.contents = lambda: open(sys.argv[2]).read()
sys.modules["certifi"] = stub
from pathlib import Path
from bxcore.deadline import SystemClock
from bxcore.secrets import Secret
from bxcore.settings.gatewayd import Mattermost
from gatewayd.faults import MattermostFault
from gatewayd.resthttp import RestHttp
import requests.adapters
assert requests.adapters.DEFAULT_CA_BUNDLE_PATH == sys.argv[2]
settings = Mattermost(url=sys.argv[1], ca_file=Path(sys.argv[3]) if sys.argv[3] else None)
http = RestHttp(settings, Secret("token", "x"), SystemClock())
try:
    print(http.ask("GET", "/users/me").status)
except MattermostFault as fault:
    print(fault)
"""


def with_certifi(server: WebServer, *, bundle: Path, ca_file: Path | None) -> str:
    """Return how a request ends in a process whose certifi has that file."""
    url = f"https://127.0.0.1:{server.port}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["python", "."])}
    argv = [sys.executable, "-c", CERTIFI, url, str(bundle), str(ca_file or "")]
    return subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_the_file_of_certifi_is_never_opened(tmp_path: Path) -> None:
    """What only certifi's file vouches for is not believed; and where it is missing, nobody misses it."""
    with WebServer({ME: page("{}")}) as server:
        assert "not believed" in with_certifi(server, bundle=CA_FILE, ca_file=None)
        assert with_certifi(server, bundle=tmp_path / "missing.pem", ca_file=CA_FILE) == "200"


# -- what is answered -----------------------------------------------------------------------------


def cut_off(peer: socket.socket, _: bytes) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


def silence(peer: socket.socket, _: bytes) -> None:
    peer.recv(1)


def dripping_body(peer: socket.socket, _: bytes) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    _drip(peer, b" ")


def dripping_head(peer: socket.socket, _: bytes) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    _drip(peer, b"x")


def endless_continues(peer: socket.socket, _: bytes) -> None:
    _drip(peer, b"HTTP/1.1 100 Continue\r\n\r\n")


def _drip(peer: socket.socket, drop: bytes) -> None:
    try:
        while True:
            peer.sendall(drop)
            peer.settimeout(0.005)
            try:
                if not peer.recv(1):
                    return
            except TimeoutError:
                pass
            peer.settimeout(None)
    except OSError:
        pass


ENDLESS = {"silence": silence, "body": dripping_body, "head": dripping_head, "100 continue": endless_continues}


@pytest.mark.parametrize("answer", ENDLESS.values(), ids=ENDLESS.keys())
def test_an_answer_that_never_ends_is_given_up(answer: Answer) -> None:
    """However much keeps coming: the time is for all of it."""
    with pytest.raises(MattermostAway, match="did not answer in time"):
        asked(answer, ms=100)


def test_an_answer_that_is_cut_off_is_no_answer() -> None:
    with pytest.raises(MattermostAway):
        asked(cut_off)


def test_an_answer_of_64_mib_is_read_and_no_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resthttp, "MOST_BYTES", 500_000)
    assert len(asked(page("x" * 500_000))) == 500_000
    with pytest.raises(MattermostUnclear, match="more at once"):
        asked(page("x" * 1_000_000))


def test_an_endless_chunked_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def chunks(peer: socket.socket, _: bytes) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        _drip(peer, b"10000\r\n" + b"x" * 65_536 + b"\r\n")

    monkeypatch.setattr(resthttp, "MOST_BYTES", 500_000)
    with pytest.raises(MattermostUnclear, match="more at once"):
        asked(chunks)


def test_a_small_answer_cannot_unpack_to_a_huge_one() -> None:
    packed = gzip.compress(b"x" * 1_000_000)
    assert asked(page(packed, "Content-Encoding: gzip")) == packed


NOT_HTTP: dict[str, tuple[bytes, type[MattermostFault]]] = {
    "another protocol": (b"SSH-2.0-OpenSSH_9.2\r\n", MattermostUnclear),
    "nothing": (b"", MattermostAway),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", MattermostUnclear),
    "a chunk below zero": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nx\r\n",
        MattermostUnclear,
    ),
    "a chunk of words": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n", MattermostAway),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", MattermostUnclear),
    "a line without end": (b"HTTP/1.1 200 " + b"x" * 100_000, MattermostUnclear),
    "headers without end": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000, MattermostUnclear),
    "bytes": (bytes(range(256)), MattermostUnclear),
}


@pytest.mark.parametrize(("raw", "kind"), NOT_HTTP.values(), ids=NOT_HTTP.keys())
def test_what_is_not_http_is_told_from_what_is_cut_off(raw: bytes, kind: type[MattermostFault]) -> None:
    with pytest.raises(kind):
        asked(raw)


def test_c8_a_name_that_does_not_exist_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with (
        WebServer({}, tls=False) as server,
        pytest.raises(MattermostAway, match=r"chat\.example\.org cannot be looked up"),
    ):
        ask(server, host="chat.example.org")


def test_the_next_address_is_tried_where_the_first_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with a broken IPv6, say: the dead address has half of the time and not all of it."""
    with WebServer({ME: page("{}")}, tls=False) as server, socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        closed = socket.getaddrinfo("127.0.0.1", 1, type=socket.SOCK_STREAM)
        good = socket.getaddrinfo("127.0.0.1", server.port, type=socket.SOCK_STREAM)
        swallowing = socket.getaddrinfo("127.0.0.1", full.getsockname()[1], type=socket.SOCK_STREAM)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [*closed, *swallowing, *good])
        assert ask(server, host="chat.example.org", ms=1_200) == b"{}"
        for filler in fillers:
            filler.close()


def test_a_connection_that_nobody_takes_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = Settings(url=f"https://127.0.0.1:{silent.getsockname()[1]}", connect_ms=50, ca_file=CA_FILE)
        http = RestHttp(settings, Secret("t", TOKEN), SystemClock())
        with pytest.raises(MattermostAway, match="in time"):
            http.ask("GET", "/users/me")
        http.close()


def keep(answers: int) -> Callable[[socket.socket, bytes], None]:
    """Answer so many requests on one connection."""

    def serve(peer: socket.socket, head: bytes) -> None:
        for _ in range(answers):
            peer.sendall(page("{}"))
            head = peer.recv(65_536)
            if not head:
                return

    return serve


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_connection_is_kept_between_requests(*, tls: bool) -> None:
    with WebServer({ME: keep(5)}, tls=tls) as server:
        url = f"http{'s' if tls else ''}://127.0.0.1:{server.port}"
        http = RestHttp(Settings(url=url, ca_file=CA_FILE), Secret("t", TOKEN), SystemClock())
        for _ in range(5):
            assert http.ask("GET", "/users/me").body == b"{}"
        http.close()
        assert len(server.requests) == 1


def test_nothing_of_the_token_is_in_a_repr() -> None:
    http = RestHttp(Settings(url="http://127.0.0.1:1"), Secret("t", TOKEN), SystemClock())
    shown = repr([http, vars(http)])
    http.close()
    assert TOKEN not in shown
    assert re.search("Secret", shown)
