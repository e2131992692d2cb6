"""A clock that a test winds by hand. Threads: any may read and wind it."""

import threading

from bxcore.timestamp import Timestamp

BEGIN = Timestamp(1_767_225_600_000)
"""2026-01-01T00:00:00.000Z"""


class HandClock:
    """Both clocks stand still until `wind`; `tick_ms` is added at each look at the monotonic one."""

    def __init__(self, *, tick_ms: int = 0) -> None:
        self._lock = threading.Lock()
        self._wall, self._monotonic, self._tick_ms = int(BEGIN), 1_000, tick_ms

    def now_ms(self) -> Timestamp:
        with self._lock:
            return Timestamp(self._wall)

    def monotonic_ms(self) -> int:
        with self._lock:
            self._monotonic += self._tick_ms
            return self._monotonic

    def wind(self, milliseconds: int) -> None:
        """Time passes."""
        with self._lock:
            self._wall += milliseconds
            self._monotonic += milliseconds

    def set_wall(self, milliseconds: int) -> None:
        """Somebody sets the wall clock: no time passes."""
        with self._lock:
            self._wall += milliseconds
