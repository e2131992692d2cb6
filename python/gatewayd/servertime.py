"""What time it is at the server: the Date of its last answer, and what passed since.

Its posts are dated by that clock, which may be hours from ours, and may be put right while we look on. No post's own
date is asked: one of them may lie in the future, and then all others would be old. Threads: one.
"""

import re
from email.utils import parsedate_to_datetime

from bxcore.deadline import Clock
from bxcore.timestamp import Timestamp

_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [1-9][0-9]{3} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")
"""As HTTP wants it."""
PRECISION_MS = 1_000
"""A Date has whole seconds: the server's time is later than what it says by up to so much, and never earlier."""


class ServerTime:
    """The server's clock, as far as its answers tell; the last one counts, also where it goes back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: int | None = None
        self._since_ms = 0

    def answered(self, untrusted: str | None) -> None:
        """An answer had this Date. One that cannot be read changes nothing."""
        said = None if untrusted is None else _moment(untrusted)
        if said is not None:
            self._said, self._since_ms = said, self._clock.monotonic_ms()

    def now(self) -> Timestamp:
        """Return the server's time; ours, where no answer gave it."""
        if self._said is None:
            return self._clock.now_ms()
        return Timestamp(self._said + self._clock.monotonic_ms() - self._since_ms)


def _moment(untrusted: str) -> int | None:
    if not _DATE.fullmatch(untrusted):
        return None
    try:
        found = int(parsedate_to_datetime(untrusted).timestamp()) * 1_000
    except (ValueError, OverflowError):
        return None
    return found if found >= 0 else None
