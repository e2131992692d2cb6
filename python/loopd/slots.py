"""The gate in front of each server slot: one request at a time, first come first served.

Held for one request, never across a tool call, so conversations interleave step by step. A thread
that holds a slot may pass again: a server that changed is tested by the very turn that noticed,
and a server with one slot has no other to test on.
Threads: called by every turn; the lock is never held while waiting for the server.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bxcore.deadline import Clock, Deadline
from bxcore.errors import UpstreamError
from loopd.cancel import CancelToken

_LOOK_SECONDS = 0.2
_TELL_MS = 2_000


class GateTimeout(UpstreamError):
    """Other turns held the slot for too long."""

    code = "slot_busy"


class SlotGate:
    """Tickets for each slot, in order of arrival."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._queues: defaultdict[int, deque[int]] = defaultdict(deque)  # thread idents, the holder first

    @contextmanager
    def held(
        self, slot: int, *, cancel: CancelToken, deadline: Deadline, on_wait: Callable[[int], None]
    ) -> Iterator[None]:
        """Wait for the slot, hold it for the body. `on_wait` hears the milliseconds waited, now and then.

        Raises Cancelled, or GateTimeout when the deadline passes first.
        """
        ticket = threading.get_ident()
        with self._changed:
            queue = self._queues[slot]
            inside = ticket in queue
            if not inside:
                queue.append(ticket)
        if inside:
            yield
            return
        try:
            self._wait(queue, ticket, cancel=cancel, deadline=deadline, on_wait=on_wait)
            yield
        finally:
            with self._changed:
                queue.remove(ticket)
                self._changed.notify_all()

    def _wait(
        self,
        queue: deque[int],
        ticket: int,
        *,
        cancel: CancelToken,
        deadline: Deadline,
        on_wait: Callable[[int], None],
    ) -> None:
        began = told = self._clock.monotonic_ms()
        while True:
            with self._changed:
                if queue[0] == ticket or self._changed.wait_for(lambda: queue[0] == ticket, _LOOK_SECONDS):
                    return
            cancel.check()
            if deadline.passed():
                raise GateTimeout("other turns held the slot for too long")
            now = self._clock.monotonic_ms()
            if now - told >= _TELL_MS or told == began:
                told = now
                on_wait(now - began)
