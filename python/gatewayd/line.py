"""One connection to the server, plain or inside TLS, where every wait has an end.

Dials: the host of `[mattermost] url`, directly; no proxy, whatever the environment says. requests and
websocket-client are given a Line in place of a socket, so that deadlines, the bound on what comes in and an
interruption hold inside of them too. What goes wrong is raised as a MattermostFault, which both let pass unchanged
since it is no OSError. Threads: a Line is used by the thread that opened it; any may `hang_up`.
"""

import errno
import io
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import attrs

from bxcore.deadline import Deadline
from bxcore.settings.gatewayd import Mattermost
from gatewayd import trust
from gatewayd.faults import MattermostAway, MattermostUnclear

_PORTS = {"http": 80, "https": 443}
_PIECE = 65_536
# What OpenSSL's versions make of an answer that is no TLS: plain HTTP, mostly.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})

T = TypeVar("T")
Data = bytes | bytearray | memoryview


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where the server is. `authority` is what it is called in a request; `tls` is None for plain http."""

    host: str
    port: int
    authority: str
    path: str
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, settings: Mattermost) -> "Endpoint":
        """Return the endpoint of the owner's settings. Raises ConfigError where ca_file is unfit."""
        url = urlsplit(settings.url)
        return cls(
            host=url.hostname or "",
            port=url.port or _PORTS[url.scheme],
            authority=url.netloc,
            path=url.path,
            tls=trust.context(settings.ca_file) if url.scheme == "https" else None,
        )


