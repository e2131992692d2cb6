"""Posts that the server breaks at while it is well otherwise, and the places whose later posts wait for them.

A place is a thread, or the top level of a channel: within one order is kept, and none waits for another. Pure but for
the clock and `random`. Threads: one object belongs to one loop.
"""

from collections.abc import Callable

import attrs

from bxcore.deadline import Clock
from bxcore.ids import MattermostId
from gatewayd.backoff import Backoff
from gatewayd.entries import Outgoing, Unsent

Place = tuple[MattermostId, MattermostId | None]

FAILURES = 3
"""After so many in a row a post lets those of other places go first."""


@attrs.define(kw_only=True)
class _Held:
    unsent: Unsent
    due_ms: int
    backoff: Backoff


class HeldBack:
    """See the module's header. `first_ms` and `most_ms`: the pauses between two tries of a post that is held."""

    def __init__(self, first_ms: int, most_ms: int, clock: Clock, random: Callable[[], float]) -> None:
        self._first_ms, self._most_ms, self._clock, self._random = first_ms, most_ms, clock, random
        self._failures: dict[int, int] = {}
        self._held: dict[Place, _Held] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def failed(self, unsent: Unsent) -> bool:
        """Count a failure; say whether it is held now, as a post that may be there."""
        place = _place(unsent.outgoing)
        failures = self._failures[unsent.number] = self._failures.get(unsent.number, 0) + 1
        if failures < FAILURES:
            return False
        held = self._held.get(place)
        backoff = held.backoff if held is not None else Backoff(self._first_ms, self._most_ms, self._random)
        due_ms = self._clock.monotonic_ms() + backoff.next_ms()
        self._held[place] = _Held(unsent=attrs.evolve(unsent, tried=True), due_ms=due_ms, backoff=backoff)
        return True

    def holds(self, unsent: Unsent) -> bool:
        """Say whether a post waits for one that is held, or is one."""
        return _place(unsent.outgoing) in self._held

    def due(self) -> Unsent | None:
        """Return the held post that is to be tried now, of several the one that has waited longest."""
        first = self._first()
        return first.unsent if first is not None and first.due_ms <= self._clock.monotonic_ms() else None

    def until_due_ms(self) -> int | None:
        """Return how long no held post is to be tried; None where none is held."""
        first = self._first()
        return max(1, first.due_ms - self._clock.monotonic_ms()) if first is not None else None

    def forget(self, unsent: Unsent) -> None:
        """It is made, or set aside."""
        self._failures.pop(unsent.number, None)
        place = _place(unsent.outgoing)
        if place in self._held and self._held[place].unsent.number == unsent.number:
            del self._held[place]

    def _first(self) -> _Held | None:
        return min(self._held.values(), key=lambda held: held.due_ms, default=None)


def _place(outgoing: Outgoing) -> Place:
    return outgoing.channel, outgoing.root
