"""When the queue began and how far channels were read, by the server's clock: it may differ from ours, or be put right.

Reads, writes: what is `kept` in the queue's file, and its marks. Threads: any.
"""

import re

from bxcore.deadline import Clock
from bxcore.files import StateUnreadable
from bxcore.timestamp import Timestamp
from gatewayd.queuefile import QueueFile

SKEW_MS = 60_000
"""What lies ahead of the server's clock by no more is as good as now: a cluster's clocks differ."""

_NUMBER = re.compile(r"[0-9]{1,15}")


class QueueTimes:
    """`open` comes first."""

    def __init__(self, file: QueueFile, clock: Clock) -> None:
        self._file, self._clock = file, clock

    def open(self) -> None:
        """Note, once, when the queue was first opened. Raises StateError."""
        with self._file.writing() as database:
            database.execute("INSERT OR IGNORE INTO kept VALUES ('opened', ?)", (str(self._clock.now_ms()),))
        self._kept()

    def began(self) -> Timestamp:
        """Return when that was: by the server's clock once it is known, till then by ours."""
        kept = self._kept()
        return kept.get("began", kept["opened"])

    def server_time(self, now: Timestamp, *, again_ms: int) -> None:
        """The server's clock says `now`: put right, on disk, what is kept by it.

        The first time that is when all began: as long ago as by our clock. A mark that lies ahead of `now` is from
        before that clock was put back, and tells nothing any more: it becomes one of `again_ms` ago.
        """
        kept, here = self._kept(), self._clock.now_ms()
        latest = now + SKEW_MS
        with self._file.writing() as database:
            database.execute("UPDATE marks SET create_at = ? WHERE create_at > ?", (max(0, now - again_ms), latest))
            if "began" not in kept or kept["began"] > latest:
                began = max(0, now - max(0, here - kept["opened"]))
                database.execute("INSERT OR REPLACE INTO kept VALUES ('began', ?)", (str(began),))

    def _kept(self) -> dict[str, Timestamp]:
        rows = self._file.read("SELECT name, value FROM kept WHERE name IN ('began', 'opened')")
        if not all(_NUMBER.fullmatch(value) for _, value in rows):
            raise StateUnreadable("the queue is damaged: when it began is no time")
        return {name: Timestamp(int(value)) for name, value in rows}
