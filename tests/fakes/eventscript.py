"""A server that says on its event streams exactly what a test wrote down, one script a connection.

Threads: one a connection, as in egress.Listener.
"""

import base64
import hashlib
import json
import re
import socket
import struct
from collections.abc import Sequence

from tests.fakes.web_server import WebServer, page

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
STREAM = "/api/v4/websocket"


def upgraded(head: bytes) -> bytes:
    key = re.search(rb"Sec-WebSocket-Key: (\S+)", head)
    assert key is not None
    accepted = base64.b64encode(hashlib.sha1(key[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accepted + b"\r\n\r\n"
    )


def frame(opcode: int, payload: bytes, *, final: bool = True, announced: int | None = None) -> bytes:
    size = len(payload) if announced is None else announced
    first = bytes([(0x80 if final else 0) | opcode])
    if size < 126:
        return first + bytes([size]) + payload
    if size < 65_536:
        return first + b"\x7e" + struct.pack("!H", size) + payload
    return first + b"\x7f" + struct.pack("!Q", size) + payload


class EventScript(WebServer):
    """Plays `scripts`, one a connection, the last one again and again. A text is sent as it stands.

    After its script a connection is held until the client leaves; a None ends it instead.
    """

    def __init__(self, *scripts: Sequence[object]) -> None:
        super().__init__({}, tls=False)
        self._scripts = list(scripts)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def targets(self) -> list[str]:
        """What each event stream asked for, in order."""
        targets = [head.split(b" ")[1].decode() for head in list(self.requests)]
        return [target for target in targets if target.startswith(STREAM)]

    def _serve_one(self, peer: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += peer.recv(4_096) or b"\r\n\r\n"
        self.requests.append(head)
        if STREAM.encode() not in head:
            peer.sendall(page("{}", status="500 Internal Server Error"))
            return
        peer.sendall(upgraded(head))
        try:
            self._play(peer, self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0])
        except OSError:
            pass  # the client left

    def _play(self, peer: socket.socket, script: Sequence[object]) -> None:
        for line in script:
            if line is None:
                peer.shutdown(socket.SHUT_WR)  # and read on: closed with unread bytes, it would cut off what was said
                break
            peer.sendall(frame(TEXT, (line if isinstance(line, str) else json.dumps(line)).encode()))
        while peer.recv(65_536):
            pass
