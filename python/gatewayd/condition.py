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


@attrs.frozen(kw_only=True)
class Trouble:
    """What a part cannot do. `code` has an entry in the runbook."""

    code: str
    detail: str
    since: Timestamp


class Condition:
    """The board. `connected` and what the connection told of itself belong to the event connection."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._troubles: dict[Part, Trouble] = {}
        self.connected = False
        self.since = clock.now_ms()
        self.server_version: str | None = None

    def connection(self, *, up: bool, server_version: str | None = None) -> None:
        """The event connection came up or went down."""
        with self._lock:
            if self.connected is not up:
                self.connected, self.since = up, self._clock.now_ms()
            self.server_version = server_version or self.server_version
        self._tell()

    def trouble(self, part: Part, error: BoxmakerError) -> None:
        """A part cannot do its work now. Logged where it is new."""
        with self._lock:
            before = self._troubles.get(part)
            if before is None or before.code != error.code:
                self._troubles[part] = Trouble(code=error.code, detail=error.detail, since=self._clock.now_ms())
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

    def _tell(self) -> None:
        worst = self.worst()
        if worst is not None:
            daemon.notify(f"STATUS={worst.code}: {worst.detail}")
        else:
            daemon.notify("STATUS=connected" if self.connected else "STATUS=connecting")
