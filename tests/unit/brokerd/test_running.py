"""As many calls run as may; the next one waits, and gives up in time."""

import threading

from brokerd.running import Running
from bxcore.deadline import SystemClock
from tests.fakes.clocks import HandClock


def no() -> bool:
    return False


def test_places_are_counted_and_given_back() -> None:
    running = Running(2, SystemClock(), room_ms=0)
    with running.place(given_up=no) as one, running.place(given_up=no) as two, running.place(given_up=no) as three:
        assert (one, two, three) == (True, True, False)
        assert running.count == 2
    assert running.count == 0


def test_a_place_is_given_back_after_a_fault() -> None:
    running = Running(1, SystemClock(), room_ms=0)
    try:
        with running.place(given_up=no):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert running.count == 0


def test_who_waits_gets_the_place_that_becomes_free() -> None:
    running = Running(1, SystemClock(), room_ms=600_000)
    got, waiting = list[bool](), threading.Event()

    def given_up() -> bool:
        waiting.set()
        return False

    def wait() -> None:
        with running.place(given_up=given_up) as placed:
            got.append(placed)

    with running.place(given_up=no):
        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(60)
    thread.join(60)
    assert got == [True]


def test_whoever_has_left_waits_for_nothing() -> None:
    running = Running(1, HandClock(), room_ms=600_000)
    with running.place(given_up=no), running.place(given_up=lambda: True) as placed:
        assert placed is False


def test_the_wait_has_an_end() -> None:
    running = Running(1, HandClock(tick_ms=100), room_ms=300)
    with running.place(given_up=no), running.place(given_up=no) as placed:
        assert placed is False
