"""One WebSocket connection: a reader, which is the thread of the HTTP request, and a writer of its own.

Rules of server 11.6: a frame above 8192 bytes, a binary one and one that is no JSON close the connection; a ping of
the protocol goes out every 60 s and its pong must come within 100 s of the last; who has not said who they are within
5 s is dropped. All of that by the server's clock.
"""

import base64
import hashlib
import json
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError

from tests.fakes.mattermostparts.hub import Hub, Stream
from tests.fakes.mattermostparts.posting import Posting
from tests.fakes.mattermostparts.records import AppError, Json
from tests.fakes.mattermostparts.world import VERSION, World

READ_LIMIT = 8_192
PING_MS = 60_000
PONG_MS = 100_000
CHALLENGE_MS = 5_000
_NEVER_MS = 10**15
_WRITE_SECONDS = 30.0
_PIECE = 65_536
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_key(key: str) -> str:
    """Return what the handshake answers to Sec-WebSocket-Key."""
    return base64.b64encode(hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()).decode()


def is_upgrade(headers: Mapping[str, str]) -> bool:
    """Whether a request asks for a WebSocket at all."""
    return (
        headers.get("upgrade", "").lower() == "websocket"
        and "upgrade" in headers.get("connection", "").lower()
        and headers.get("sec-websocket-version") == "13"
        and bool(headers.get("sec-websocket-key"))
    )


def allows_origin(headers: Mapping[str, str], site_url: str) -> bool:
    """Whether the Origin, where one is said, has the host of SiteURL, or of the request where that is empty."""
    origin = headers.get("origin")
    if not origin:
        return True
    own = urlsplit(site_url).netloc if site_url else headers.get("host", "")
    return urlsplit(origin).netloc.lower() == own.lower()


