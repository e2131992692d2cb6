"""read_file: a window of lines with its place in the whole; never more than was there, never anything but text."""

import hashlib
import os
import socket
import threading
from pathlib import Path

import pytest

from bxcore.tools import ReadFile
from tests.unit.toolkit import orders
from toolkit import readfile, textfile
from toolkit.order import ToolError


def read(path: Path, **window: int) -> orders.Ended:
    return orders.run("read_file", {"path": str(path), **window}, path)


def read_here(path: Path, **window: int) -> str:
    """Read in this process, for what would take long in many."""
    place = orders.place(path)
    try:
        return readfile.run(ReadFile(path=str(path), **window), place)
    finally:
        os.close(place.roots[0].fd)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(f"line {number}\n" for number in range(1, 101)))
    return path


def test_a_file_is_shown_whole_with_its_lines_and_its_size(text: Path) -> None:
    lines = read(text).lines
    assert lines[0] == "[100 lines, 792 bytes]"
    assert lines[1:] == [f"line {number}" for number in range(1, 101)]


def test_a_window_says_where_it_lies(text: Path) -> None:
    assert read(text, start_line=10, max_lines=2).lines == [
        "[lines 10-11 of 100 lines, 792 bytes]",
        "line 10",
        "line 11",
    ]
    assert read_here(text, start_line=100).split("\n") == ["[lines 100-100 of 100 lines, 792 bytes]", "line 100"]


def test_every_window_shows_the_lines_that_it_names(text: Path) -> None:
    for first in range(1, 101):
        assert read_here(text, start_line=first, max_lines=1).split("\n")[1] == f"line {first}"


