"""A TCP proxy between gatewayd and its server, so that a test can break the way to any server, a real one too.

`drop` breaks every connection that there is; `freeze` lets them stay and carries nothing more, as a half-open line
does; while `refusing`, new connections are closed at once. Threads: two for each connection, joined by `close`.
"""

import contextlib
import socket
import threading
from types import TracebackType
from urllib.parse import urlsplit

_PIECE = 65_536


class TcpProxy:
    """Use as a context manager. `url` is what gatewayd is told."""

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        assert parts.hostname is not None
        self._server = (parts.hostname, parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.refusing = False
        self.dropped = 0
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._frozen = threading.Event()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def __enter__(self) -> "TcpProxy":
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self.thaw()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in list(self._threads):
            thread.join()

    def drop(self) -> int:
        """Break all connections; return how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self.dropped += len(pairs)
        return len(pairs)

    def freeze(self) -> None:
        self._frozen.set()

    def thaw(self) -> None:
        self._frozen.clear()

    def connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing or self._closed:
                near.close()
                continue
            try:
                far = socket.create_connection(self._server)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.add((near, far))
            self._start(self._carry, near, far)

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        other = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        other.start()
        self._pump(near, far)
        other.join()
        with self._lock:
            self._pairs.discard((near, far))
        near.close()
        far.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                while self._frozen.is_set() and not self._closed:
                    threading.Event().wait(0.01)
                target.sendall(piece)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()