class EventSocket:
    """A connection after its handshake. `serve` returns when it is over and its writer has ended."""

    def __init__(
        self, world: World, hub: Hub, posting: Posting, peer: socket.socket, stream: Stream, again: Sequence[str]
    ) -> None:
        self._world = world
        self._hub = hub
        self._posting = posting
        self._peer = peer
        self._stream = stream
        self._again = again
        self._protocol = Connection(ConnectionType.SERVER)
        self._lock = threading.Lock()  # the protocol's state, and the order of what is written
        self._over = threading.Event()
        self._frozen = False
        self._read = 0
        self._pieces: list[str] = []
        now = world.now()
        self._ping_at = now + PING_MS
        self._pong_until = now + PONG_MS
        self._challenge_until = now + CHALLENGE_MS

    # --- from any thread ---

    def end(self) -> None:
        """End the TCP connection, without a goodbye."""
        self._over.set()
        try:
            self._peer.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was faster
        self._stream.wake()

    def detach(self) -> None:
        """Let the hub know at once that this connection is gone."""
        with self._world.lock:
            self._hub.detach(self._stream, self)

    def wake(self) -> None:
        """Look at the clock."""
        self._stream.wake()

    def freeze(self) -> None:
        """Be half open: nothing arrives any more, in either direction, and nobody is told."""
        self._frozen = True

    # --- the reader ---

    def serve(self, handshake: bytes, already_read: Callable[[], bytes]) -> None:
        """Say the handshake, then be the connection. `already_read` returns what the client sent behind its own."""
        writer = threading.Thread(target=self._write, name="mattermost-writer")
        try:
            self._peer.sendall(handshake)
            first = already_read()
            self._peer.settimeout(_WRITE_SECONDS)
            writer.start()
            if not first or self._receive(first):
                self._read_all()
        except OSError:
            pass  # a write failed: gone
        finally:
            if self._frozen:
                self._over.wait()  # nobody is told that the other side has left
            self.detach()
            self.end()
            if writer.ident is not None:
                writer.join()

    def _read_all(self) -> None:
        while not self._over.is_set():
            try:
                received = self._recv()
            except TimeoutError:
                continue
            except OSError:
                return
            if not received:
                return
            if not self._frozen and not self._receive(received):
                return

    def _recv(self) -> bytes:
        if not isinstance(self._peer, ssl.SSLSocket):
            return self._peer.recv(_PIECE)
        # What reads and what writes share the state of TLS, so they take turns; waiting is done before.
        if not self._peer.pending() and not select.select([self._peer], [], [], _WRITE_SECONDS)[0]:
            raise TimeoutError
        with self._lock:
            return self._peer.recv(_PIECE)

    def _receive(self, received: bytes) -> bool:
        """Take in bytes; False where they end the connection."""
        with self._lock:
            self._protocol.receive_data(received)
            events = list(self._protocol.events())
        for event in events:
            if isinstance(event, Ping):
                self._send(event.response())
            elif isinstance(event, Pong):
                self._pong_until = self._world.now() + PONG_MS
            elif isinstance(event, TextMessage):
                if not self._take_text(event):
                    return False
            elif isinstance(event, BytesMessage):
                return False  # decoded as msgpack by the server, and no client of ours speaks that
            elif isinstance(event, CloseConnection):
                self._send(event.response())
                return False
        return True

    def _take_text(self, event: TextMessage) -> bool:
        self._read += len(event.data.encode())
        self._pieces.append(event.data)
        if self._read > READ_LIMIT:
            self._send(CloseConnection(code=CloseReason.MESSAGE_TOO_BIG))
            return False
        if not event.message_finished:
            return True
        whole = "".join(self._pieces)
        self._pieces.clear()
        self._read = 0
        try:
            untrusted = json.loads(whole)
        except ValueError:
            return False
        return isinstance(untrusted, dict) and self._request(untrusted)

    # --- requests ---

    def _request(self, untrusted: dict[str, Any]) -> bool:
        """Answer a request; False where it ends the connection."""
        action, seq = untrusted.get("action", ""), untrusted.get("seq", 0)
        data = untrusted.get("data") or {}
        if not isinstance(action, str) or type(seq) is not int or not isinstance(data, dict):
            return False
        with self._world.lock:
            if action == "authentication_challenge" and seq > 0:
                return self._challenge(data, seq)
            try:
                answer = self._answer(action, seq, data)
            except AppError as error:
                said = error.json("")
                del said["request_id"]
                self._hub.reply(self._stream, {"status": "FAIL", "error": said, "seq_reply": seq})
            else:
                self._hub.reply(
                    self._stream, {"status": "OK", **({"data": answer} if answer else {}), "seq_reply": seq}
                )
        return True

    def _challenge(self, data: Json, seq: int) -> bool:
        if self._stream.token:
            return True  # has one already: not answered
        token = data.get("token")
        session = self._world.session(token) if isinstance(token, str) else None
        if session is None:
            return False
        self._hub.adopt(self._stream, session.user, session.token)
        self._hub.reply(self._stream, {"status": "OK", "seq_reply": seq})
        return True

    def _answer(self, action: str, seq: int, data: Json) -> Json:
        if not action:
            raise AppError("api.web_socket_router.no_action.app_error", 400)
        if seq <= 0:
            raise AppError("api.web_socket_router.bad_seq.app_error", 400)
        if action == "presence":
            return {}
        if not self._hub.is_authenticated(self._stream):
            if not self._world.keeps("ping_status") and action == "ping":
                return {"text": "pong"}
            raise AppError("api.web_socket_router.not_authenticated.app_error", 401)
        if action == "ping":
            return {"text": "pong", "version": VERSION, "server_time": self._world.now(), "node_id": ""}
        if action == "user_typing":
            return self._typing(data)
        if action in ("user_update_active_status", "posted_notify_ack"):
            return {}
        raise AppError("api.web_socket_router.bad_action.app_error", 500)

    def _typing(self, data: Json) -> Json:
        channel, parent = data.get("channel_id"), data.get("parent_id")
        if not isinstance(channel, str):
            raise AppError("api.websocket_handler.invalid_param.app_error", 400)
        user = self._world.users[self._stream.user]
        try:
            self._posting.typing(user, channel, parent if isinstance(parent, str) else "")
        except AppError:
            raise AppError("api.websocket_handler.invalid_param.app_error", 400) from None
        return {}

    # --- the writer ---

    def _write(self) -> None:
        try:
            for text in self._again:
                self._send(TextMessage(data=text))
            while not self._over.is_set() and self._is_in_time():
                item = self._stream.take(self, seconds=self._seconds_to_wait())
                if item is not None and item.end:
                    self._send(CloseConnection(code=CloseReason.NO_STATUS_RCVD))
                    return
                if item is not None:
                    self._send(TextMessage(data=item.text))
        except OSError:
            pass  # the reader sees the end of the connection too, and says so to the hub
        finally:
            self.end()

    def _is_in_time(self) -> bool:
        now = self._world.now()
        if now >= self._pong_until:
            return False
        if now >= self._challenge_until:
            if not self._stream.token:
                return False
            self._challenge_until = now + _NEVER_MS
        if now >= self._ping_at:
            self._ping_at = now + PING_MS
            self._send(Ping(payload=b""))
        return True

    def _seconds_to_wait(self) -> float:
        until = min(self._ping_at, self._pong_until, self._challenge_until)
        return max(1, until - self._world.now()) / 1_000

    def _send(self, event: Event) -> None:
        with self._lock:
            try:
                raw = self._protocol.send(event)
            except LocalProtocolError:
                raise ConnectionAbortedError from None  # something was said after the goodbye
            if not self._frozen:
                self._peer.sendall(raw)
