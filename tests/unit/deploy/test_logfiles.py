"""The logs of the last starts are kept, and shown without harm."""

import os
from pathlib import Path

import pytest

from deploy.local import logfiles


def start(path: Path, text: str) -> None:
    with logfiles.begin(path) as log:
        log.write(text.encode())


def test_the_last_five_starts_are_kept(tmp_path: Path) -> None:
    for number in range(8):
        start(tmp_path / "a.log", f"start {number}")
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {
        "a.log": "start 7",
        "a.log.1": "start 6",
        "a.log.2": "start 5",
        "a.log.3": "start 4",
        "a.log.4": "start 3",
    }


def test_a_gap_in_the_numbers_is_no_obstacle(tmp_path: Path) -> None:
    for number in range(4):
        start(tmp_path / "a.log", f"start {number}")
    (tmp_path / "a.log.2").unlink()
    start(tmp_path / "a.log", "start 4")
    assert (tmp_path / "a.log.1").read_text() == "start 3"


def test_the_last_lines_are_shown(tmp_path: Path) -> None:
    start(tmp_path / "a.log", "".join(f"{number}\n" for number in range(100_000)))
    assert logfiles.last_lines(tmp_path / "a.log", 2) == ["99998", "99999"]


def test_a_log_cannot_drive_the_terminal(tmp_path: Path) -> None:
    start(tmp_path / "a.log", "\x1b[2Jx\r\x07\n")
    assert all(line.isprintable() for line in logfiles.last_lines(tmp_path / "a.log", 5))


def test_no_log_has_no_lines(tmp_path: Path) -> None:
    assert logfiles.last_lines(tmp_path / "a.log", 5) == []


def test_a_capped_log_holds_what_was_written_once_that_is_at_its_end(tmp_path: Path) -> None:
    capped = logfiles.Capped(tmp_path / "a.log")
    with capped.output as output:
        output.write(b"one\ntwo\n")
    capped.finish()
    assert (tmp_path / "a.log").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("beyond", [1, 5_000_000])
def test_a_capped_log_says_that_it_was_cut_and_nobody_waits(tmp_path: Path, beyond: int) -> None:
    capped = logfiles.Capped(tmp_path / "a.log", most=100_000)
    with capped.output as output:
        output.write(b"x" * (100_000 + beyond))
    capped.finish()
    kept = (tmp_path / "a.log").read_bytes()
    assert kept.startswith(b"x" * 100_000 + b"\n")
    assert kept.count(b"x") == 100_000
    assert logfiles.last_lines(tmp_path / "a.log", 1) == ["... the rest is not kept: this log has reached its size"]


def test_a_capped_log_that_is_just_full_is_not_cut(tmp_path: Path) -> None:
    capped = logfiles.Capped(tmp_path / "a.log", most=5)
    with capped.output as output:
        output.write(b"12345")
    capped.finish()
    assert (tmp_path / "a.log").read_bytes() == b"12345"


def test_a_capped_log_that_was_full_says_so_with_the_next_line(tmp_path: Path) -> None:
    capped = logfiles.Capped(tmp_path / "a.log", most=5)
    with capped.output as output:
        output.write(b"12345")
        output.flush()
        until_it_has = (tmp_path / "a.log").stat
        while until_it_has().st_size < 5:
            pass
        output.write(b"6")
    capped.finish()
    assert b"12345\n... the rest is not kept" in (tmp_path / "a.log").read_bytes()


def test_a_full_disk_does_not_stop_the_process(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as output:
        output.write(b"x" * 1_000)
    log = (tmp_path / "full").open("wb", buffering=0)
    logfiles._copy(os.fdopen(reading, "rb", buffering=0), log, 1_000)
    assert log.closed
