"""The two clocks, and the moment by which a wait must be over.

A Deadline is made once, where a request enters, and handed down, so that a nested call cannot
outlive its request. It runs on the monotonic clock: setting the wall clock neither extends nor
ends a wait. Standard library only: inferproxy imports this module.
"""

import time
from dataclasses import dataclass
from typing import Protocol

from bxcore.timestamp import Timestamp


class Clock(Protocol):
    """Where time comes from. Production has one, SystemClock; tests hand in their own."""

    def now_ms(self) -> Timestamp:
        """Return the wall clock, in Unix milliseconds: for records, never for waiting."""
        ...

    def monotonic_ms(self) -> int:
        """Return a clock that only goes forward, in milliseconds: for waiting, never for records."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> Timestamp:
        return Timestamp(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock. Made with `after`; safe to share between threads."""

    clock: Clock
    at_ms: int

    @classmethod
    def after(cls, clock: Clock, *, milliseconds: int) -> "Deadline":
        """Return the deadline `milliseconds` from now; none or fewer has already passed."""
        return cls(clock, clock.monotonic_ms() + milliseconds)

    def remaining_ms(self) -> int:
        """Return the milliseconds that are left, 0 where it has passed."""
        return max(0, self.at_ms - self.clock.monotonic_ms())

    def passed(self) -> bool:
        """Say whether nothing is left."""
        return self.remaining_ms() == 0

    def sooner(self, *, milliseconds: int) -> "Deadline":
        """Return whichever comes first: this deadline, or `milliseconds` from now."""
        return Deadline(self.clock, min(self.at_ms, self.clock.monotonic_ms() + milliseconds))
