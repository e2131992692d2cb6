"""The egress proxy as it is, in a thread, with a resolver and a dialler of the test's own; and a plain client of it."""

import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Self

from bxcore.deadline import SystemClock
from toolkit import egress
from toolkit.egressorder import Dialled, Order
from toolkit.egressproxy import Proxy

PUBLIC = "93.184.216.34"
HOST = "www.example.org"


class RunningProxy:
    """A proxy that is granted `host`:`port`. Names resolve by `answers`, addresses lead to `servers`.

    `answers` gives for each name one tuple of addresses per question asked; the last one stays. `servers` maps an
    address to the local port behind it; any other address is dialled as it is written, so that a canary would hear.
    """

    def __init__(
        self,
        directory: Path,
        *,
        servers: Mapping[str, int] | None = None,
        answers: Mapping[str, list[tuple[str, ...]]] | None = None,
        host: str = HOST,
        port: int = 443,
        total_bytes: int = 1_000_000,
        deadline_ms: int = 60_000,
    ) -> None:
        self.path = directory / "proxy.sock"
        self.reports: list[Dialled] = []
        self.asked: list[str] = []
        self.dialled: list[str] = []
        self._answers = {name: list(all_of_it) for name, all_of_it in (answers or {HOST: [(PUBLIC,)]}).items()}
        self._servers = servers or {}
        order = Order(
            host=host,
            port=port,
            socket=PurePosixPath(self.path),
            total_bytes=total_bytes,
            deadline_ms=deadline_ms,
        )
        self.proxy = Proxy(
            order, resolve=self._resolve, dial=self._dial, report=self.reports.append, clock=SystemClock()
        )
        self._leash, self._held = os.pipe()
        self._thread = threading.Thread(target=self.proxy.serve, args=(egress.listen(self.path), self._leash))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self._thread.join()
        os.close(self._leash)

    def let_go(self) -> None:
        """End the leash, as a brokerd that dies does."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def join(self) -> None:
        """Wait until the proxy has ended by itself."""
        self._thread.join()

    def _resolve(self, host: str, port: int) -> tuple[str, ...]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def _dial(self, address: str, port: int, seconds: float) -> socket.socket:
        self.dialled.append(address)
        where = ("127.0.0.1", self._servers[address]) if address in self._servers else (address, port)
        return socket.create_connection(where, timeout=seconds)

    def speak(self, *pieces: bytes) -> bytes:
        """Send pieces on one connection and return everything that comes back until the proxy ends it."""
        with self.connected() as client:
            try:
                for piece in pieces:
                    client.sendall(piece)
            except BrokenPipeError:
                pass  # refused before all of it was said
            return _rest(client)

    def connected(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.settimeout(30)
        try:
            client.connect(str(self.path))
        except OSError:
            client.close()
            raise
        return client


def _rest(client: socket.socket) -> bytes:
    found = b""
    try:
        while piece := client.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass  # it was refused with something unread
    return found


class Canary:
    """A listener that must hear nothing. `heard` is how many connections came."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def heard(self) -> int:
        self._listener.setblocking(False)
        count = 0
        try:
            while True:
                self._listener.accept()[0].close()
                count += 1
        except BlockingIOError:
            return count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


class Listener:
    """A server whose connections `serve` handles, each in a thread, all joined at the end.

    It listens on the loopback, or on a Unix socket where `path` says so.
    """

    def __init__(self, serve: Callable[[socket.socket], None], path: Path | None = None) -> None:
        self._serve = serve
        self.port = 0
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            self.port = self._listener.getsockname()[1]
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
            self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self.taken = 0

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.taken += 1
            peer.settimeout(30)
            thread = threading.Thread(target=self._handle, args=(peer,))
            self._threads.append(thread)
            thread.start()

    def _handle(self, peer: socket.socket) -> None:
        with peer:
            try:
                self._serve(peer)
            except OSError:
                pass  # the other end left, which is its right
