"""The egress proxy of one tool call at work: takes connections, asks what may be dialled, copies bytes.

Invariant: a name is resolved once per connection, all its addresses are judged, and only a judged address is
dialled. `report` is called exactly once for each connection. Threads: serve() accepts; one thread for each
connection and one more while it copies, CONNECTIONS of each at most; what they share is under a lock.
"""

import select
import socket
import threading
from collections.abc import Callable

from bxcore.deadline import Clock, Deadline
from toolkit import clienthello, dialling, egressorder, socks
from toolkit.dialling import Dial, Resolve
from toolkit.egressorder import Dialled, Order, Refused, Verdict
from toolkit.relay import Budget, Relay
from toolkit.socks import AddressAsked, NoName, Reply, SocksFault

CONNECTIONS = 16
"""As many connections one call may open, good and bad together. The eleven of a fetch with its redirects fit."""
ADDRESSES = 4
"""As many addresses of one name are tried; all of them are judged."""
HANDSHAKE_MS = 10_000
CONNECT_MS = 10_000


class Proxy:
    """The proxy of one call. What it does to the world is handed in; `report` is called once per connection."""

    def __init__(
        self,
        order: Order,
        *,
        resolve: Resolve,
        dial: Dial,
        report: Callable[[Dialled], None],
        clock: Clock,
    ) -> None:
        self._order, self._resolve, self._dial, self._report = order, resolve, dial, report
        self._deadline = Deadline.after(clock, milliseconds=order.deadline_ms)
        self._budget = Budget(order.total_bytes)
        self._open: set[socket.socket] = set()
        self._workers: list[threading.Thread] = []
        self._lock = threading.Lock()  # guards _open
        self._stopped = False

    def serve(self, listener: socket.socket, leash: int) -> None:
        """Take connections until the leash ends, the time is over, or too many came. Closes the listener."""
        waiting: list[socket.socket | int] = [listener, leash]
        while True:
            ready, _, _ = select.select(waiting, [], [], self._deadline.remaining_ms() / 1000)
            if not ready or leash in ready:  # nothing is ever sent on it, so anything means the end
                break
            if not self._accept(listener):
                waiting.remove(listener)
                listener.close()
        listener.close()
        self._stop()

    def _accept(self, listener: socket.socket) -> bool:
        try:
            client, _ = listener.accept()
        except OSError:  # no descriptor is left: more than we take on, so no more is taken on
            return False
        if len(self._workers) == CONNECTIONS:
            client.close()
            self._report(Dialled(host=None, port=None, verdict=Verdict.TOO_MANY, address=None, passed_bytes=0))
            return False
        worker = threading.Thread(target=self._handle, args=(client,), daemon=True)
        self._workers.append(worker)
        worker.start()
        return True

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for end in self._open:
                _shut(end)
        for worker in self._workers:
            worker.join(0.2)  # one that still waits for the resolver ends with the process

    def _handle(self, client: socket.socket) -> None:
        connection = _Connection()
        try:
            with client:
                self._hold(client)
                self._follow(client, connection)
        except Refused as refusal:
            connection.verdict = refusal.verdict
        except OSError:  # one of the two ends is gone; what was passed on is recorded all the same
            pass
        finally:
            self._release(client)
            self._report(connection.seen())

    def _follow(self, client: socket.socket, connection: "_Connection") -> None:
        client.settimeout(_seconds(self._deadline.sooner(milliseconds=HANDSHAKE_MS)))
        try:
            host, port = self._asked(client, connection)
            upstream = self._dialled(egressorder.judge(self._order, host, port, self._resolve), connection)
        except Refused as refusal:
            connection.verdict = refusal.verdict  # the client may not wait for its answer
            if refusal.reply is not None:
                client.sendall(socks.answer(refusal.reply))
            raise
        with upstream:
            self._hold(upstream)
            try:
                self._relay(client, upstream, connection)
            finally:
                self._release(upstream)

    def _asked(self, client: socket.socket, connection: "_Connection") -> tuple[str, int]:
        def read(count: int) -> bytes:
            return _exactly(client, count, by)

        by = self._deadline.sooner(milliseconds=HANDSHAKE_MS)
        try:
            client.sendall(socks.read_greeting(read))
            connection.host, connection.port = asked = socks.read_request(read)
        except AddressAsked as fault:
            raise Refused(Verdict.ADDRESS, fault.reply) from None
        except NoName as fault:
            raise Refused(Verdict.NO_NAME, fault.reply) from None
        except (SocksFault, OSError) as fault:
            raise Refused(Verdict.MALFORMED, getattr(fault, "reply", None)) from None
        return asked

    def _dialled(self, addresses: tuple[str, ...], connection: "_Connection") -> socket.socket:
        for address in addresses[:ADDRESSES]:
            connection.address = address
            try:
                return self._dial(address, self._order.port, _seconds(self._deadline.sooner(milliseconds=CONNECT_MS)))
            except dialling.OwnAddress:
                raise Refused(Verdict.NOT_PUBLIC, Reply.NOT_PUBLIC) from None
            except OSError:  # the next one may be reachable
                continue
        raise Refused(Verdict.UNREACHABLE, Reply.UNREACHABLE)

    def _relay(self, client: socket.socket, upstream: socket.socket, connection: "_Connection") -> None:
        connection.verdict = Verdict.DIALLED
        client.sendall(socks.answer(Reply.DONE))
        start = self._start(client)
        for end in (client, upstream):  # either may be silent while the other speaks, so the call's time counts
            end.settimeout(_seconds(self._deadline))
        connection.relay = relay = Relay(client, upstream, self._budget)
        relay.send_first(start)
        if not relay.over_budget:
            relay.run()
        if relay.over_budget:
            raise Refused(Verdict.BYTE_LIMIT, None)

    def _start(self, client: socket.socket) -> bytes:
        """Read what the client says first; for TLS the whole ClientHello, which must name the granted host."""
        start = b""
        by = self._deadline.sooner(milliseconds=HANDSHAKE_MS)
        while piece := _some(client, by):
            start += piece
            if not clienthello.is_tls(start):
                return start
            try:
                name = clienthello.server_name(start)
            except clienthello.NotYet:
                continue
            except clienthello.NoHello:
                name = None
            if name != self._order.host.encode("ascii"):
                raise Refused(Verdict.OTHER_NAME, None)
            return start
        if start:  # it left inside its first message
            raise Refused(Verdict.OTHER_NAME, None)
        return start

    def _hold(self, end: socket.socket) -> None:
        with self._lock:
            self._open.add(end)
            if self._stopped:
                _shut(end)

    def _release(self, end: socket.socket) -> None:
        with self._lock:
            self._open.discard(end)


class _Connection:
    """What is known of one connection so far. Belongs to its thread."""

    def __init__(self) -> None:
        self.host: str | None = None
        self.port: int | None = None
        self.verdict = Verdict.MALFORMED
        self.address: str | None = None
        self.relay: Relay | None = None

    def seen(self) -> Dialled:
        return Dialled(
            host=self.host,
            port=self.port,
            verdict=self.verdict,
            address=self.address,
            passed_bytes=self.relay.passed if self.relay else 0,
        )


def _seconds(deadline: Deadline) -> float:
    """What is left of `deadline` as a socket's timeout. Raises TimeoutError where nothing is."""
    if deadline.passed():
        raise TimeoutError("no time is left")
    return deadline.remaining_ms() / 1000


def _some(client: socket.socket, by: Deadline) -> bytes:
    client.settimeout(_seconds(by))
    return client.recv(clienthello.MOST)


def _exactly(client: socket.socket, count: int, by: Deadline) -> bytes:
    """Read `count` bytes by a moment, however they trickle in. Raises OSError."""
    found = b""
    while len(found) < count:
        client.settimeout(_seconds(by))
        piece = client.recv(count - len(found))
        if not piece:
            raise ConnectionError("the client left")
        found += piece
    return found


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is not connected any more
