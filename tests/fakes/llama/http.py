"""HTTP for the fake server: a thread for each connection, on a Unix socket or a TCP port."""

import contextlib
import json
import select
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

Route = Callable[["Exchange"], None]


class Left(Exception):
    """The client has closed the connection."""


class Exchange(BaseHTTPRequestHandler):
    """One connection. A route answers with `answer`, or with `begin_stream` and `send`."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "llama.cpp", ""
    body: bytes

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def answer(self, value: Any, *, status: int = 200) -> None:
        self.answer_raw(json.dumps(value, ensure_ascii=False).encode(), status=status)

    def answer_raw(self, body: bytes, *, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send(self, piece: bytes) -> None:
        """Send one chunk, or raise Left."""
        self.wait(0)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def wait(self, seconds: float) -> None:
        """Let time pass; raise Left as soon as the client has left."""
        until = time.monotonic() + seconds
        while True:
            left = min(3600.0, max(0.0, until - time.monotonic()))
            readable, _, _ = select.select([self.connection], [], [], left)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise Left
            if until <= time.monotonic():
                return

    def vanish(self) -> None:
        """Break the connection."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the tests read what was recorded."""

    def address_string(self) -> str:
        return "unix"

    def _serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            cast(_Server, self.server).route(self)
        except (Left, OSError):
            self.vanish()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True
    route: Route
    connections: set[socket.socket]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left while it was answered is no news; a fault of the fake itself is shown."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def get_request(self) -> tuple[Any, Any]:
        connection, _ = self.socket.accept()
        return connection, ("unix", 0)


class Listener:
    """Serves until it is closed; closing breaks every connection, as a killed server does."""

    def __init__(self, where: Path | tuple[str, int], route: Route) -> None:
        kind = _UnixServer if isinstance(where, Path) else _Server
        self._server = kind(cast(Any, str(where) if isinstance(where, Path) else where), Exchange)
        self._server.route, self._server.connections = route, set()
        self.address = self._server.server_address
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        for connection in list(self._server.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()  # waits for no thread: they are daemons
