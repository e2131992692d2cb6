"""Shows in Mattermost that a turn runs: "typing" in its thread, and in the channel too for the first turn of a thread.

A client shows it for a few seconds, so it is said again and again until the turn is over. Whatever goes wrong is
nobody's business: no answer waits for this. Threads: one of its own; `wake` and `stop` from any.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from bxcore import logs
from bxcore.deadline import Clock
from bxcore.ids import MattermostId
from gatewayd.entries import OpenTurn
from gatewayd.faults import MattermostBusy, MattermostFault
from gatewayd.worker import AskingWorker, Rest

log = logs.get("typing")

SHOWN_MS = 5_000
"""So long a client shows it where the server's configuration says nothing else."""
_EARLY_MS = 1_000
_LEAST_MS = 2_000

Place = tuple[MattermostId, MattermostId | None]
"""A channel, and the thread in it; None: the channel's own line."""


class Server(Protocol):
    """As much of gatewayd.mattermost.Mattermost as is used here."""

    def typing(self, channel: MattermostId, parent: MattermostId | None) -> None: ...

    def close(self) -> None: ...


class Typing(AskingWorker[Server]):
    """See the module's header. `shown_ms` is the server's ServerConfig.typing_ms."""

    def __init__(
        self,
        *,
        running: Callable[[], Sequence[OpenTurn]],
        api: Callable[[], Server],
        clock: Clock,
        shown_ms: Callable[[], int] = lambda: SHOWN_MS,
    ) -> None:
        super().__init__("typing", api)
        self._running = running
        self._clock = clock
        self._shown_ms = shown_ms
        self._due_ms: dict[Place, int] = {}
        self._not_before_ms = 0

    # -- inside ---------------------------------------------------------------------------------

    def _ask(self, server: Server) -> Rest:
        return Rest(ms=self._shown(server))

    def _shown(self, api: Server) -> int | None:
        try:
            return self.show(api)
        except Exception:
            log.exception("typing not shown code=internal")  # the thread's outermost frame
            return SHOWN_MS

    def show(self, api: Server) -> int | None:
        """Show what is due; return how many milliseconds later to come again, None where no turn runs."""
        places = dict.fromkeys(place for turn in self._running() for place in _places(turn))
        self._due_ms = {place: due for place, due in self._due_ms.items() if place in places}
        for place in places:
            now = self._clock.monotonic_ms()
            if self._stopping.is_set() or now < self._not_before_ms:
                break
            if self._due_ms.get(place, 0) <= now:
                self._due_ms[place] = now + max(_LEAST_MS, self._shown_ms() - _EARLY_MS)
                self._say(api, *place)
        if not places:
            return None
        now = self._clock.monotonic_ms()
        soonest = min(self._due_ms.get(place, now) for place in places)
        return max(1, soonest - now, self._not_before_ms - now)

    def _say(self, api: Server, channel: MattermostId, thread: MattermostId | None) -> None:
        try:
            api.typing(channel, thread)
        except MattermostBusy as fault:
            # What the server has room for belongs to the answers.
            self._not_before_ms = self._clock.monotonic_ms() + fault.retry_ms
        except MattermostFault as fault:
            log.debug("typing not shown code=%s status=%d", fault.code, fault.status)


def _places(turn: OpenTurn) -> Iterator[Place]:
    yield turn.channel, turn.thread
    if turn.first:
        yield turn.channel, None
