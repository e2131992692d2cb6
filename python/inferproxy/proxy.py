"""Accepts loopd's connections and pairs each with one of its own to the one upstream.

Threads: the main one accepts; one worker a connection. Shared: the live connections and the
counters, under `_lock`. Keeps no state: a restart loses the connections and nothing else.
Logs: changes of state, counts and durations.
"""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable

from bxcore import logs
from bxcore.listener import Entrance, Listening
from inferproxy.config import Config, Upstream
from inferproxy.forward import relay
from inferproxy.limits import TokenBucket

STOP_SECONDS = 1.0
"""What workers get to end in, after their connections were cut."""

log = logs.get("proxy")


def dial(upstream: Upstream, *, connect_ms: int) -> socket.socket:
    """Return a connection to `upstream`, or raise OSError; `connect_ms` holds for each of its addresses."""
    if not upstream.path:
        server = socket.create_connection((upstream.host, upstream.port), timeout=connect_ms / 1000)
        # Each piece goes out as it came in: waiting for more would add 40 ms to a request's tail.
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.settimeout(connect_ms / 1000)
        server.connect(upstream.path)
    except OSError:
        server.close()
        raise
    return server


class Proxy:
    """`serve` until `stop`."""

    def __init__(
        self,
        listening: Listening,
        config: Config,
        *,
        dial: Callable[..., socket.socket] = dial,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entrance = Entrance([listening])
        self._listening = listening
        self._config = config
        self._dial = dial
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._live: dict[socket.socket, threading.Thread] = {}
        self._counts: Counter[str] = Counter()
        self._away_since_ms: int | None = None
        self._refusing = False

    def stop(self) -> None:
        """End `serve`. Any thread, signal handlers too."""
        self._entrance.stop()

    def serve(self) -> None:
        """Forward until `stop`, then cut what is still open: a stream may last for minutes."""
        config, started_ms = self._config, self._now_ms()
        bucket = TokenBucket(burst=config.accept_burst, per_second=config.accept_per_second, now_ms=started_ms)
        log.info("serving connections_max=%d", config.max_connections)
        for _, client in self._entrance.connections():
            # Waiting and not refusing: the ones behind it wait in the kernel's queue, where a
            # connect has succeeded already, so a client in a hurry is slowed and never failed.
            self._entrance.pause(bucket.take(self._now_ms()) / 1000)
            self._admit(client)
        self._listening.refuse()
        left = self._cut()
        self._entrance.close()
        endings = ",".join(f"{ending}:{count}" for ending, count in sorted(self._counts.items()))
        log.info("stopped left=%d ms=%d endings=%s", left, self._now_ms() - started_ms, endings)

    def _admit(self, client: socket.socket) -> None:
        worker = threading.Thread(target=self._work, args=(client,), daemon=True)
        with self._lock:
            full = len(self._live) >= self._config.max_connections
            if not full:
                self._live[client] = worker
        if full:
            self._refuse(client)
            return
        self._refusing = False
        try:
            worker.start()
        except RuntimeError:  # no more threads
            self._forget(client, "refused")
            client.close()

    def _refuse(self, client: socket.socket) -> None:
        """Close at once, which loopd reads as "server away"."""
        client.close()
        self._counts["refused"] += 1
        if not self._refusing:
            log.warning("refusing connections_max=%d code=proxy_full", self._config.max_connections)
        self._refusing = True

    def _work(self, client: socket.socket) -> None:
        ending = "upstream_away"
        with contextlib.ExitStack() as at_once:
            at_once.callback(client.close)
            try:
                server = self._connect()
                if server is not None:
                    at_once.enter_context(server)
                    ending = relay(client, server, idle_ms=self._config.idle_ms).value
            finally:
                self._forget(client, ending)  # before the close: who sees it may come again at once

    def _connect(self) -> socket.socket | None:
        try:
            server = self._dial(self._config.upstream, connect_ms=self._config.connect_ms)
        except (OSError, UnicodeError) as fault:  # the second: a name that cannot be written in the DNS's letters
            self._note_upstream(fault if isinstance(fault, OSError) else OSError(0, "not a host name"))
            return None
        self._note_upstream(None)
        return server

    def _forget(self, client: socket.socket, ending: str) -> None:
        with self._lock:
            self._counts[ending] += 1
            del self._live[client]  # and only then closed: `_cut` must not meet a reused descriptor

    def _note_upstream(self, error: OSError | None) -> None:
        """Log the change between away and there, not each connection."""
        with self._lock:
            since_ms = self._away_since_ms
            if (error is None) == (since_ms is None):
                return
            self._away_since_ms = None if error is None else self._now_ms()
        if error is not None:
            log.warning("upstream away reason=%s code=upstream_away", error.strerror or "timed out")
        elif since_ms is not None:
            log.info("upstream back away_ms=%d", self._now_ms() - since_ms)

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    def _cut(self) -> int:
        """Cut every live connection; return how many workers did not end in time."""
        until = self._monotonic() + STOP_SECONDS
        with self._lock:
            workers = list(self._live.values())
            for client in self._live:
                with contextlib.suppress(OSError):  # it has left by itself
                    client.shutdown(socket.SHUT_RDWR)
        for worker in workers:
            worker.join(max(0.0, until - self._monotonic()))
        return sum(worker.is_alive() for worker in workers)
