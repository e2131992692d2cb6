"""When all began and how far was read is kept by the server's clock, also where that is far from ours or put back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.files import StateUnreadable
from bxcore.timestamp import Timestamp
from gatewayd.queuetimes import SKEW_MS
from gatewayd.store import KEPT_MS, Store
from tests.fakes.clocks import BEGIN, HandClock
from tests.fakes.queued import DIRECT, TOWN

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    opened = Store.open(tmp_path, clock)
    yield opened
    opened.close()


def at(clock: HandClock, ahead_ms: int) -> Timestamp:
    return Timestamp(clock.now_ms() + ahead_ms)


@pytest.mark.parametrize("ahead_ms", [-2 * HOUR_MS, 0, 2 * HOUR_MS])
def test_it_began_as_long_ago_at_the_server_as_here(store: Store, clock: HandClock, ahead_ms: int) -> None:
    assert store.began() == BEGIN
    clock.wind(5_000)
    store.server_time(at(clock, ahead_ms))
    assert store.began() == BEGIN + ahead_ms


def test_once_it_is_known_neither_clock_moves_it(store: Store, clock: HandClock) -> None:
    store.server_time(at(clock, -HOUR_MS))
    clock.wind(7_000)
    store.server_time(at(clock, HOUR_MS))
    store.server_time(Timestamp(BEGIN - HOUR_MS - SKEW_MS))
    clock.set_wall(9 * HOUR_MS)
    store.server_time(Timestamp(BEGIN))
    assert store.began() == BEGIN - HOUR_MS


def test_a_beginning_that_lies_ahead_is_found_again(store: Store, clock: HandClock) -> None:
    store.server_time(at(clock, 2 * HOUR_MS))
    clock.wind(60_000)
    store.server_time(at(clock, 0))
    assert store.began() == BEGIN


def test_it_is_never_later_than_now_whatever_our_clock_did(store: Store, clock: HandClock) -> None:
    now = Timestamp(BEGIN + HOUR_MS)
    clock.set_wall(-9 * HOUR_MS)
    store.server_time(now)
    assert store.began() == now


def test_a_mark_that_lies_ahead_of_the_server_is_set_back_and_no_other(store: Store, clock: HandClock) -> None:
    now = at(clock, 0)
    store.take((), {DIRECT: Timestamp(now + SKEW_MS + 1), TOWN: Timestamp(now + SKEW_MS)})
    store.server_time(now)
    assert store.marks() == {DIRECT: now - KEPT_MS, TOWN: now + SKEW_MS}


def test_a_server_of_1970_has_no_times_before_it(store: Store, clock: HandClock) -> None:
    store.take((), {DIRECT: BEGIN})
    store.server_time(Timestamp(0))
    assert (store.began(), store.marks()) == (0, {DIRECT: 0})


@pytest.mark.parametrize("name", ["opened", "began"])
@pytest.mark.parametrize("value", ["soon", "", "-1", "1.5", "9" * 40])
def test_a_beginning_that_is_no_time_ends_the_start(tmp_path: Path, clock: HandClock, name: str, value: str) -> None:
    store = Store.open(tmp_path, clock)
    with store._file.writing() as database:
        database.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, value))
    store.close()
    with pytest.raises(StateUnreadable, match="damaged"):
        Store.open(tmp_path, clock)
