"""list_directory: every name, sorted, with nothing in it that could be taken for another line."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.tools import ListDirectory
from tests.unit.toolkit import orders
from toolkit import listdirectory

HEAD = "type, size in bytes, last change in UTC, name]"


def listed(path: Path) -> list[str]:
    ended = orders.run("list_directory", {"path": str(path)}, path)
    assert ended.code == 0
    return ended.lines


def listed_here(path: Path) -> list[str]:
    place = orders.place(path)
    try:
        return listdirectory.run(ListDirectory(path=str(path)), place).split("\n")
    finally:
        os.close(place.roots[0].fd)


def test_what_there_is_is_listed_by_name(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("four")
    (tmp_path / "B").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / ".hidden").touch()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
    for path in tmp_path.iterdir():
        os.utime(path, (0, 86_400))
    assert listed(tmp_path) == [
        f"[6 entries; {HEAD}",
        "file 0 1970-01-02T00:00:00Z .hidden",
        "file 0 1970-01-02T00:00:00Z B",
        "directory - 1970-01-02T00:00:00Z a",
        "file 4 1970-01-02T00:00:00Z b",
        "pipe - 1970-01-02T00:00:00Z pipe",
        "socket - 1970-01-02T00:00:00Z sock",
    ]


def test_an_empty_directory_is_empty(tmp_path: Path) -> None:
    assert listed(tmp_path) == [f"[0 entries; {HEAD}"]


def test_p2_a_link_is_shown_as_one_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "hidden").touch()
    for name, target in {"absolute": "/etc/passwd", "folder": "../secret", "dangling": "no\nwhere"}.items():
        (tmp_path / "room" / name).symlink_to(target)
    rows = listed(tmp_path / "room")[1:]
    assert [row.partition("Z ")[2] for row in rows] == [
        "absolute -> /etc/passwd",
        "dangling -> no\\u{a}where",
        "folder -> ../secret",
    ]
    assert all(row.startswith("link - ") for row in rows)
    (tmp_path / "room" / "sub").symlink_to("../secret")
    ended = orders.run("list_directory", {"path": f"{tmp_path}/room/sub"}, tmp_path / "room")
    assert ended.code == 1
    assert "hidden" not in ended.text


NAMES = {
    "P6 a newline": (b"a\nfile 9 2020-01-01T00:00:00Z forged", "a\\u{a}file 9 2020-01-01T00:00:00Z forged"),
    "P6 a right-to-left override": ("gpj.\u202eexe".encode(), "gpj.\\u{202e}exe"),
    "P6 a tab": (b"a\tb", "a\\u{9}b"),
    "P6 a space at the end": (b"a ", "a "),
    "an escape": (b"\x1b[31mred", "\\u{1b}[31mred"),
    "zero width": ("a\u200bb".encode(), "a\\u{200b}b"),
    "a tag": ("a\U000e0041b".encode(), "a\\u{e0041}b"),
    "bytes that are no UTF-8": (b"caf\xe9", "caf\\udce9"),
    "P7 composed": ("é".encode(), "é"),
    "P7 full width": ("a／b".encode(), "a／b"),
    "P9 an option": (b"-rf", "-rf"),
}


@pytest.mark.parametrize(("name", "shown"), NAMES.values(), ids=NAMES.keys())
def test_a_name_shows_everything_that_is_in_it(tmp_path: Path, name: bytes, shown: str) -> None:
    with open(os.fsencode(tmp_path) + b"/" + name, "wb"):  # noqa: PTH123 - a name that is no text
        pass
    rows = listed(tmp_path)
    assert len(rows) == 2
    assert rows[1].partition("Z ")[2] == shown


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: a hundred thousand files take their time on a disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def test_s6_a_hundred_thousand_files_are_counted_and_cut(quick_path: Path) -> None:
    for number in range(100_000):
        os.close(os.open(quick_path / f"file-{number:06}", os.O_CREAT | os.O_WRONLY))
    rows = listed(quick_path)
    assert rows[0] == f"[100000 entries; {HEAD}"
    assert rows[1].endswith("file-000000")
    shown = len(rows) - 2
    assert rows[shown].endswith(f"file-{shown - 1:06}")
    assert rows[-1] == f"[cut here: {100_000 - shown} entries are not shown]"
    assert len("\n".join(rows)) <= 16_000


def test_long_names_are_cut_by_length(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}{'é' * 120}").touch()
    rows = listed(tmp_path)
    assert len("\n".join(rows)) <= 16_000
    assert rows[-1] == f"[cut here: {300 - len(rows) + 2} entries are not shown]"


def test_a_directory_without_end_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listdirectory, "MOST_NAMES", 10)
    for number in range(20):
        (tmp_path / str(number)).touch()
    rows = listed_here(tmp_path)
    assert rows[0].startswith("[more than 10 entries; ")
    assert len(rows) == 12
    assert rows[-1].startswith("[cut here: more than 0 entries")


def test_a_name_that_goes_away_meanwhile_is_said_to_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    real = listdirectory._names

    def then_gone(directory: int) -> tuple[list[str], bool]:
        found = real(directory)
        (tmp_path / "a").unlink()
        return found

    monkeypatch.setattr(listdirectory, "_names", then_gone)
    assert listed_here(tmp_path)[1] == "gone - - a"


def test_a_time_that_no_calendar_has_is_left_open() -> None:
    assert listdirectory._moment(1e18) == "-"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = orders.run("list_directory", {"path": f"{tmp_path}/file"}, tmp_path)
    assert (ended.code, ended.text) == (1, "error: not a directory")
