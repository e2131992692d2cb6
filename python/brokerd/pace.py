"""How fast calls are denied: a no costs a record on disk, so whoever asks for very many waits for the answers.

Nothing is dropped: the record is written first, and then the answer waits, and with it the connection that it
goes out on. Invariant: over any time, what was taken is at most the burst and the rate, beside one for each
that waits. Threads: any; the lock is its own.
"""

import threading

from bxcore.deadline import Clock

SECONDS_OF_BURST = 5
"""So much of the rate may come at once, after a quiet while."""

PIECE_BYTES = 1_024
"""A long request counts once more for each of these, since all of it is recorded."""


class Pace:
    """A bucket of tokens, `per_second` of them a second. It may be overdrawn: then the next waits longer."""

    def __init__(self, clock: Clock, *, per_second: int) -> None:
        self._clock = clock
        self._per_second = per_second
        self._most = per_second * SECONDS_OF_BURST * 1000
        self._lock = threading.Lock()
        self._thousandths = self._most
        self._at_ms = clock.monotonic_ms()

    def take(self, size_bytes: int) -> int:
        """Take what a denied request of that size costs; return for how many milliseconds its answer waits."""
        cost = 1 + size_bytes // PIECE_BYTES
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            self._thousandths = min(self._most, self._thousandths + (now_ms - self._at_ms) * self._per_second)
            self._at_ms = now_ms
            self._thousandths -= cost * 1000
            return max(0, -(self._thousandths // self._per_second))
