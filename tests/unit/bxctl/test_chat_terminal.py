"""Continued lines, and the file that remembers what was typed. Keys and modes: tests/process/."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxctl import chat_terminal
from bxctl.chat_terminal import HISTORY_ENTRIES, History


@pytest.mark.parametrize(
    ("line", "is_open"), [("", False), ("a", False), ("a\\", True), ("a\\\\", False), ("\\\\\\", True), ("\\a", False)]
)
def test_a_line_goes_on_after_an_odd_number_of_backslashes(line: str, is_open: bool) -> None:
    assert chat_terminal.ends_open(line) is is_open


class Complaints(list[str]):
    def __call__(self, words: str) -> None:
        self.append(words)


def history(folder: Path) -> tuple[History, Complaints]:
    complaints = Complaints()
    return History(folder / "history", complaints), complaints


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")).filter(str.strip), max_size=8))
def test_what_was_typed_comes_back_whole(tmp_path_factory: pytest.TempPathFactory, typed: list[str]) -> None:
    folder = tmp_path_factory.mktemp("history")
    first, complaints = history(folder)
    for text in typed:
        first.add(text)
    assert history(folder)[0].load() == typed
    assert complaints == []


def test_the_file_is_for_the_owners_eyes(tmp_path: Path) -> None:
    history(tmp_path)[0].add("hello")
    assert stat.S_IMODE((tmp_path / "history").stat().st_mode) == 0o600


def test_a_long_history_is_shortened_to_its_newest_entries(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("".join(f"{number}\n" for number in range(3 * HISTORY_ENTRIES)))
    newest = [str(number) for number in range(2 * HISTORY_ENTRIES, 3 * HISTORY_ENTRIES)]
    assert history(tmp_path)[0].load() == newest
    assert (tmp_path / "history").read_text().splitlines() == newest


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "history").symlink_to(tmp_path / "elsewhere")
    kept, complaints = history(tmp_path)
    kept.add("one")
    kept.add("two")
    assert not (tmp_path / "elsewhere").exists()
    assert len(complaints) == 1


def test_a_home_that_is_missing_is_told_once(tmp_path: Path) -> None:
    kept, complaints = history(tmp_path / "nowhere")
    assert kept.load() == []
    kept.add("one")
    kept.add("two")
    assert len(complaints) == 1
    assert "is not remembered" in complaints[0]


def test_a_folder_of_the_owners_own_is_made(tmp_path: Path) -> None:
    path = tmp_path / "state" / "boxmaker" / "history"
    History(path, pytest.fail, make_folder=True).add("one")
    assert path.read_text() == "one\n"
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_zeros_that_a_power_cut_left_hide_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "history").write_bytes(b"one\n" + bytes(64) + b"\ntwo\n" + bytes(64))
    kept, complaints = history(tmp_path)
    assert kept.load() == ["one", "two"]
    assert complaints == []


def test_a_pipe_in_its_place_is_told_once_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history")
    kept, complaints = history(tmp_path)
    assert kept.load() == []
    kept.add("one")
    assert complaints == [f"what you type is not remembered: {tmp_path / 'history'}: not a regular file"]


def test_bytes_that_are_no_text_do_not_hide_the_rest(tmp_path: Path) -> None:
    (tmp_path / "history").write_bytes(b"one\n\xff\xfe\nthree\n")
    assert history(tmp_path)[0].load() == ["one", "\ufffd\ufffd", "three"]
