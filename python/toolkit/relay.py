"""Bytes between two sockets, both ways, until both ends are done or a limit is reached.

Threads: the caller copies one way and one helper thread the other; a Budget is shared by all relays of a call.
Invariant: a byte is counted before it is passed on, so no more than the budget ever passes.
"""

import select
import socket
import threading

_PIECE = 65_536


class Budget:
    """How many bytes may still pass, both ways and over all connections together."""

    def __init__(self, total: int) -> None:
        self._left, self._lock = total, threading.Lock()

    def take(self, count: int) -> bool:
        """Take `count` bytes; False where there are not so many left, and from then on for ever."""
        with self._lock:
            self._left -= count
            return self._left >= 0


class Relay:
    """One connection's copying. Both sockets have a timeout, which ends a wait for a silent or full peer."""

    def __init__(self, client: socket.socket, upstream: socket.socket, budget: Budget) -> None:
        self._client, self._upstream, self._budget = client, upstream, budget
        self.over_budget = False
        self._passed = [0, 0]

    @property
    def passed(self) -> int:
        """Bytes passed on so far, both ways."""
        return sum(self._passed)

    def send_first(self, start: bytes) -> None:
        """Pass on what was already read from the client."""
        self._pass_on(start, self._upstream, 0)

    def run(self) -> None:
        """Copy until both directions have ended. Closes neither socket."""
        back = threading.Thread(target=self._copy, args=(self._upstream, self._client, 1), daemon=True)
        back.start()
        self._copy(self._client, self._upstream, 0)
        back.join()

    def _copy(self, source: socket.socket, sink: socket.socket, way: int) -> None:
        try:
            while not self.over_budget:
                piece = source.recv(_PIECE)
                if not piece:
                    sink.shutdown(socket.SHUT_WR)
                    if _gone(source):
                        self.stop()
                    return
                self._pass_on(piece, sink, way)
            self.stop()
        except OSError:
            # Reset, silent for too long, or stopped by us: the other way makes no sense any more.
            self.stop()

    def _pass_on(self, piece: bytes, sink: socket.socket, way: int) -> None:
        if not self._budget.take(len(piece)):
            self.over_budget = True
            return
        sink.sendall(piece)
        self._passed[way] += len(piece)

    def stop(self) -> None:
        """End both directions; a thread that waits in either comes back. Any thread."""
        for end in (self._client, self._upstream):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is not connected any more, which is what was wanted


def _gone(end: socket.socket) -> bool:
    """Whether the peer has left altogether, instead of merely saying no more: then nobody reads what still comes."""
    poll = select.poll()
    poll.register(end, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))
