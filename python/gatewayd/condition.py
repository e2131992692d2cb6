"""How gatewayd is: what is wrong in each of its parts, for the owner and the service manager.

A part says what it cannot do now, and takes it back when it can again. Threads: any; one lock, nothing is called
while it is held.
"""

import threading
from enum import Enum

import attrs

from bxcore import daemon, logs
from bxcore.deadline import Clock
from bxcore.errors import BoxmakerError
from bxcore.timestamp import Timestamp

log = logs.get("condition")


class Part(Enum):
    """What can be wrong by itself, gravest first."""

    STATE = "state"
    CONNECTION = "connection"
    INBOUND = "inbound"
    LOOP = "loop"
    OUTBOUND = "outbound"
    QUESTIONS = "questions"
    ACCOUNT = "account"


@attrs.frozen(kw_only=True)
class Trouble:
    """What a part cannot do. `code` has an entry in the runbook."""

    code: str
    detail: str
    since: Timestamp


class Condition:
    """The board. `connected`: events arrive, and nothing that was missed is still to be read; `since` when it is so.

    `open`: the event connection is up.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._troubles: dict[Part, Trouble] = {}
        self.connected = self.open = self._behind = False
        self.since = clock.now_ms()
        self.server_version: str | None = None

    @property
    def catching_up(self) -> bool:
        """Whether events arrive, and what was missed before is still to be read."""
        return self.open and not self.connected

    def connection(self, *, up: bool, missed: bool = False, server_version: str | None = None) -> None:
        """The event connection came up or went down. `missed`: events were lost since it was up before."""
        with self._lock:
            self.server_version = server_version or self.server_version
            self._changed(up=up, behind=self._behind or missed)
        self._tell()

    def reading(self, *, missed: bool) -> None:
        """What was missed is being read, or has been."""
        with self._lock:
            self._changed(up=self.open, behind=missed)
        self._tell()

    def trouble(self, part: Part, error: BoxmakerError) -> None:
        """A part cannot do its work now, and why as it is seen last. Logged where it is new."""
        with self._lock:
            before = self._troubles.get(part)
            new = before is None or before.code != error.code
            since = self._clock.now_ms() if before is None or new else before.since
            self._troubles[part] = Trouble(code=error.code, detail=error.detail, since=since)
            if new:
                log.warning("trouble part=%s code=%s detail=%s", part.value, error.code, error.detail)
        self._tell()

    def well(self, part: Part) -> None:
        """A part does its work (again)."""
        with self._lock:
            ended = self._troubles.pop(part, None)
        if ended is not None:
            log.info("mended part=%s code=%s", part.value, ended.code)
            self._tell()

    def worst(self) -> Trouble | None:
        """Return the gravest of what is wrong now."""
        with self._lock:
            return next((self._troubles[part] for part in Part if part in self._troubles), None)

    def _changed(self, *, up: bool, behind: bool) -> None:
        self.open, self._behind = up, behind
        connected = up and not behind
        if self.connected is not connected:
            self.connected, self.since = connected, self._clock.now_ms()

    def _tell(self) -> None:
        worst = self.worst()
        if worst is not None:
            daemon.notify(f"STATUS={worst.code}: {worst.detail}")
        else:
            open_ = "catching up" if self.catching_up else "connecting"
            daemon.notify(f"STATUS={'connected' if self.connected else open_}")
