"""The clock of grants goes forward only, across restarts and whatever is done to the machine's clock."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd.expiryclock import ExpiryClock
from bxcore.deadline import Deadline
from bxcore.files import DiskFiles, Files, StateUnreadable, StateUnwritable
from bxcore.timestamp import MAX_TIMESTAMP
from tests.fakes.clocks import BEGIN, HandClock
from tests.fakes.faulty_files import Fault, FaultyFiles

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS


def clock_on(directory: Path, wall: HandClock, files: Files | None = None) -> ExpiryClock:
    return ExpiryClock(directory / "clock", files or DiskFiles(), wall)


def test_it_tells_the_time(tmp_path: Path) -> None:
    wall = HandClock()
    clock = clock_on(tmp_path, wall)
    assert clock.now_ms() == BEGIN
    wall.wind(1234)
    assert clock.now_ms() == BEGIN + 1234


def test_g3_a_clock_set_back_a_day_revives_nothing(tmp_path: Path) -> None:
    wall = HandClock()
    clock = clock_on(tmp_path, wall)
    wall.wind(5_000)
    reached = clock.now_ms()
    wall.set_wall(-DAY_MS)
    assert clock.now_ms() == reached
    assert clock_on(tmp_path, wall).now_ms() == reached  # a restart forgets nothing
    wall.wind(1_000)
    assert clock.now_ms() == reached
    wall.wind(DAY_MS)
    assert clock.now_ms() == reached + 1_000


def test_g3_what_expired_while_the_clock_was_a_year_ahead_stays_expired(tmp_path: Path) -> None:
    wall = HandClock()
    clock = clock_on(tmp_path, wall)
    wall.set_wall(YEAR_MS)
    assert clock.now_ms() == BEGIN + YEAR_MS
    wall.set_wall(-YEAR_MS)
    assert clock.now_ms() == BEGIN + YEAR_MS
    assert clock_on(tmp_path, wall).now_ms() == BEGIN + YEAR_MS


def test_g3_an_open_question_does_not_run_on_this_clock(tmp_path: Path) -> None:
    wall = HandClock()
    clock = clock_on(tmp_path, wall)
    closing = Deadline.after(wall, milliseconds=60_000)
    wall.set_wall(YEAR_MS)
    assert clock.now_ms() == BEGIN + YEAR_MS
    assert closing.remaining_ms() == 60_000
    wall.set_wall(-2 * YEAR_MS)
    wall.wind(60_000)
    assert closing.passed()


def test_the_file_is_written_at_the_start_and_then_once_a_second(tmp_path: Path) -> None:
    wall, files = HandClock(), FaultyFiles(None)
    clock = clock_on(tmp_path, wall, files)
    assert files.calls["rename"] == 1
    for _ in range(40):
        wall.wind(100)
        clock.now_ms()
    assert files.calls["rename"] == 5
    wall.set_wall(-DAY_MS)
    clock.now_ms()
    assert files.calls["rename"] == 5
    assert (tmp_path / "clock").read_bytes() == b'{"v":1,"latest":"2026-01-01T00:00:04.000Z"}\n'


def test_after_a_crash_at_most_a_second_is_missing(tmp_path: Path) -> None:
    wall = HandClock()
    clock = clock_on(tmp_path, wall)
    for step in (999, 1, 500, 700, 999):
        wall.wind(step)
        reached = clock.now_ms()
        far_back = HandClock()
        far_back.set_wall(-DAY_MS)
        (tmp_path / "next").mkdir(exist_ok=True)
        holding((tmp_path / "clock").read_bytes())(tmp_path / "next" / "clock")
        assert reached - 1_000 < clock_on(tmp_path / "next", far_back).now_ms() <= reached


def test_a_time_that_cannot_be_kept_is_an_error_until_it_can(tmp_path: Path) -> None:
    wall, files = HandClock(), FaultyFiles(None)
    clock = clock_on(tmp_path, wall, files)
    wall.wind(DAY_MS)
    files.system.fault = Fault(call="rename", at=1, lasting=True)
    for _ in range(3):
        with pytest.raises(StateUnwritable):
            clock.now_ms()
    wall.set_wall(-DAY_MS)
    with pytest.raises(StateUnwritable):
        clock.now_ms()
    files.system.fault = None
    assert clock.now_ms() == BEGIN + DAY_MS
    assert clock_on(tmp_path, wall).now_ms() == BEGIN + DAY_MS


def test_it_does_not_start_where_it_cannot_keep_the_time(tmp_path: Path) -> None:
    with pytest.raises(StateUnwritable):
        clock_on(tmp_path, HandClock(), FaultyFiles(Fault(call="fsync")))


GOOD = b'{"v":1,"latest":"2026-01-01T00:00:00.000Z"}\n'


def a_link(file: Path) -> None:
    file.with_name("elsewhere").write_bytes(GOOD)
    file.symlink_to(file.with_name("elsewhere"))


def holding(content: bytes, mode: int = 0o600) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        file.write_bytes(content)
        file.chmod(mode)

    return make


BAD: dict[str, Callable[[Path], None]] = {
    "empty": holding(b""),
    "cut short": holding(GOOD[:-4]),
    "zeros": holding(b"\0" * 44),
    "another version": holding(GOOD.replace(b"1,", b"2,")),
    "an unknown key": holding(GOOD.replace(b"1,", b'1,"w":2,')),
    "no time": holding(GOOD.replace(b"01-01", b"02-30")),
    "a number": holding(b'{"v":1,"latest":5}'),
    "others may write it": holding(GOOD, 0o666),
    "a link": a_link,
    "a pipe": os.mkfifo,
    "a directory": lambda file: file.mkdir(),
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD.keys())
def test_s11_a_file_that_cannot_be_read_with_certainty_stops_the_start(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "clock")
    before = (tmp_path / "clock").lstat()
    with pytest.raises(StateUnreadable, match="/clock: "):
        clock_on(tmp_path, HandClock())
    assert (tmp_path / "clock").lstat() == before


def test_a_clock_beyond_all_calendars_stays_in_the_last_of_them(tmp_path: Path) -> None:
    wall = HandClock()
    wall.set_wall(10 * MAX_TIMESTAMP)
    assert clock_on(tmp_path, wall).now_ms() == MAX_TIMESTAMP


def test_no_thread_sees_it_go_back(tmp_path: Path) -> None:
    wall = HandClock()
    clock = clock_on(tmp_path, wall, FaultyFiles(None))
    backward: list[int] = []

    def look() -> None:
        last = 0
        for _ in range(1_000):
            now = clock.now_ms()
            if now < last:
                backward.append(now)
            last = now

    def push() -> None:
        for step in range(1_000):
            wall.set_wall(700 if step % 2 else -500)

    threads = [threading.Thread(target=it) for it in (look, look, push, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert backward == []
