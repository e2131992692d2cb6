"""How the server fails when a test wants it to: answers it gives instead, and the rate limit of 11.6.

Threads: any; one lock.
"""

import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

CUT = 0
"""As a status: the connection ends without an answer."""
PER_SECOND = 10
BURST = 100


@dataclass(kw_only=True)
class Fault:
    """What happens to the next `times` requests that fit. `after`: the request is carried out, and its answer lost.

    `wait`: the request is held until this is set. Without a status it is then carried out and answered as ever, and
    while it is held the server is busy with it: its pending_post_id is taken.
    """

    method: str
    path: re.Pattern[str]
    status: int | None
    body: bytes
    headers: Mapping[str, str]
    times: int
    after: bool
    wait: threading.Event | None
    begun: threading.Event = field(default_factory=threading.Event)
    """Set once a request is held."""

    @property
    def is_slow(self) -> bool:
        return self.wait is not None and self.status is None

    def fits(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in ("*", method) and self.path.search(path) is not None


@dataclass
class Faults:
    """Every fault that is still to come, in the order in which they were asked for."""

    _list: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._list.append(fault)

    def take(self, method: str, path: str) -> Fault | None:
        """Return the fault of a request, and count it."""
        with self._lock:
            fault = next((fault for fault in self._list if fault.fits(method, path)), None)
            if fault is not None:
                fault.times -= 1
            return fault

    def clear(self) -> None:
        """Take all back, and let whoever waits go on."""
        with self._lock:
            for fault in self._list:
                if fault.wait is not None:
                    fault.wait.set()
            self._list.clear()


class RateLimit:
    """10 a second, 100 at once, by address: the generic cell rate algorithm, as the server's library counts it."""

    def __init__(self) -> None:
        self.on = False
        self._lock = threading.Lock()
        self._arrival_ms: dict[str, float] = {}

    def count(self, address: str, now: int) -> tuple[bool, dict[str, str]]:
        """Count a request: whether it is refused, and the headers of its answer."""
        if not self.on:
            return False, {}
        interval = 1_000 / PER_SECOND
        window = interval * (BURST + 1)
        with self._lock:
            arrival = max(now, self._arrival_ms.get(address, 0))
            early = arrival + interval - window - now
            refused = early > 0
            if not refused:
                arrival += interval
                self._arrival_ms[address] = arrival
        ahead = arrival - now
        headers = {
            "X-RateLimit-Limit": str(BURST + 1),
            "X-RateLimit-Remaining": str(max(0, int((window - ahead) / interval))),
            "X-RateLimit-Reset": str(math.ceil(ahead / 1_000)),
        }
        if refused:
            headers["Retry-After"] = str(math.ceil(early / 1_000))
        return refused, headers
