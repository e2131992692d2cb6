"""The logs of the last starts are kept, and shown without harm."""

from pathlib import Path

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
