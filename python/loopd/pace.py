"""How often a reply that streams in is read: a token at a time where it is slow, several at a time where it is fast.

Being woken costs more processor time than all that is done with a token, so text that comes quickly is
left to gather for a moment. The first text of a reply never waits, since none came shortly before it.
"""

import time
from collections.abc import Callable

from bxcore.deadline import Clock

GATHER_MS = 20
"""Text is shown fifty times a second then, which nobody sees. A cancel is heard this much later at most."""

_CAME_ALONE_MS = 2
"""Text that came sooner after the one before it had gathered already, and more of it may lie there."""


class Pace:
    """The pace of one reply. One thread."""

    def __init__(self, clock: Clock, pause: Callable[[float], None] = time.sleep) -> None:
        self._clock, self._pause = clock, pause
        self._last_ms: int | None = None

    def after_text(self) -> None:
        """Some text has been shown: let more gather where more comes quickly."""
        now, last = self._clock.monotonic_ms(), self._last_ms
        self._last_ms = now
        if last is not None and _CAME_ALONE_MS <= now - last < GATHER_MS:
            self._pause(GATHER_MS / 1000)
