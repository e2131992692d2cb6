import time

import pytest

from bxcore.deadline import Deadline, SystemClock
from bxcore.timestamp import Timestamp


class HandClock:
    """A clock that goes where it is set. The wall and the monotonic one are moved apart."""

    def __init__(self) -> None:
        self.wall = 1_000_000
        self.steady = 500

    def now_ms(self) -> Timestamp:
        return Timestamp(self.wall)

    def monotonic_ms(self) -> int:
        return self.steady


def test_a_deadline_counts_down_and_stops_at_zero() -> None:
    clock = HandClock()
    deadline = Deadline.after(clock, milliseconds=100)
    assert (deadline.remaining_ms(), deadline.passed()) == (100, False)
    clock.steady += 99
    assert (deadline.remaining_ms(), deadline.passed()) == (1, False)
    clock.steady += 1
    assert (deadline.remaining_ms(), deadline.passed()) == (0, True)
    clock.steady += 1000
    assert (deadline.remaining_ms(), deadline.passed()) == (0, True)


@pytest.mark.parametrize("jump_ms", [-86_400_000, 31_536_000_000])
def test_setting_the_wall_clock_moves_no_deadline(jump_ms: int) -> None:
    clock = HandClock()
    deadline = Deadline.after(clock, milliseconds=100)
    clock.wall += jump_ms
    assert deadline.remaining_ms() == 100


@pytest.mark.parametrize("milliseconds", [0, -5])
def test_no_time_at_all_has_passed_already(milliseconds: int) -> None:
    assert Deadline.after(HandClock(), milliseconds=milliseconds).passed()


def test_a_nested_call_cannot_outlive_its_request() -> None:
    clock = HandClock()
    outer = Deadline.after(clock, milliseconds=100)
    assert outer.sooner(milliseconds=1000).remaining_ms() == 100
    assert outer.sooner(milliseconds=10).remaining_ms() == 10
    clock.steady += 95
    assert outer.sooner(milliseconds=10).remaining_ms() == 5


def test_a_deadline_cannot_be_moved() -> None:
    deadline = Deadline.after(HandClock(), milliseconds=1)
    with pytest.raises(AttributeError):
        deadline.at_ms = 5  # type: ignore[misc]  # the point of the test


def test_the_system_clock_tells_unix_milliseconds_and_goes_forward() -> None:
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 60_000
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first
