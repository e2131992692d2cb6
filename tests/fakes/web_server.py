"""A web server that says exactly the bytes of a script, plainly or inside TLS, and remembers what it was asked."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from tests.fakes.egress import Listener

CERTIFICATES = Path(__file__).parents[1] / "fixtures" / "tls"

Answer = Callable[[socket.socket, bytes], None]
"""Gets the connection and the head of the request."""


def authorities() -> ssl.SSLContext:
    """Return what a client of these servers trusts: the authority of the tests alone."""
    return ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))


class WebServer(Listener):
    """One answer for each path, 404 for the others. An answer is bytes, or does what it likes."""

    def __init__(self, answers: dict[str, bytes | Answer], *, tls: bool = True) -> None:
        super().__init__(self._serve_one)
        self.requests: list[bytes] = []
        self.answers = answers
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(str(CERTIFICATES / "server.pem"))

    def _serve_one(self, peer: socket.socket) -> None:
        if self._context is None:
            self._answer(peer)
            return
        with self._context.wrap_socket(peer, server_side=True) as inside:
            self._answer(inside)

    def _answer(self, peer: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = peer.recv(4_096)
            if not piece:
                return
            head += piece
        self.requests.append(head)
        answer = self.answers.get(head.split(b" ")[1].decode(), page("gone", status="404 Not Found"))
        if isinstance(answer, bytes):
            peer.sendall(answer)
        else:
            answer(peer, head)


def page(body: str | bytes, *headers: str, status: str = "200 OK", kind: str = "text/plain") -> bytes:
    """Return a whole response."""
    raw = body.encode() if isinstance(body, str) else body
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(raw)}",
        *([f"Content-Type: {kind}"] if kind else []),
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + raw


def redirect(location: str, *, status: str = "302 Found") -> bytes:
    return page("", f"Location: {location}", status=status)
