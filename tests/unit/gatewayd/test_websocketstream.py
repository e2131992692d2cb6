"""The event stream's WebSocket, against servers that are none, or that say what no server should."""

import base64
import socket
import struct
import threading
from collections.abc import Callable

import pytest

from bxcore.deadline import Deadline, SystemClock
from bxcore.secrets import Secret
from bxcore.settings.gatewayd import Mattermost as Settings
from gatewayd import websocketstream
from gatewayd.faults import MattermostAway, MattermostFault, MattermostUnclear, TokenRefused
from gatewayd.line import Endpoint, Line
from gatewayd.websocketstream import WebSocketStream
from tests.fakes.eventscript import BINARY, CLOSE, PING, PONG, TEXT, frame, upgraded
from tests.fakes.web_server import CERTIFICATES, WebServer, page

TARGET = "/api/v4/websocket"
TOKEN = "t0ken" * 5
Script = Callable[[socket.socket], None]


def serving(said: bytes, *, then: Script | None = None) -> Callable[[socket.socket, bytes], None]:
    """Upgrade, and say this; the first frame comes together with the end of the handshake."""

    def serve(peer: socket.socket, head: bytes) -> None:
        try:
            peer.sendall(upgraded(head) + said)
            if then is not None:
                then(peer)
            while peer.recv(65_536):
                pass
        except OSError:
            pass  # the client left

    return serve


class Client:
    """A stream to a server of the test; closed at the end."""

    def __init__(self, server: WebServer, *, tls: bool = False) -> None:
        url = f"http{'s' if tls else ''}://127.0.0.1:{server.port}"
        self.endpoint = Endpoint.of(Settings(url=url, ca_file=CERTIFICATES / "ca.pem"))
        deadline = Deadline.after(SystemClock(), milliseconds=60_000)
        self.line = Line(self.endpoint, deadline, room=websocketstream.MOST_BYTES)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.line.close()

    def upgrade(self) -> WebSocketStream:
        self.line.open()
        return websocketstream.upgrade(
            self.line, self.endpoint, Secret("mattermost-token", TOKEN), query="", most_pause_ms=60_000
        )


def said(raw: bytes, *, tls: bool = False) -> str:
    with WebServer({TARGET: serving(raw)}, tls=tls) as server, Client(server, tls=tls) as client:
        return client.upgrade().receive()


# -- the upgrade ----------------------------------------------------------------------------------


def test_the_upgrade_says_what_it_must_and_no_origin() -> None:
    with WebServer({TARGET: serving(b"")}, tls=False) as server, Client(server) as client:
        client.upgrade()
        first, *lines = server.requests[0].decode().removesuffix("\r\n\r\n").split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines)
    assert first == f"GET {TARGET} HTTP/1.1"
    assert len(base64.b64decode(fields.pop("Sec-WebSocket-Key"))) == 16
    assert fields == {
        "Host": f"127.0.0.1:{server.port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Authorization": f"Bearer {TOKEN}",
        "User-Agent": "boxmaker-gatewayd",
    }


def test_a_cookie_of_the_handshake_is_not_sent_again() -> None:
    """Websocket-client keeps one for the whole process; the server would believe it before the token."""

    def with_cookie(peer: socket.socket, head: bytes) -> None:
        cookie = b"Set-Cookie: MMAUTHTOKEN=x; Domain=127.0.0.1\r\n\r\n"
        peer.sendall(upgraded(head).removesuffix(b"\r\n") + cookie)

    with WebServer({TARGET: with_cookie}, tls=False) as server:
        for _ in range(2):
            with Client(server) as client:
                client.upgrade()
        assert b"ookie" not in b"".join(server.requests)


def test_no_proxy_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Websocket-client would take one, even where it is told that none is to be used."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert said(frame(TEXT, b"{}")) == "{}"


def test_the_bundle_of_the_environment_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBSOCKET_CLIENT_CA_BUNDLE", str(CERTIFICATES / "ca.pem"))
    with WebServer({TARGET: serving(b"")}) as server, Client(server, tls=True) as client:
        client.line._endpoint = Endpoint.of(Settings(url=f"https://127.0.0.1:{server.port}"))
        with pytest.raises(MattermostAway, match="not believed"):
            client.upgrade()


REFUSALS: dict[str, tuple[bytes, type[MattermostFault]]] = {
    "401 and a body that never comes": (b"HTTP/1.1 401 No\r\nContent-Length: 1000000000\r\n\r\n", TokenRefused),
    "a redirect": (page("", f"Location: {TARGET}", status="302 Found"), MattermostUnclear),
    "a page": (page("<html>hello</html>"), MattermostUnclear),
    "101 for something else": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", MattermostUnclear),
    "101 for somebody else": (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: AAAA\r\n\r\n",
        MattermostUnclear,
    ),
    "another protocol": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", MattermostUnclear),
    "bytes": (bytes(range(256)) + b"\r\n\r\n", MattermostUnclear),
    "a head without end": (b"HTTP/1.1 101 " + b"x" * 200_000, MattermostUnclear),
    "nothing": (b"", MattermostAway),
    "half a head": (b"HTTP/1.1 101 Swi", MattermostAway),
}


