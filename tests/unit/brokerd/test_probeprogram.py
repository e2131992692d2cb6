"""What the probe concludes inside a container: a busy machine never looks like a limit, whatever was seen."""

import threading
from collections.abc import Callable

import pytest

from brokerd import probeprogram
from brokerd.probeprogram import Look

QUIET_THROTTLED = Look(wall_s=0.4, used_s=0.04, idle_s=0.7)
QUIET_FREE = Look(wall_s=0.4, used_s=0.4, idle_s=0.4)
BUSY_SLOW = Look(wall_s=0.4, used_s=0.03, idle_s=0.0)
BUSY_FREE = Look(wall_s=0.4, used_s=0.15, idle_s=0.0)


@pytest.mark.parametrize(
    ("looks", "held"),
    [
        ([QUIET_THROTTLED], True),
        ([QUIET_FREE], False),
        ([BUSY_FREE], False),
        ([BUSY_SLOW] * 8, False),  # it may be throttled, it may only be crowded out: not proved
        ([BUSY_SLOW, BUSY_SLOW, QUIET_THROTTLED], True),
        ([BUSY_SLOW, QUIET_FREE], False),
        ([], False),
    ],
)
def test_little_processor_time_is_a_limit_only_beside_an_idle_processor(looks: list[Look], *, held: bool) -> None:
    assert probeprogram.cpu_held(looks, 10) is held


def test_a_look_sees_this_machine() -> None:
    look = next(probeprogram._looks())
    assert look.wall_s > 0
    assert look.used_s > 0
    assert look.idle_s >= 0


def upto(most: int) -> Callable[[int], None]:
    def take(amount: int) -> None:
        if amount > most:
            raise MemoryError

    return take


@pytest.mark.parametrize(("given", "held"), [(0, False), (50, True), (99, True), (100, False)])
def test_a_refusal_is_a_limit_only_where_less_is_given(given: int, *, held: bool) -> None:
    assert probeprogram.only_too_much_refused(upto(given), 100) is held


@pytest.mark.parametrize(("room", "held"), [(0, False), (3, False), (15, True), (16, False)])
def test_threads_that_cannot_be_started_are_a_limit_only_after_most_of_them(
    monkeypatch: pytest.MonkeyPatch, room: int, *, held: bool
) -> None:
    started: list[object] = []

    class Thread:
        def __init__(self, target: object) -> None:
            self.target = target

        def start(self) -> None:
            if len(started) >= room:
                raise RuntimeError("can't start new thread")
            started.append(self)

    monkeypatch.setattr(threading, "Thread", Thread)
    assert probeprogram._processes_held(16) is held
