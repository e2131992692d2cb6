"""The one background loop of brokerd: sweeps what containers were left behind, and proves the walls when it can.

Threads: one of its own, which waits on an event with a timeout; `stop` ends it.
"""

import threading
from collections.abc import Callable

from brokerd.containers import Swept
from brokerd.runnerfaults import RunnerUnavailable
from bxcore import logs

AWAY_MS = 15_000
"""How soon it is tried again while Podman or the image is not there."""

log = logs.get("tending")


class Tending:
    """Calls `tend` at once, and then every `every_ms`."""

    def __init__(self, tend: Callable[[], Swept], *, every_ms: int, away_ms: int = AWAY_MS) -> None:
        self._tend, self._every_ms, self._away_ms = tend, every_ms, away_ms
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tending", daemon=True)
        self._told = ""
        self._looked = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def first(self, *, seconds: float) -> bool:
        """Wait for the end of the first round, so long at most; whether it has ended."""
        return self._looked.wait(seconds)

    def stop(self, *, seconds: float = 5) -> None:
        """End the loop, and wait for a round that goes on, so long at most."""
        self._stop.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            pause_ms = self._round()
            self._looked.set()
            self._stop.wait(pause_ms / 1000)

    def _round(self) -> int:
        """Do it once; return how long to wait. Anything that goes wrong is told once, and tried again."""
        try:
            left = self._tend().left
        except RunnerUnavailable as error:
            self._tell(f"{error}", error.code)
            return min(self._every_ms, self._away_ms)
        except Exception:
            log.exception("sweeping failed code=internal")
            return min(self._every_ms, self._away_ms)
        self._told = ""
        return min(self._every_ms, self._away_ms) if left else self._every_ms

    def _tell(self, text: str, code: str) -> None:
        if text != self._told:
            log.error("no tool can run why=%s code=%s", text, code)
            self._told = text
