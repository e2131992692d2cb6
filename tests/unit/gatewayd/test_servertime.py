"""The server's time is what its last answer said and what passed since, whatever the wall clock here says."""

import pytest

from gatewayd.servertime import ServerTime
from tests.fakes.clocks import BEGIN, HandClock

NOON, NOON_MS = "Mon, 30 Nov 2026 12:00:00 GMT", 1_796_040_000_000


def test_before_anything_was_said_it_is_ours() -> None:
    clock = HandClock()
    time = ServerTime(clock)
    time.answered(None)
    clock.wind(5_000)
    assert time.now() == BEGIN + 5_000


def test_it_goes_on_from_the_last_answer() -> None:
    clock = HandClock()
    time = ServerTime(clock)
    time.answered(NOON)
    clock.wind(1_500)
    assert time.now() == NOON_MS + 1_500
    time.answered("Mon, 30 Nov 2026 10:00:00 GMT")  # its clock was ahead, and was put right
    assert time.now() == NOON_MS - 7_200_000


def test_setting_the_wall_clock_changes_nothing() -> None:
    clock = HandClock()
    time = ServerTime(clock)
    time.answered(NOON)
    clock.set_wall(1_000_000_000)
    assert time.now() == NOON_MS


@pytest.mark.parametrize(
    "said",
    [
        "",
        "noon",
        "Mon, 30 Nov 2026 12:00:00 +0200",
        "Mon, 31 Feb 2026 12:00:00 GMT",
        "Mon, 30 Nov 0000 12:00:00 GMT",
        "Mon, 30 Nov 1969 12:00:00 GMT",
        "Mon, 30 Xyz 2026 12:00:00 GMT",
        "Mon, 30 Nov 2026 25:00:00 GMT",
        "1796040000",
    ],
)
def test_what_is_no_date_changes_nothing(said: str) -> None:
    clock = HandClock()
    time = ServerTime(clock)
    time.answered(NOON)
    time.answered(said)
    assert time.now() == NOON_MS
