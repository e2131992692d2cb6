"""How long to pause before the next try: longer each time, never twice the same for two who fail together.

Pure but for `random`, which is handed in. Threads: one object belongs to one loop.
"""

from collections.abc import Callable


class Backoff:
    """Pauses that double from `first_ms` up to `most_ms`, each shortened by chance by up to a half.

    `random` gives a number of at least 0 and below 1, as random.random does.
    """

    def __init__(self, first_ms: int, most_ms: int, random: Callable[[], float]) -> None:
        self._first_ms = min(first_ms, most_ms)
        self._most_ms = most_ms
        self._random = random
        self._whole_ms = self._first_ms

    def next_ms(self) -> int:
        """Return the next pause. There is always another one: who waits for a server waits for ever."""
        whole_ms = self._whole_ms
        self._whole_ms = min(self._most_ms, whole_ms * 2)
        return max(1, whole_ms - int(whole_ms / 2 * self._random()))

    def reset(self) -> None:
        """It worked: the next pause is a first one."""
        self._whole_ms = self._first_ms
