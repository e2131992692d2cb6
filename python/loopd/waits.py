"""How long loopd waits for the model server in each phase of a request, and what it tells meanwhile.

Before the headers a request may queue behind other clients for minutes without a byte; after the
first byte a server that is alive is never silent for long. Threads: a timer belongs to one request.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto

import attrs

from bxcore.deadline import Clock, Deadline
from bxcore.errors import UpstreamError
from bxcore.wire.channel import WaitReason
from loopd.modelfaults import ModelLoading, ServerSilent, SlotBusy

FIRST_LOOK_MS = 300
TICK_MS = 1_000
LOOK_EVERY_MS = 2_000
"""Looking at /slots more often stops the server from noticing clients that left."""

OnWait = Callable[[WaitReason, int, int], None]
"""Told why nothing has come yet, for how many milliseconds, and when we give up."""


@attrs.frozen(kw_only=True)
class Waits:
    """The limits, in milliseconds."""

    slot_ms: int = 600_000
    load_ms: int = 180_000
    liveness_ms: int = 30_000
    stall_ms: int = 600_000
    connect_ms: int = 5_000


class Look(Enum):
    """What /slots says about the slot that a request waits for."""

    BUSY = auto()
    FREE = auto()
    LOADING = auto()
    UNKNOWN = auto()


class Until:
    """The whole exchange has to be over by `deadline`, also where bytes never stop coming."""

    def __init__(self, deadline: Deadline, fault: UpstreamError) -> None:
        self._deadline, self._fault = deadline, fault

    def begin(self) -> None:
        if self._deadline.passed():
            raise self._fault

    def remaining_ms(self) -> int:
        return self._deadline.remaining_ms()

    def expired(self) -> None:
        raise self._fault


class Liveness:
    """Any byte starts the time anew. Ours spent between two reads does not count against the server.

    Pings alone keep nobody waiting for ever: without a delta for `stall_ms` the reply counts as dead.
    """

    def __init__(self, clock: Clock, *, limit_ms: int, stall_ms: int) -> None:
        self._clock, self._limit_ms, self._stall_ms = clock, limit_ms, stall_ms
        self.moved()
        self.begin()

    def moved(self) -> None:
        """The reply said something."""
        self._stalled_at_ms = self._clock.monotonic_ms() + self._stall_ms

    def begin(self) -> None:
        # A bare number and no Deadline: this is done for every event of every stream.
        self._until_ms = min(self._clock.monotonic_ms() + self._limit_ms, self._stalled_at_ms)

    def remaining_ms(self) -> int:
        return max(0, self._until_ms - self._clock.monotonic_ms())

    def expired(self) -> None:
        stalled = self._clock.monotonic_ms() >= self._stalled_at_ms
        what, limit_ms = ("nothing but pings", self._stall_ms) if stalled else ("nothing", self._limit_ms)
        raise ServerSilent(f"the model server sent {what} for {limit_ms} ms")


class Queue:
    """No headers yet. Looks at the slots now and then, says why, and gives up when the reason's time is over."""

    def __init__(self, clock: Clock, waits: Waits, *, look: Callable[[], Look], on_wait: OnWait) -> None:
        """`look` asks /slots, and returns within a second or as soon as the headers come."""
        self._clock, self._waits, self._look, self._on_wait = clock, waits, look, on_wait
        self._began = clock.monotonic_ms()
        self._seen, self._seen_since = Look.UNKNOWN, self._began
        self._next_look = self._next_tick = self._began + FIRST_LOOK_MS

    def begin(self) -> None:
        pass

    def remaining_ms(self) -> int:
        return max(0, min(self._next_tick, self._gives_up_at()) - self._clock.monotonic_ms())

    def expired(self) -> None:
        now = self._clock.monotonic_ms()
        self._next_tick = now + TICK_MS
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY_MS
            self._note(self._look())
        limit_ms = self._limit_ms()
        if self._clock.monotonic_ms() >= self._gives_up_at():
            raise self._fault(limit_ms)
        reason = WaitReason.MODEL_LOADING if self._seen is Look.LOADING else WaitReason.SLOT_BUSY
        self._on_wait(reason, now - self._began, limit_ms)

    def _note(self, seen: Look) -> None:
        # A server in the middle of a batch answers no look: what it said last still holds.
        if seen is not Look.UNKNOWN and seen is not self._seen:
            self._seen, self._seen_since = seen, self._clock.monotonic_ms()

    def _limit_ms(self) -> int:
        match self._seen:
            case Look.FREE | Look.LOADING:
                # A router that loads the model shows a free slot, or none at all.
                return self._waits.load_ms
            case _:
                return self._waits.slot_ms

    def _gives_up_at(self) -> int:
        # A busy slot is counted from the start, so that a slot that changes hands cannot hold us for ever.
        counted_from = self._seen_since if self._seen in (Look.FREE, Look.LOADING) else self._began
        return min(counted_from + self._limit_ms(), self._began + self._waits.slot_ms + self._waits.load_ms)

    def _fault(self, limit_ms: int) -> UpstreamError:
        match self._seen:
            case Look.BUSY:
                return SlotBusy(f"another client held the slot for {limit_ms} ms")
            case Look.LOADING:
                return ModelLoading(f"the model was not loaded within {limit_ms} ms")
            case _:
                return ServerSilent(f"the model server took the request but began no reply within {limit_ms} ms")


class Patience:
    """A budget of waiting that is never filled up again, so that no change of fault waits for ever."""

    def __init__(self, clock: Clock, *, limit_ms: int) -> None:
        self._clock, self._limit_ms = clock, limit_ms
        self.spent_ms = 0

    @contextmanager
    def spent(self, fault: UpstreamError) -> Iterator[int]:
        """Count the time of the body, which is told how much is left; raise `fault` where nothing is."""
        left_ms = self._limit_ms - self.spent_ms
        if left_ms <= 0:
            raise fault
        began_ms = self._clock.monotonic_ms()
        try:
            yield left_ms
        finally:
            self.spent_ms += self._clock.monotonic_ms() - began_ms