class Line:
    """A connection. `deadline` may be moved between waits; when it is over, `expired` raises or moves it.

    `room` is how many bytes may still come in.
    """

    def __init__(self, endpoint: Endpoint, deadline: Deadline, *, room: int) -> None:
        self.deadline = deadline
        self.room = room
        self.expired: Callable[[], None] = _too_late
        self._endpoint = endpoint
        self._lock = threading.Lock()  # around the socket's life: opening, closing, hanging up
        self._cut = self._closing = False
        self._sock: socket.socket | None = None
        self._ahead = bytearray()
        self._files = 0

    # -- opening and closing --------------------------------------------------------------------

    def open(self) -> None:
        """Look the name up, connect, and shake hands. Raises MattermostAway; close it then as well."""
        whole = self.deadline
        addresses = self._addresses()
        for number, address in enumerate(addresses):
            # An address that swallows packets leaves the others their share of the time.
            self.deadline = whole.sooner(milliseconds=whole.remaining_ms() // (len(addresses) - number))
            try:
                self._connect(*address)
                break
            except MattermostAway:
                if number + 1 == len(addresses) or self._cut:
                    raise
        self.deadline = whole
        if self._endpoint.tls is not None:
            self._begin_tls(self._endpoint.tls)

    def hang_up(self) -> None:
        """End the connection, and whatever wait goes on in it. Any thread; what was not opened yet never will be."""
        with self._lock:
            self._cut = True
            if self._sock is not None:
                _shut(self._sock)

    def close(self) -> None:
        """Give the socket back, as soon as no file of it is open. May be called twice."""
        with self._lock:
            self._closing = True
            if not self._files:
                self._drop()

    # -- what a socket can do -------------------------------------------------------------------

    def read_head(self, most: int) -> bytes:
        """Return what comes up to the first empty line; what follows is kept for the next recv."""
        while (end := self._ahead.find(b"\r\n\r\n")) < 0:
            if len(self._ahead) > most:
                raise MattermostUnclear("the server's answer begins with no head of HTTP")
            piece = self._receive(4_096)
            if not piece:
                raise MattermostAway("the server ended the connection before it answered")
            self._ahead += piece
        head = bytes(self._ahead[:end])
        del self._ahead[: end + 4]
        return head

    def recv(self, size: int) -> bytes:
        """Return some bytes, none where the peer has ended the connection."""
        if self._ahead:
            piece = bytes(self._ahead[:size])
            del self._ahead[:size]
            return piece
        return self._receive(size)

    def recv_into(self, buffer: Any) -> int:
        """As recv."""
        view = memoryview(buffer).cast("B")
        piece = self.recv(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def send(self, data: Data) -> int:
        """Send all of it."""
        left = memoryview(data).cast("B")
        while left:
            left = left[self._patiently(_sending(left), select.POLLOUT) :]
        return len(data)

    def sendall(self, data: Data) -> None:
        """As send."""
        self.send(data)

    def fileno(self) -> int:
        return self._sock.fileno() if self._sock is not None else -1

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file to read from; the socket stays until it is closed, as the standard library expects."""
        assert mode == "rb"
        with self._lock:
            self._files += 1
        return io.BufferedReader(_File(self))

    def settimeout(self, timeout: float | None) -> None:
        """Nothing: the deadline counts."""

    def gettimeout(self) -> None:
        """None, which is to say: it blocks."""

    def file_closed(self) -> None:
        """A file of makefile was closed."""
        with self._lock:
            self._files -= 1
            if self._closing and not self._files:
                self._drop()

    # -- inside ---------------------------------------------------------------------------------

    def _addresses(self) -> list[tuple[socket.AddressFamily, Any]]:
        # The one wait without an end of ours: how long the resolver tries is the host's to set (resolv.conf).
        try:
            found = socket.getaddrinfo(self._endpoint.host, self._endpoint.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise MattermostAway(f"the name {self._endpoint.host} cannot be looked up") from None
        return [(family, address) for family, _, _, _, address in found]

    def _connect(self, family: socket.AddressFamily, address: Any) -> None:
        with self._lock:
            self._drop()
            self._sock = sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        error = sock.connect_ex(address)
        if error == errno.EINPROGRESS:
            self._wait(select.POLLOUT)
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise self._broken(OSError(error, os.strerror(error)))

    def _begin_tls(self, context: ssl.SSLContext) -> None:
        with self._lock:
            assert self._sock is not None
            try:
                self._sock = sock = context.wrap_socket(
                    self._sock, server_hostname=self._endpoint.host, do_handshake_on_connect=False
                )
            except OSError as fault:  # the peer is gone already
                raise self._broken(fault) from None
        self._patiently(lambda _: sock.do_handshake(), select.POLLIN)

    def _receive(self, size: int) -> bytes:
        piece = self._patiently(lambda sock: sock.recv(min(size, _PIECE)), select.POLLIN)
        self.room -= len(piece)
        if self.room < 0:
            raise MattermostUnclear("the server says more at once than it ever should")
        return piece

    def _patiently(self, act: Callable[[socket.socket], T], events: int) -> T:
        """Do what may have to wait. TLS may have to read in order to write, and the other way round."""
        while True:
            self._look()
            assert self._sock is not None
            try:
                return act(self._sock)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
            except BlockingIOError:
                self._wait(events)
            except OSError as fault:
                raise self._broken(fault) from None

    def _wait(self, events: int) -> None:
        poll = select.poll()
        poll.register(self.fileno(), events)
        self._look()
        while not poll.poll(self.deadline.remaining_ms()):
            self._look()
        self._look()

    def _look(self) -> None:
        if self._cut:
            raise MattermostAway("the connection was ended on this side")
        if self.deadline.passed():
            self.expired()

    def _broken(self, fault: OSError) -> MattermostAway:
        place = f"{self._endpoint.host} port {self._endpoint.port}"
        if isinstance(fault, ssl.SSLCertVerificationError):
            why = fault.verify_message.rstrip(".")
            return MattermostAway(f"{place}: its certificate is not believed ({why}); see ca_file")
        if isinstance(fault, ssl.SSLError):
            hint = "; no TLS is spoken there: is it another port, or http://?" if fault.reason in _NO_TLS else ""
            return MattermostAway(f"{place}: TLS failed ({fault.reason or 'unknown'}){hint}")
        return MattermostAway(f"{place}: {fault.strerror or type(fault).__name__}")

    def _drop(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class _File(io.RawIOBase):
    """Reads from a line, and tells it when it is closed."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._line.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._line.file_closed()


def _sending(data: memoryview) -> Callable[[socket.socket], int]:
    return lambda sock: sock.send(data)


def _too_late() -> None:
    raise MattermostAway("the server did not answer in time")


def _shut(sock: socket.socket) -> None:
    try:
        # Not SSLSocket's own: it throws TLS away first, and a reader would get what is still under way as it lies.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass  # not connected yet, or not any more: the wait ends all the same
