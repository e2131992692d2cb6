"""edit_file: exactly one place, exactly these bytes; everything around stays as it was."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.toolkit import orders
from toolkit import editfile
from toolkit.order import ToolError


def edit(path: Path, old: str, new: str) -> orders.Ended:
    return orders.run("edit_file", {"path": str(path), "old_text": old, "new_text": new}, path.parent)


def test_one_place_is_replaced_and_both_hashes_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one\ntwo\nthree\n")
    path.chmod(0o640)
    before, after = (hashlib.sha256(text).hexdigest() for text in (b"one\ntwo\nthree\n", b"one\nzwei\nthree\n"))
    ended = edit(path, "two", "zwei")
    assert ended.code == 0
    assert ended.lines == [
        "replaced on line 2",
        f"before: 14 bytes, sha256 {before}",
        f"now: 15 bytes, sha256 {after}",
    ]
    assert path.read_text() == "one\nzwei\nthree\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


REFUSED = {
    "not there": ("abc", "x", "old_text does not occur in the file"),
    "twice": ("abcabc", "abc", "old_text occurs 2 times"),
    "twice and overlapping": ("aaa", "aa", "old_text occurs 2 times"),
    "very often": ("x" * 500, "x", "old_text occurs 100 times or more"),
    "in another case": ("abc", "ABC", "does not occur"),
    "in another normal form": ("é", "e\u0301", "does not occur"),
    "a pattern": ("abc", ".", "does not occur"),
    "no change": ("abc", "new", "are the same"),
    "an empty file": ("", "x", "does not occur"),
}


@pytest.mark.parametrize(("content", "old", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_there_exactly_once_is_refused(tmp_path: Path, content: str, old: str, says: str) -> None:
    (tmp_path / "file").write_text(content)
    ended = edit(tmp_path / "file", old, "new")
    assert ended.code == 1
    assert ended.text.startswith("error: old_text ")
    assert says in ended.text
    assert (tmp_path / "file").read_text() == content


def test_an_absent_file_is_refused_and_not_made(tmp_path: Path) -> None:
    ended = edit(tmp_path / "file", "a", "b")
    assert (ended.code, ended.text) == (1, "error: no such file")
    assert list(tmp_path.iterdir()) == []


def test_p2_a_link_is_not_edited(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("abc")
    room = tmp_path / "room"
    room.mkdir()
    (room / "link").symlink_to("../secret")
    assert edit(room / "link", "abc", "x").code == 1
    assert (tmp_path / "secret").read_text() == "abc"


def test_p8_a_pipe_is_not_edited_and_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert edit(tmp_path / "pipe", "abc", "x").text == "error: that is a pipe, not a file"


def test_m9_binary_and_huge_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"abc\0")
    assert edit(tmp_path / "binary", "abc", "x").text == "error: that is no text file"
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    assert "longer than" in edit(tmp_path / "sparse", "abc", "x").text


LINE_ENDS = {
    "CRLF": (b"one\r\ntwo\r\nthree\r\n", "one\ntwo\n", "1\n2\n", b"1\r\n2\r\nthree\r\n"),
    "CRLF written out": (b"one\r\ntwo\r\n", "one\r\ntwo", "1\r\n2", b"1\r\n2\r\n"),
    "LF": (b"one\ntwo\n", "one\n", "1\n", b"1\ntwo\n"),
    "LF with a new CRLF": (b"one\ntwo\n", "one\n", "1\r\n", b"1\r\ntwo\n"),
    "mixed, as it is": (b"one\r\ntwo\n", "two\n", "2\n", b"one\r\n2\n"),
    "no end at the end": (b"one\r\ntwo", "two", "2\n3", b"one\r\n2\r\n3"),
    "bytes that are no UTF-8 stay": (b"\xff\xfeone\n", "one", "1", b"\xff\xfe1\n"),
    "a byte-order mark stays": (b"\xef\xbb\xbfone\n", "one", "1", b"\xef\xbb\xbf1\n"),
    "taken out": (b"one\ntwo\n", "one\n", "", b"two\n"),
}


@pytest.mark.parametrize(("before", "old", "new", "after"), LINE_ENDS.values(), ids=LINE_ENDS.keys())
def test_line_ends_are_kept(before: bytes, old: str, new: str, after: bytes) -> None:
    assert editfile.edited(before, old, new)[0] == after


TEXTS = st.text(alphabet="ab\n", max_size=12)


@given(TEXTS, st.text(alphabet="ab\n", min_size=1, max_size=4), TEXTS)
def test_an_edit_is_the_one_replacement_or_none(text: str, old: str, new: str) -> None:
    places = [at for at in range(len(text)) if text.startswith(old, at)]
    if len(places) == 1:
        after, line = editfile.edited(text.encode(), old, new)
        assert after.decode() == text[: places[0]] + new + text[places[0] + len(old) :]
        assert line == text[: places[0]].count("\n") + 1
    else:
        with pytest.raises(ToolError):
            editfile.edited(text.encode(), old, new)
