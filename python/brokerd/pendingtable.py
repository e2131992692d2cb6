"""Which questions are open, how many more may be asked, and which calls the owner has refused already.

Invariant: of all who want to end a question exactly one gets it from `take`, and answers it. Threads: any;
the lock is the table's own, and is never held while calling out.
"""

import threading
from collections import OrderedDict, deque
from typing import Generic, Protocol, TypeVar

from bxcore.deadline import Clock, Deadline
from bxcore.ids import Hash32
from bxcore.settings.brokerd import Approvals as Limits

MINUTE_MS = 60_000
REFUSALS = 4_096
"""So many refused calls are remembered, the newest ones."""


class Entry(Protocol):
    """What the table keeps."""

    @property
    def id(self) -> int: ...


Kept = TypeVar("Kept", bound=Entry)


class PendingTable(Generic[Kept]):
    """The table. A place is kept by `admit` and then either filled by `put` or given back."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[int, Kept] = {}
        self._places = 0
        self._asked = deque[Deadline]()
        self._refused = OrderedDict[tuple[Hash32, Hash32 | None], Deadline]()

    def admit(self, fingerprint: Hash32, grants: Hash32 | None) -> str | None:
        """Keep a place for a question about this call; where it may not be asked, return why, in one line.

        A call that was refused is not asked about again while the grants are the same, nor before an answer to it
        would have expired.
        """
        with self._lock:
            refused = self._refused.get((fingerprint, grants))
            if refused is not None and not refused.passed():
                return "the owner refused this very call before"
            while self._asked and self._asked[0].passed():
                self._asked.popleft()
            if len(self._open) + self._places >= self._limits.open:
                return "too many questions are open"
            if len(self._asked) >= self._limits.per_minute:
                return "too many questions were asked within a minute"
            self._asked.append(Deadline.after(self._clock, milliseconds=MINUTE_MS))
            self._places += 1
            return None

    def give_back(self) -> None:
        """Give up a place that was kept: nothing will be asked."""
        with self._lock:
            self._places -= 1

    def put(self, entry: Kept) -> None:
        """Open a question, in a place that was kept for it."""
        with self._lock:
            self._places -= 1
            self._open[entry.id] = entry

    def take(self, entry: Kept) -> bool:
        """Close a question; say whether it was still open, so that it is the caller's to answer."""
        with self._lock:
            if self._open.get(entry.id) is not entry:
                return False
            del self._open[entry.id]
            return True

    def find(self, number: int) -> Kept | None:
        """Return an open question; it may be taken by another at any moment."""
        with self._lock:
            return self._open.get(number)

    def entries(self) -> list[Kept]:
        """Return the open questions, oldest first."""
        with self._lock:
            return [self._open[number] for number in sorted(self._open)]

    def refuse(self, fingerprint: Hash32, grants: Hash32 | None) -> None:
        """Remember that the owner said no to this call."""
        with self._lock:
            self._refused[fingerprint, grants] = Deadline.after(self._clock, milliseconds=self._limits.ttl_ms)
            self._refused.move_to_end((fingerprint, grants))
            if len(self._refused) > REFUSALS:
                self._refused.popitem(last=False)
