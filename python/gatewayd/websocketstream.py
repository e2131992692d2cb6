"""The event stream's WebSocket: the upgrade, then text messages, over a Line.

The frames are websocket-client's matter. Its upgrade is not used: it keeps cookies for the whole process and sends
them again (the server would believe a cookie before the token), reads the whole body of a refusal first, hides the
status of a redirect, and takes proxies from the environment even where it is told that there are none. Threads: one.
"""

import base64
import hashlib
import os
import re
from collections.abc import Mapping

import websocket

from bxcore.secrets import Secret
from gatewayd import httpstatus
from gatewayd.faults import MattermostAway, MattermostUnclear
from gatewayd.line import Endpoint, Line
from gatewayd.resthttp import AGENT, authorization

MOST_BYTES = 4 * 1_048_576
"""The longest message: a post is 16,383 characters, in JSON inside of JSON, with its props."""

_MOST_HEAD = 65_536
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_STATUS = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: .*)?")


class WebSocketStream:
    """An open stream. What goes wrong is a MattermostFault; MattermostAway where the server ended it."""

    def __init__(self, line: Line) -> None:
        self._line = line
        # Its own look at UTF-8 goes byte by byte, and takes a second for three megabytes.
        self._frames = websocket.WebSocket(enable_multithread=False, skip_utf8_validation=True)
        # What its connect() would set after an upgrade of its own.
        self._frames.sock = line  # type: ignore[assignment]  # a Line does what it asks of a socket
        self._frames.connected = True

    def receive(self) -> str:
        """Return the next text message. The server's pings are answered meanwhile, and in no other place."""
        self._line.room = MOST_BYTES
        try:
            opcode, data = self._frames.recv_data()
            text = str(data, "utf-8") if opcode == websocket.ABNF.OPCODE_TEXT else None
        except websocket.WebSocketConnectionClosedException:
            raise MattermostAway("the server ended the event stream") from None
        except (websocket.WebSocketException, ValueError, ArithmeticError) as fault:
            raise MattermostUnclear(f"the event stream is no WebSocket ({type(fault).__name__})") from None
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            raise MattermostAway(f"the server ended the event stream (code {int.from_bytes(data[:2])})")
        if text is None:
            raise MattermostUnclear("the event stream holds something else than text")
        return text

    def send(self, text: str) -> None:
        """Send a text message. The server ends a stream that sends it binary ones, or more than 8,192 bytes."""
        self._frames.send_text(text)


def upgrade(line: Line, endpoint: Endpoint, token: Secret, *, query: str, most_pause_ms: int) -> WebSocketStream:
    """Make a stream of an open line. Raises what gatewayd.httpstatus makes of another status than 101."""
    key = base64.b64encode(os.urandom(16))
    line.sendall(_request(endpoint, token, query, key))
    status, headers = _response(line.read_head(_MOST_HEAD))
    if status != 101:
        raise httpstatus.fault("event stream", status, headers, most_ms=most_pause_ms, fixed=True)
    if headers.get("upgrade", "").lower() != "websocket" or headers.get("sec-websocket-accept") != _accepted(key):
        raise MattermostUnclear("event stream: whoever answered does not speak WebSocket")
    return WebSocketStream(line)


def _request(endpoint: Endpoint, token: Secret, query: str, key: bytes) -> bytes:
    lines = [
        f"GET {endpoint.path}/api/v4/websocket{query} HTTP/1.1",
        f"Host: {endpoint.authority}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key.decode()}",
        "Sec-WebSocket-Version: 13",
        # No Origin: the server compares it with the address that it believes to have itself.
        f"Authorization: {authorization(token)}",
        f"User-Agent: {AGENT}",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _response(head: bytes) -> tuple[int, Mapping[str, str]]:
    first, *rest = head.decode("latin-1").split("\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise MattermostUnclear("event stream: whoever answered does not speak HTTP")
    pairs = (line.partition(":") for line in rest)
    return int(status[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _accepted(key: bytes) -> str:
    # SHA-1 as RFC 6455 has it: it shows that the other end read this request, and guards nothing.
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
