"""HTTP over a Unix socket with `requests`, where every wait can be watched and interrupted.

One connection per exchange, never a pool: the server closes idle connections after 5 s, and a
pooled one would fail on the next request. The socket waits in poll() before it reads or
writes, so cancelling, deadlines and looks at the queue happen in the calling thread, and what a
Guard raises comes out unchanged: urllib3 and requests wrap only OSError and their own errors.
The adapter is called without a Session, which would read the whole body of a redirect before it
says that there is one. Threads: an HttpExchange belongs to the thread that opened it.
"""

import contextlib
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError

from loopd.modelfaults import ServerAway, ServerLost, ServerProtocol

_PIECE = 65_536
# No compression: it would hide how far a stream has come, and a small reply could unpack to a huge one.
_HEADERS = {"Accept-Encoding": "identity", "Connection": "close", "User-Agent": "boxmaker-loopd"}


class Timer(Protocol):
    """How long a wait may take, and what happens meanwhile."""

    def begin(self) -> None:
        """A wait begins. May raise, where the time for all of them together is over."""

    def remaining_ms(self) -> int:
        """Milliseconds until `expired` is to be called."""

    def expired(self) -> None:
        """No byte came for that long. Raises to give up; otherwise the wait goes on."""


class Guard:
    """Stands before every read and write of an exchange. `timer` may be exchanged between waits.

    `waiting_on` is the socket of the wait that goes on.
    `interrupts`: descriptor -> what to call when it becomes readable; the call raises to end the wait.
    `most_bytes` may come in, whatever they are: the libraries read some parts of HTTP without a bound.
    """

    def __init__(self, timer: Timer, interrupts: Mapping[int, Callable[[], None]], *, most_bytes: int) -> None:
        self.timer = timer
        self.waiting_on, self._events = -1, 0
        self._most_bytes = self._room = most_bytes
        self._interrupts = interrupts
        self._poll = select.poll()
        for fd in interrupts:
            self._poll.register(fd, select.POLLIN)

    def wait(self, fd: int, events: int) -> None:
        """Return when `fd` is ready. Raises what an interrupt or the timer raises."""
        if fd != self.waiting_on or events != self._events:
            self.waiting_on, self._events = fd, events
            self._poll.register(fd, events)
        self.timer.begin()
        while True:
            ready = [found for found, _ in self._poll.poll(self.timer.remaining_ms())]
            for other in ready:
                if other != fd:
                    self._interrupts[other]()
            if ready:
                return
            self.timer.expired()

    def took(self, count: int) -> None:
        """So many bytes came in. Raises ServerProtocol where they are too many."""
        self._room -= count
        if self._room < 0:
            raise ServerProtocol(f"the model server's answer is longer than {self._most_bytes} bytes")

    def forget(self, fd: int) -> None:
        """`fd` is about to be closed."""
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)
        self.waiting_on = -1


class _Socket(socket.socket):
    """A Unix socket that asks its guard before it blocks."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._guard = guard

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        self._guard.wait(self.fileno(), select.POLLIN)
        count = super().recv_into(buffer, nbytes, flags)
        self._guard.took(count)
        return count

    def sendall(self, data: Any, flags: int = 0) -> None:
        left = memoryview(data).cast("B")
        while left:
            self._guard.wait(self.fileno(), select.POLLOUT)
            # Ready for some bytes is not ready for all of them, and a blocking send waits for all.
            left = left[super().send(left, flags | socket.MSG_DONTWAIT) :]

    def hang_up(self) -> None:
        """Tell the peer at once, whatever still holds a file object of this socket."""
        if self.fileno() < 0:
            return
        self._guard.forget(self.fileno())
        with contextlib.suppress(OSError):  # not connected, or the peer was faster
            self.shutdown(socket.SHUT_RDWR)
        self.close()


class _Connection(HTTPConnection):
    """urllib3's connection, reaching a path instead of a host."""

    def __init__(self, path: Path, guard: Guard) -> None:
        super().__init__("model")
        self._path, self._guard = path, guard
        self.unix: _Socket | None = None

    def connect(self) -> None:
        self.unix = _Socket(self._guard)
        # A Unix socket connects at once or not at all; blocking, it would wait for a full backlog to empty.
        self.unix.settimeout(0)
        try:
            self.unix.connect(str(self._path))
        except OSError as fault:
            why = fault.strerror or str(fault)
            raise ServerAway(f"nobody serves {self._path} ({why}); is inferproxy running?") from None
        self.unix.settimeout(None)
        self.sock = self.unix


class _Pool(HTTPConnectionPool):
    """A "pool" of the one connection of this exchange."""

    def __init__(self, path: Path, guard: Guard) -> None:
        super().__init__("model")
        self.connection = _Connection(path, guard)

    def _new_conn(self) -> HTTPConnection:
        return self.connection


class _Adapter(HTTPAdapter):
    def __init__(self, path: Path, guard: Guard) -> None:
        super().__init__()
        self._pool = _Pool(path, guard)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        return self._pool

    def close(self) -> None:
        if self._pool.connection.unix is not None:
            self._pool.connection.unix.hang_up()
        self._pool.close()
        super().close()


class HttpExchange:
    """One request and its answer. Opening returns when the headers are there; close it."""

    def __init__(self, path: Path, *, method: str, target: str, body: bytes | None, guard: Guard) -> None:
        """Send. Raises ServerAway where nobody listens, ServerLost, ServerProtocol, or what the guard raises."""
        self.guard = guard
        self._adapter = _Adapter(path, guard)
        headers = _HEADERS if body is None else {**_HEADERS, "Content-Type": "application/json"}
        request = requests.Request(method, f"http://model{target}", data=body, headers=headers).prepare()
        try:
            with _faults():
                self._response = self._adapter.send(request, stream=True, timeout=None)  # the guard keeps the time
        except BaseException:
            self._adapter.close()
            raise

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status_code

    @property
    def content_type(self) -> str:
        """The media type, without its parameters."""
        return str(self._response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives, at most 64 KiB at a time. Raises ServerLost where it is cut off."""
        raw = self._response.raw
        with _faults():
            if raw.chunked:
                yield from raw.read_chunked(_PIECE, decode_content=False)
            else:
                while piece := raw.read1(_PIECE, decode_content=False):
                    yield piece

    def read(self, *, limit: int) -> bytes:
        """Return the whole body, or raise ServerProtocol where it is longer than `limit` bytes."""
        body = bytearray()
        for piece in self.pieces():
            body += piece
            if len(body) > limit:
                raise ServerProtocol(f"the model server's answer is longer than {limit} bytes")
        return bytes(body)

    def close(self) -> None:
        """End the connection now, read to the end or not: the peer sees it at once."""
        self._adapter.close()
        self._response.close()


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    """Turn what the HTTP libraries raise into ServerLost, and what escapes from them into ServerProtocol."""
    try:
        yield
    except (requests.RequestException, HTTPError, OSError) as fault:
        raise ServerLost(f"the connection to the model server broke ({_cause(fault)})") from fault
    except (ValueError, ArithmeticError) as fault:
        # A number or a text that they took for granted: a chunk of -5 bytes, say.
        raise ServerProtocol(f"the model server's answer is not HTTP ({_cause(fault)})") from fault


def _cause(fault: BaseException) -> str:
    """The kind of the innermost cause; its text may hold an address, and says no more."""
    inner = fault
    while inner.args and isinstance(inner.args[-1], BaseException):
        inner = inner.args[-1]
    return type(inner).__name__
