"""HTTP in front of a world: keep-alive, the WebSocket upgrade, faults, and an end that leaves nothing behind.

Threads: one that accepts, one a connection (the standard library's), one more a WebSocket. `close` ends and joins all.
"""

import socket
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from tests.fakes.mattermostparts import rules, sockets
from tests.fakes.mattermostparts.calls import Answer
from tests.fakes.mattermostparts.faults import CUT, Fault, Faults, RateLimit
from tests.fakes.mattermostparts.hub import Hub
from tests.fakes.mattermostparts.records import AppError
from tests.fakes.mattermostparts.rest import ROOT, Rest, token_of
from tests.fakes.mattermostparts.world import World

Control = Callable[[str, bytes], Answer]
_BODY_MOST = 64 * 1024 * 1024


class Server(ThreadingHTTPServer):
    """The listener, and the connections that it holds."""

    daemon_threads = False
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(
        self,
        world: World,
        hub: Hub,
        rest: Rest,
        *,
        port: int,
        faults: Faults,
        rate: RateLimit,
        tls: ssl.SSLContext | None = None,
        control: Control | None = None,
    ) -> None:
        self.world, self.hub, self.rest = world, hub, rest
        self.faults, self.rate, self.control = faults, rate, control
        self._tls = tls
        self._lock = threading.Lock()
        self._peers: set[socket.socket] = set()
        self._events: set[sockets.EventSocket] = set()
        super().__init__(("127.0.0.1", port), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, name="mattermost")
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def close(self) -> None:
        """Stop listening, end every connection, and wait for every thread. What is held is never answered."""
        self.shutdown()
        self._thread.join()
        self.end_connections()
        self.faults.clear()
        self.server_close()

    def end_connections(self) -> None:
        for events in self.event_sockets():
            events.detach()
            events.end()
        with self._lock:
            peers = list(self._peers)
        for peer in peers:
            _shut(peer)

    def event_sockets(self) -> list[sockets.EventSocket]:
        with self._lock:
            return list(self._events)

    # --- what the handlers use ---

    def get_request(self) -> tuple[socket.socket, object]:
        peer, address = super().get_request()
        if self._tls is not None:
            peer = self._tls.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self._peers.add(peer)
        return peer, address

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        with self._lock:
            self._peers.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away; a fault of ours is raised in the thread, where pytest sees it."""

    def serve_events(self, events: sockets.EventSocket, handshake: bytes, already_read: Callable[[], bytes]) -> None:
        with self._lock:
            self._events.add(events)
        try:
            events.serve(handshake, already_read)
        finally:
            with self._lock:
                self._events.discard(events)


def _shut(peer: socket.socket) -> None:
    try:
        peer.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the other side was faster


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()
        super().setup()

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            pass  # the client left

    def log_message(self, *_: object) -> None:
        """Nothing is logged: tests look at what the server knows."""

    def _serve(self) -> None:
        body = self._body()
        path = urlsplit(self.path)
        if self.server.control is not None and path.path.startswith("/_control/"):
            self._say(self.server.control(path.path.removeprefix("/_control/"), body))
            return
        fault = self.server.faults.take(self.command, self.path)
        if fault is not None and fault.is_slow:
            self._hold(fault, body)
            fault = None
        if fault is not None and not fault.after:
            self._fail(fault)
            return
        refused, headers = self.server.rate.count(self.client_address[0], self.server.world.now())
        if refused:
            self._say(Answer(status=429, text="limit exceeded\n"), [*headers.items(), ("Content-Type", "text/plain")])
            return
        if path.path.rstrip("/") == f"{ROOT}/websocket" and self.command == "GET":
            self._upgrade(dict(parse_qsl(path.query)))
            return
        answer = self._answer(path.path, dict(parse_qsl(path.query)), body)
        answer.headers += headers.items()
        if fault is not None:
            self._fail(fault)
        else:
            self._say(answer)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815  # the names that the standard library looks for

    def _body(self) -> bytes:
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(min(length, _BODY_MOST))

    def _lowered(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def _answer(self, path: str, query: dict[str, str], body: bytes) -> Answer:
        if path.startswith("/hooks/") and self.command == "POST":
            return self.server.rest.hook(path.removeprefix("/hooks/"), self._lowered(), body)
        if not path.startswith(f"{ROOT}/"):
            return Answer(status=404, text="404 page not found\n", headers=[("Content-Type", "text/plain")])
        return self.server.rest.call(self.command, path.removeprefix(ROOT), query, self._lowered(), body)

    def _hold(self, fault: Fault, body: bytes) -> None:
        """Be busy with a request until the test lets it go on."""
        assert fault.wait is not None
        busy = self.server.rest.posting.busy_with(body)
        with busy:
            fault.begun.set()
            fault.wait.wait()

    def _fail(self, fault: Fault) -> None:
        if fault.wait is not None:
            fault.begun.set()
            fault.wait.wait()
        if fault.status == CUT:
            self.close_connection = True
            _shut(self.connection)
            return
        answer = Answer(status=fault.status or 500, text=fault.body.decode("utf-8", "surrogateescape"))
        self._say(answer, list(fault.headers.items()))

    def _say(self, answer: Answer, more: list[tuple[str, str]] | None = None) -> None:
        body = answer.body()
        headers = [*answer.headers, *(more or [])]
        if not any(name.lower() == "content-type" for name, _ in headers):
            headers.append(("Content-Type", "application/json"))
        reason = HTTPStatus(answer.status).phrase
        lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in headers)]
        date = self.date_time_string(self.server.world.now() // 1_000)  # by the clock that dates posts, too
        lines += [f"Date: {date}", f"Content-Length: {len(body)}"]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    # --- the WebSocket ---

    def _upgrade(self, query: dict[str, str]) -> None:
        world = self.server.world
        if not sockets.is_upgrade(self._lowered()):
            self._refuse_upgrade(HTTPStatus.BAD_REQUEST)
            return
        if not sockets.allows_origin(self._lowered(), world.config["SiteURL"]):
            self._refuse_upgrade(HTTPStatus.FORBIDDEN)
            return
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {sockets.accept_key(self.headers['Sec-WebSocket-Key'])}",
        ]
        self.close_connection = True
        # Registered before the client can know of it, so that what a test does next finds the connection there.
        events = self._register(query)
        handshake = "\r\n".join([*lines, "", ""]).encode()
        if events is None:
            self.wfile.write(handshake)
        else:
            self.server.serve_events(events, handshake, self._already_read)

    def _refuse_upgrade(self, status: HTTPStatus) -> None:
        """Answer as the server does, whose library has answered in plain text when it adds an error of its own."""
        error = AppError("api.web_socket.connect.upgrade.app_error", 400)
        self._say(Answer(status=status, text=f"{status.phrase}\n{rules.dump(error.json(''))}"))

    def _register(self, query: dict[str, str]) -> sockets.EventSocket | None:
        world, hub = self.server.world, self.server.hub
        with world.lock:
            token, _, in_query = token_of(self._lowered(), query)
            # A token that does not hold is no reason to refuse the upgrade: nobody is logged in, that is all.
            session = world.session(token) if token and not in_query else None
            again: list[str] = []
            if session is None:
                stream = hub.unknown()
            elif not query.get("connection_id"):
                stream = hub.open(session.user, session.token)
            else:
                number = query.get("sequence_number", "")
                if not rules.ID.fullmatch(query["connection_id"]) or not number.isdecimal():
                    return None
                stream, again = hub.resume(session.user, session.token, query["connection_id"], int(number))
            events = sockets.EventSocket(world, hub, self.server.rest.posting, self.connection, stream, again)
            stream.hold(events)
            return events

    def _already_read(self) -> bytes:
        """Return what the client sent behind its handshake, without waiting for any."""
        self.connection.setblocking(False)
        try:
            first = self.rfile.peek()  # type: ignore[attr-defined]  # it is a BufferedReader
        except ssl.SSLWantReadError:
            first = b""
        self.connection.setblocking(True)
        return bytes(first)
