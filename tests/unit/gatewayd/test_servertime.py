"""The server's time is what it dated last and what passed since, whatever the wall clock here says."""

from bxcore.timestamp import Timestamp
from gatewayd.servertime import ServerTime
from tests.fakes.clocks import BEGIN, HandClock


def test_before_anything_was_seen_it_is_1970() -> None:
    clock = HandClock()
    time = ServerTime(clock)
    clock.wind(5_000)
    assert time.now() == 0


def test_it_goes_on_from_the_newest_time_that_was_seen() -> None:
    clock = HandClock()
    time = ServerTime(clock)
    time.seen(Timestamp(BEGIN - 90_000))
    clock.wind(1_000)
    assert time.now() == BEGIN - 89_000
    time.seen(Timestamp(BEGIN - 89_500))  # came late: no reason to go back
    assert time.now() == BEGIN - 89_000
    time.seen(Timestamp(BEGIN))
    assert time.now() == BEGIN


def test_setting_the_wall_clock_changes_nothing() -> None:
    clock = HandClock()
    time = ServerTime(clock)
    time.seen(BEGIN)
    clock.set_wall(1_000_000_000)
    assert time.now() == BEGIN
