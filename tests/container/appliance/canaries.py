"""Listeners on the host that nobody in a container may reach: by TCP, UDP, DNS and an abstract name."""

import os
import socket
import threading
from types import TracebackType

METADATA = "169.254.169.254"
"""Where a cloud's machines are told their secrets."""


class Canaries:
    """Counts whatever comes, by the listener that it came to. Use as a context manager."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.tcp = socket.create_server(("0.0.0.0", 0))
        self.port: int = self.tcp.getsockname()[1]
        self.udp = _datagrams(self.port)
        # Only root may have the port that DNS goes to; for others a free one stands for it.
        self.dns = _datagrams(53 if os.geteuid() == 0 else 0)
        self.dns_port: int = self.dns.getsockname()[1]
        self.name = f"boxmaker-canary-{self.port}"
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0{self.name}")
        self.abstract.listen()
        self._all = {"tcp": self.tcp, "udp": self.udp, "dns": self.dns, "abstract": self.abstract}
        self._threads = [threading.Thread(target=self._listen, args=(name,), daemon=True) for name in self._all]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Canaries":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._all.values():
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # what is not connected wakes up all the same
            listener.close()
        for thread in self._threads:
            thread.join(5)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where they are, and where a cloud's secrets would be."""
        return [*((host, self.port) for host in own_addresses()), (METADATA, 80)]

    def _listen(self, name: str) -> None:
        listener = self._all[name]
        while True:
            try:
                if listener.type == socket.SOCK_DGRAM:
                    listener.recv(512)
                else:
                    listener.accept()[0].close()
            except OSError:
                return
            self.heard.append(name)


def own_addresses() -> list[str]:
    """Return the host's loopback, and the address that it has on a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))  # sends nothing
            return ["127.0.0.1", str(asking.getsockname()[0])]
        except OSError:
            return ["127.0.0.1"]


def _datagrams(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.bind(("0.0.0.0", port))
    except OSError:
        made.bind(("0.0.0.0", 0))  # the host has a resolver of its own
    return made