def test_lines_far_behind_are_found(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("".join(f"line {number}\n" for number in range(1, 400_001)))
    for first in (1, 2, 131_072, 262_143, 399_999, 400_000):
        assert f"line {first}" == read_here(path, start_line=first, max_lines=1).split("\n")[1]


def test_a_line_beyond_the_end_is_an_error_that_says_how_many_there_are(text: Path) -> None:
    ended = read(text, start_line=101)
    assert (ended.code, ended.text) == (1, "error: there is no line 101; the file has 100 lines")


ODD = {
    "empty": (b"", ["[0 lines, 0 bytes]"]),
    "no newline at the end": (b"a\nb", ["[2 lines, 3 bytes]", "a", "b"]),
    "a newline alone": (b"\n", ["[1 line, 1 bytes]", ""]),
    "CRLF": (b"a\r\nb\r\n", ["[2 lines, 6 bytes, CRLF line ends]", "a", "b"]),
    "CRLF and not": (b"a\r\nb\n", ["[2 lines, 5 bytes, some CRLF line ends]", "a", "b"]),
    "other line ends are characters": ("a\u2028b\x0cc\n".encode(), ["[1 line, 8 bytes]", "a\u2028b\x0cc"]),
    "bytes that are no UTF-8": (b"caf\xe9 and more of it\n", ["[1 line, 20 bytes]", "caf\\udce9 and more of it"]),
    "a byte-order mark": (b"\xef\xbb\xbfa\n", ["[1 line, 5 bytes]", "\ufeffa"]),
}


@pytest.mark.parametrize(("content", "lines"), ODD.values(), ids=ODD.keys())
def test_odd_texts(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    (tmp_path / "odd").write_bytes(content)
    assert read(tmp_path / "odd").lines == lines


# -- M9: what is too much -----------------------------------------------------------------------


def test_m9_five_megabytes_are_cut_with_the_line_to_go_on_from(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_text("".join(f"line {number} {'x' * 40}\n" for number in range(1, 100_001)))
    ended = read(path, max_lines=10_000)
    assert len(ended.text) <= 16_000
    last = ended.lines[-1]
    assert last.startswith("[cut here: go on with start_line ")
    following = int(last.removesuffix("]").split()[-1])
    assert ended.lines[0].startswith(f"[lines 1-{following - 1} of 100000 lines, ")
    assert ended.lines[-2] == f"line {following - 1} {'x' * 40}"
    assert read(path, start_line=following, max_lines=1).lines[1].startswith(f"line {following} ")


def test_m9_more_lines_than_were_asked_for_by_default_are_said(tmp_path: Path) -> None:
    (tmp_path / "many").write_text("x\n" * 100_000)
    lines = read(tmp_path / "many").lines
    assert lines[0] == "[lines 1-500 of 100000 lines, 200000 bytes]"
    assert lines[-1] == "[cut here: go on with start_line 501]"


def test_m9_one_line_of_a_megabyte_is_cut_inside(tmp_path: Path) -> None:
    (tmp_path / "line").write_text("é" * 500_000 + "\nend\n")
    assert read(tmp_path / "line").lines == [
        "[2 lines, 1000005 bytes]",
        "é" * 2000 + "[... a line of 1000000 bytes]",
        "end",
    ]


def test_m9_a_long_line_of_bytes_that_are_no_text_still_fits(tmp_path: Path) -> None:
    (tmp_path / "line").write_bytes(b"a" * 65_536 + b"\n" + b"\xff" * 100_000 + b"\n")
    ended = read(tmp_path / "line", start_line=2)
    assert len(ended.text) <= 16_000
    assert "[... a line of 100000 bytes]" in ended.text


def test_m9_a_binary_file_is_described(tmp_path: Path) -> None:
    content = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10
    (tmp_path / "image").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    assert read(tmp_path / "image").text == f"[no text file: a PNG image, {len(content)} bytes, sha256 {digest}]"


def test_m9_random_bytes_are_no_text_even_without_a_zero(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(bytes(range(1, 256)) * 40)
    assert read(tmp_path / "noise").text.startswith("[no text file: binary data, 10200 bytes, sha256 ")


# -- P8 and S6: what only looks like a file, and files that do not end -----------------------------


def test_p8_a_sparse_file_of_a_terabyte_is_described_from_its_beginning(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    assert read(tmp_path / "sparse").text == (
        "[no text file: binary data, 1099511627776 bytes, too large for a hash (over 33554432 bytes)]"
    )


def test_p8_a_text_beyond_the_limit_is_read_up_to_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile.read, "__kwdefaults__", {"most": 10})
    monkeypatch.setattr(textfile, "MOST_BYTES", 10)
    (tmp_path / "text").write_text("abc\n" * 10)
    assert read_here(tmp_path / "text").split("\n") == [
        "[more than 3 lines, 40 bytes]",
        "abc",
        "abc",
        "ab",
        "[cut here: only the first 10 bytes of a file are read]",
    ]


@pytest.mark.parametrize("kind", ["a directory", "a pipe", "a socket", "a device"])
def test_p8_what_is_no_file_is_named_and_holds_nobody(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd"
    match kind:
        case "a directory":
            path.mkdir()
        case "a pipe":
            os.mkfifo(path)
        case "a socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(path))
        case _:
            path = Path("/dev/null")
    ended = orders.run("read_file", {"path": str(path)}, path.parent if kind != "a device" else path)
    expected = "no such device or address" if kind == "a socket" else f"that is {kind}, not a file"
    assert (ended.code, ended.text) == (1, f"error: {expected}")


def test_s6_a_file_that_grows_while_it_is_read_is_read_as_it_was(tmp_path: Path) -> None:
    path, stop = tmp_path / "log", threading.Event()
    path.write_text("line\n" * 1000)

    def grow() -> None:
        with path.open("a") as file:
            while not stop.is_set() and file.tell() < 30_000_000:
                file.write("line\n" * 200)
                file.flush()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _ in range(30):
            words = read_here(path, max_lines=1).split("\n")[0].split()
            lines, size = int(words[3]), int(words[5])
            assert lines == -(-size // 5)  # the last line may be there in part
    finally:
        stop.set()
        thread.join()


def test_a_file_that_shrinks_while_it_is_read_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    fd = os.open(path, os.O_RDONLY)
    real = os.read

    def shrinking(number: int, count: int) -> bytes:
        os.truncate(path, 1_500_000)
        return real(number, count)

    monkeypatch.setattr(os, "read", shrinking)
    content = textfile.read_open(fd)
    os.close(fd)
    assert len(content.data) == 1_500_000


def test_what_may_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for root, who may read everything: the refusal is the kernel's, here a stand-in's."""
    (tmp_path / "a").write_text("x")
    refusing = orders.ENTRY.replace(
        "from toolkit.__main__",
        "import toolkit.beneath as b\n"
        "def no(*_): raise PermissionError(13, 'Permission denied')\n"
        "b.open_path = no\nfrom toolkit.__main__",
    )
    ended = orders.run("read_file", {"path": f"{tmp_path}/a"}, tmp_path, entry=refusing)
    assert (ended.code, ended.text) == (1, "error: permission denied")


P9 = ["-rf", "~", "$HOME", "*", "${IFS}", "a b", "--", ";id", "`id`", "\u202eevil", "trailing ", "ﬁ"]


@pytest.mark.parametrize("name", P9)
def test_p6_p9_a_name_is_literal(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(f"this is {name}")
    (tmp_path / "other").write_text("other")
    assert orders.run("read_file", {"path": f"{tmp_path}/{name}"}, tmp_path).lines[1] == f"this is {name}"


def test_p7_names_are_compared_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "e\u0301").write_text("decomposed")
    with pytest.raises(FileNotFoundError):
        readfile.run(ReadFile(path=f"{tmp_path}/é"), orders.place(tmp_path))


def test_a_start_beyond_an_empty_file_is_no_error_for_line_1(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read_here(tmp_path / "empty", start_line=1) == "[0 lines, 0 bytes]"
    with pytest.raises(ToolError, match="the file has 0 lines"):
        read_here(tmp_path / "empty", start_line=2)
