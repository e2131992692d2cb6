"""The time that grants are judged by: it never goes back, so that setting the clock back revives no grant.

Reads and writes: one file, the latest time that was ever seen here. Its line is {"v":1,"latest":"…Z"}.
Invariant: `now_ms` never returns less than it did before, not even by a brokerd that ran earlier, but for the last
second of that one. A clock that was once set forward stays there: what had expired then is expired,
until the real time has caught up or the owner removes the file (docs/runbook.md). Open questions do not run
on this clock but on the monotonic one. Threads: any; one lock, held while the file is written.
"""

import threading
from pathlib import Path

from brokerd import ownfile
from bxcore import brokerfiles
from bxcore.brokerfiles import MOST_BYTES, VERSION, ClockFile
from bxcore.deadline import Clock
from bxcore.errors import BadMessage
from bxcore.files import Files, StateMissing, StateUnreadable
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp

STEP_MS = 1_000
"""The file is written when the time has moved on by so much: at most once a second."""


class ExpiryClock:
    """The clock. Made once; reads the file then and writes it."""

    def __init__(self, path: Path, files: Files, clock: Clock) -> None:
        """Raises StateError where the file cannot be read with certainty, or not be written."""
        self._path = path
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()
        self._latest = _read(path)
        self._kept: Timestamp | None = None
        self.now_ms()

    def now_ms(self) -> Timestamp:
        """Return the latest time seen until now. Raises StateUnwritable where it had to be kept and could not."""
        with self._lock:
            wall = Timestamp(max(0, min(self._clock.now_ms(), MAX_TIMESTAMP)))
            self._latest = max(self._latest, wall)
            if self._kept is None or self._latest - self._kept >= STEP_MS:
                self._keep(self._latest)
            return self._latest

    def _keep(self, latest: Timestamp) -> None:
        self._files.replace(self._path, brokerfiles.encode(ClockFile(v=VERSION, latest=latest)))
        self._kept = latest


def _read(path: Path) -> Timestamp:
    try:
        content = ownfile.read(path, most=MOST_BYTES)
    except StateMissing:
        return Timestamp(0)
    try:
        return brokerfiles.read_clock(content)
    except BadMessage as error:
        raise StateUnreadable(f"{path.parent.name}/{path.name}: {error.detail}") from None
