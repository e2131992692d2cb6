"""How many calls run at a time. Threads: any; the condition's lock guards one number."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bxcore.deadline import Clock, Deadline

ROOM_MS = 10_000
"""How long a call that may run waits for a place: loopd's patience must still hold for the run itself."""

_LOOK_SECONDS = 0.2


class Running:
    """The places. `count` is how many are taken."""

    def __init__(self, most: int, clock: Clock, *, room_ms: int = ROOM_MS) -> None:
        self._most = most
        self._clock = clock
        self._room_ms = room_ms
        self._changed = threading.Condition()
        self.count = 0

    @contextmanager
    def place(self, *, given_up: Callable[[], bool]) -> Iterator[bool]:
        """Take a place and give it back after the block; the value says whether there was one in time."""
        taken = self._take(given_up)
        try:
            yield taken
        finally:
            if taken:
                self._give_back()

    def _take(self, given_up: Callable[[], bool]) -> bool:
        deadline = Deadline.after(self._clock, milliseconds=self._room_ms)
        with self._changed:
            while self.count >= self._most:
                if deadline.passed() or given_up():
                    return False
                self._changed.wait(_LOOK_SECONDS)
            self.count += 1
        return True

    def _give_back(self) -> None:
        with self._changed:
            self.count -= 1
            self._changed.notify()
