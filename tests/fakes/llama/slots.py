"""The fake server's slots: who holds one, who waits, and which tokens each has cached.

Threads: every request of the server; one condition guards all. A request that waits is not
watched: like the real server's, it notices only when its turn comes that its client has left.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs


@attrs.define
class Slot:
    id: int
    cached: list[int] = attrs.Factory(list)
    busy: bool = False
    task: dict[str, Any] | None = None


@attrs.define(eq=False)
class _Ticket:
    pinned: int | None
    slot: Slot | None = None


class Slots:
    def __init__(self, count: int) -> None:
        self.all = [Slot(id=number) for number in range(count)]
        self._changed = threading.Condition()
        self._waiting: list[_Ticket] = []
        self._closed = False

    @contextmanager
    def held(self, wanted: Any, prompt: list[int]) -> Iterator[Slot]:
        """Wait for a slot and hold it. Out of range or no number at all: any will do."""
        pinned = wanted if type(wanted) is int and 0 <= wanted < len(self.all) else None
        slot = self._take(_Ticket(pinned), prompt)
        try:
            yield slot
        finally:
            with self._changed:
                slot.busy = False
                self._serve_next(slot)
                self._changed.notify_all()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def waiting(self) -> int:
        with self._changed:
            return len(self._waiting)

    def _take(self, ticket: _Ticket, prompt: list[int]) -> Slot:
        with self._changed:
            free = [slot for slot in self.all if not slot.busy and ticket.pinned in (None, slot.id)]
            if free:
                ticket.slot = max(free, key=lambda slot: common_prefix(slot.cached, prompt))
                ticket.slot.busy = True
            else:
                self._waiting.append(ticket)
            while ticket.slot is None:
                if self._closed:
                    raise ConnectionAbortedError("the fake server was stopped")
                self._changed.wait()
            return ticket.slot

    def _serve_next(self, slot: Slot) -> None:
        """The requests pinned to this slot first, then the oldest that takes any."""
        for fits in (slot.id, None):
            for ticket in self._waiting:
                if ticket.pinned == fits:
                    self._waiting.remove(ticket)
                    ticket.slot, slot.busy = slot, True
                    return


def common_prefix(left: list[int], right: list[int]) -> int:
    for index, (ours, theirs) in enumerate(zip(left, right, strict=False)):
        if ours != theirs:
            return index
    return min(len(left), len(right))