@pytest.mark.parametrize(("raw", "kind"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_is_no_upgrade_is_judged_by_its_head(raw: bytes, kind: type[MattermostFault]) -> None:
    with WebServer({TARGET: raw}, tls=False) as server, Client(server) as client, pytest.raises(kind):
        client.upgrade()


# -- messages -------------------------------------------------------------------------------------

GOOD: dict[str, tuple[bytes, bytes]] = {
    "short": (frame(TEXT, b"{}"), b"{}"),
    "longer": (frame(TEXT, b"x" * 200), b"x" * 200),
    "long": (frame(TEXT, b"x" * 200_000), b"x" * 200_000),
    "in pieces": (frame(TEXT, b"ab", final=False) + frame(0, b"cd", final=False) + frame(0, b"ef"), b"abcdef"),
    "a ping between": (frame(TEXT, b"ab", final=False) + frame(PING, b"") + frame(0, b"c"), b"abc"),
    "behind pongs": (frame(PONG, b"x") * 10 + frame(TEXT, b"{}"), b"{}"),
    "a character across pieces": (frame(TEXT, b"\xe2\x82", final=False) + frame(0, b"\xac"), b"\xe2\x82\xac"),
}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(("raw", "message"), GOOD.values(), ids=GOOD.keys())
def test_a_text_message_arrives_whole(raw: bytes, message: bytes, *, tls: bool) -> None:
    assert said(raw, tls=tls).encode() == message


BAD: dict[str, tuple[bytes, type[MattermostFault]]] = {
    "binary": (frame(BINARY, b"{}"), MattermostUnclear),
    "no utf-8": (frame(TEXT, b"\xff\xfe"), MattermostUnclear),
    "an unknown kind": (frame(5, b""), MattermostUnclear),
    "reserved bits": (b"\xf1\x00", MattermostUnclear),
    "a piece of nothing": (frame(0, b"x"), MattermostUnclear),
    "a message inside of one": (frame(TEXT, b"a", final=False) + frame(TEXT, b"b"), MattermostUnclear),
    "a long ping": (frame(PING, b"x" * 200), MattermostUnclear),
    "a goodbye": (frame(CLOSE, struct.pack("!H", 1001)), MattermostAway),
    "a goodbye without a word": (frame(CLOSE, b""), MattermostAway),
    "half a goodbye": (frame(CLOSE, b"x"), MattermostUnclear),
    "4 GiB": (frame(TEXT, b"x" * 6_000_000, announced=2**32), MattermostUnclear),
    "more bytes than exist": (frame(TEXT, b"x" * 6_000_000, announced=2**63), MattermostUnclear),
    "pieces without end": (
        frame(TEXT, b"x" * 60_000, final=False) + frame(0, b"x" * 60_000, final=False) * 100,
        MattermostUnclear,
    ),
}


@pytest.mark.parametrize(("raw", "kind"), BAD.values(), ids=BAD.keys())
def test_what_is_no_text_message_ends_the_stream(raw: bytes, kind: type[MattermostFault]) -> None:
    with pytest.raises(kind):
        said(raw)


def test_the_bound_is_for_each_message_and_not_for_all() -> None:
    large = frame(TEXT, b"x" * 3_000_000)
    with WebServer({TARGET: serving(large * 3)}, tls=False) as server, Client(server) as client:
        stream = client.upgrade()
        assert [len(stream.receive()) for _ in range(3)] == [3_000_000] * 3


def test_every_cut_of_a_stream_is_its_end() -> None:
    whole = frame(TEXT, b"hello", final=False) + frame(0, b"world")
    for end in range(len(whole)):
        answer = lambda peer, head, end=end: peer.sendall(upgraded(head) + whole[:end])  # noqa: E731
        with WebServer({TARGET: answer}, tls=False) as server, Client(server) as client:
            stream = client.upgrade()
            with pytest.raises(MattermostAway):
                stream.receive()


def test_what_is_sent_is_one_masked_text_frame() -> None:
    seen: list[bytes] = []

    def look(peer: socket.socket) -> None:
        seen.append(peer.recv(65_536))
        peer.sendall(frame(TEXT, b"thanks"))

    with WebServer({TARGET: serving(b"", then=look)}, tls=False) as server, Client(server) as client:
        stream = client.upgrade()
        stream.send('{"seq":1}')
        assert stream.receive() == "thanks"
    raw = seen[0]
    assert (raw[0], raw[1]) == (0x81, 0x80 | 9)
    assert bytes(byte ^ raw[2 + index % 4] for index, byte in enumerate(raw[6:])) == b'{"seq":1}'


def test_a_ping_of_the_server_is_answered_while_reading() -> None:
    seen: list[bytes] = []

    def ping(peer: socket.socket) -> None:
        peer.sendall(frame(PING, b"abc"))
        seen.append(peer.recv(65_536))
        peer.sendall(frame(TEXT, b"thanks"))

    with WebServer({TARGET: serving(b"", then=ping)}, tls=False) as server, Client(server) as client:
        assert client.upgrade().receive() == "thanks"
    assert seen[0][0] == 0x80 | PONG


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_hanging_up_ends_a_read_of_another_thread(*, tls: bool) -> None:
    with WebServer({TARGET: serving(b"")}, tls=tls) as server, Client(server, tls=tls) as client:
        stream = client.upgrade()
        caught: list[MattermostFault] = []

        def read() -> None:
            try:
                stream.receive()
            except MattermostFault as fault:
                caught.append(fault)

        thread = threading.Thread(target=read)
        thread.start()
        client.line.hang_up()
        thread.join()
        assert [type(fault) for fault in caught] == [MattermostAway]


def test_what_was_hung_up_before_it_was_opened_never_is() -> None:
    with WebServer({TARGET: serving(b"")}, tls=False) as server, Client(server) as client:
        client.line.hang_up()
        with pytest.raises(MattermostAway):
            client.upgrade()
        assert server.requests == []
