import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from bxcore.deadline import Deadline
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled
from loopd.slots import GateTimeout, SlotGate
from tests.fakes.clocks import HandClock

WAIT_SECONDS = 20


class Visitor:
    """A thread that holds a slot from `inside` until `leave`."""

    def __init__(self, gate: SlotGate, slot: int, clock: HandClock, *, limit_ms: int = 3_600_000) -> None:
        self.inside, self.leave, self.waits = threading.Event(), threading.Event(), threading.Event()
        self.waited: list[int] = []
        self.cancel = CancelToken()
        self.fault: Exception | None = None
        self._gate, self._slot = gate, slot
        self._deadline = Deadline.after(clock, milliseconds=limit_ms)
        self.thread = threading.Thread(target=self._visit)
        self.thread.start()

    def _visit(self) -> None:
        try:
            with self._gate.held(self._slot, cancel=self.cancel, deadline=self._deadline, on_wait=self._wait):
                self.inside.set()
                self.leave.wait(WAIT_SECONDS)
        except (Cancelled, GateTimeout) as fault:
            self.fault = fault

    def _wait(self, waited_ms: int) -> None:
        self.waited.append(waited_ms)
        self.waits.set()

    def gone(self) -> None:
        """Leave, and wait until it has left."""
        self.leave.set()
        self.thread.join(WAIT_SECONDS)
        assert not self.thread.is_alive()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def come(clock: HandClock) -> Callable[..., Visitor]:
    gate = SlotGate(clock)
    return lambda slot=0, **options: Visitor(gate, slot, clock, **options)


def test_one_at_a_time_in_the_order_of_arrival(come: Callable[..., Visitor]) -> None:
    first = come()
    assert first.inside.wait(WAIT_SECONDS)
    waiting = []
    for _ in range(3):
        visitor = come()
        assert visitor.waits.wait(WAIT_SECONDS)
        waiting.append(visitor)
    present = first
    for visitor in waiting:
        assert not any(other.inside.is_set() for other in waiting[waiting.index(visitor) :])
        present.gone()
        assert visitor.inside.wait(WAIT_SECONDS)
        present = visitor
    present.gone()


def test_slots_do_not_wait_for_each_other(come: Callable[..., Visitor]) -> None:
    main, background = come(0), come(1)
    assert main.inside.wait(WAIT_SECONDS)
    assert background.inside.wait(WAIT_SECONDS)
    main.gone()
    background.gone()
    assert (main.waited, background.waited) == ([], [])


def test_who_is_cancelled_while_waiting_goes_and_the_next_one_moves_up(come: Callable[..., Visitor]) -> None:
    first, second = come(), come()
    assert second.waits.wait(WAIT_SECONDS)
    third = come()
    assert third.waits.wait(WAIT_SECONDS)
    second.cancel.cancel()
    second.gone()
    assert isinstance(second.fault, Cancelled)
    first.gone()
    assert third.inside.wait(WAIT_SECONDS)
    third.gone()


def test_nobody_waits_longer_than_the_limit(clock: HandClock, come: Callable[..., Visitor]) -> None:
    first, second = come(), come(limit_ms=5_000)
    assert second.waits.wait(WAIT_SECONDS)
    clock.wind(5_001)
    second.gone()
    assert isinstance(second.fault, GateTimeout)
    assert second.fault.code == "slot_busy"
    first.gone()


def test_a_fault_inside_gives_the_slot_back(clock: HandClock) -> None:
    gate = SlotGate(clock)
    limit = Deadline.after(clock, milliseconds=1_000)
    for _ in range(3):
        with (
            pytest.raises(RuntimeError),
            gate.held(0, cancel=CancelToken(), deadline=limit, on_wait=lambda _: None),
        ):
            raise RuntimeError


def test_who_holds_a_slot_may_pass_again_and_holds_it_until_the_outermost_end(clock: HandClock) -> None:
    """A changed server is tested by the very turn that noticed, on a server that may have one slot."""
    gate = SlotGate(clock)
    limit = Deadline.after(clock, milliseconds=1_000)

    def enter() -> AbstractContextManager[None]:
        return gate.held(0, cancel=CancelToken(), deadline=limit, on_wait=lambda _: None)

    with enter():
        with enter():
            pass
        other = Visitor(gate, 0, clock)
        assert other.waits.wait(WAIT_SECONDS)
        assert not other.inside.is_set()
    assert other.inside.wait(WAIT_SECONDS)
    other.gone()
