"""What time it is at the server, as far as its posts tell: no wall clock of ours is asked. Threads: any."""

import threading

from bxcore.deadline import Clock
from bxcore.timestamp import Timestamp


class ServerTime:
    """The newest time that the server gave, and what passed since: never later than the server's own clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._newest = 0
        self._since_ms = clock.monotonic_ms()

    def seen(self, create_at: Timestamp) -> None:
        """The server dated something so."""
        with self._lock:
            if create_at > self._at():
                self._newest, self._since_ms = create_at, self._clock.monotonic_ms()

    def now(self) -> Timestamp:
        """Return the estimate; 1970 where nothing was seen."""
        with self._lock:
            return Timestamp(self._at())

    def _at(self) -> int:
        return self._newest + self._clock.monotonic_ms() - self._since_ms if self._newest else 0
