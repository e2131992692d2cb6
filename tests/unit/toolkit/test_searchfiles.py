"""search_files: literal hits with their lines, no link followed, and every limit said."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.tools import SearchFiles
from tests.unit.toolkit import orders
from toolkit import searchfiles


def search(path: Path, query: str, glob: str | None = None, *, mounted: Path | None = None) -> orders.Ended:
    given = {"path": str(path), "query": query} | ({"glob": glob} if glob else {})
    return orders.run("search_files", given, mounted or path)


def search_here(path: Path, query: str, glob: str | None = None) -> list[str]:
    place = orders.place(path)
    try:
        return searchfiles.run(SearchFiles(path=str(path), query=query, glob=glob), place).split("\n")
    finally:
        os.close(place.roots[0].fd)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Some texts on three levels."""
    for name, text in {
        "a.txt": "one needle\ntwo\nthree needle needle\n",
        "b.md": "needle in the last line",
        "sub/c.txt": "nothing\r\nneedle\r\n",
        "sub/deep/d.py": "print('Needle')\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, newline="")
    return tmp_path


def test_hits_are_shown_with_path_and_line_number(tree: Path) -> None:
    ended = search(tree, "needle")
    assert ended.code == 0
    assert ended.lines == [
        "[found in 3 of 4 files]",
        f"{tree}/a.txt:1: one needle",
        f"{tree}/a.txt:3: three needle needle",
        f"{tree}/b.md:1: needle in the last line",
        f"{tree}/sub/c.txt:2: needle",
    ]


def test_nothing_found_is_a_result(tree: Path) -> None:
    assert (search(tree, "absent").code, search(tree, "absent").text) == (0, "[found in 0 of 4 files]")


def test_a_pattern_of_names_limits_the_files(tree: Path) -> None:
    assert search_here(tree, "needle", "*.txt")[0] == "[found in 2 of 2 files]"
    assert search_here(tree, "needle", "[ab].*")[0] == "[found in 2 of 2 files]"
    assert search_here(tree, "needle", "*.TXT")[0] == "[found in 0 of 0 files]"


def test_one_file_can_be_searched(tree: Path) -> None:
    assert search(tree / "b.md", "needle").lines == [
        "[found in 1 of 1 files]",
        f"{tree}/b.md:1: needle in the last line",
    ]


@pytest.mark.parametrize("query", ["n.edle", "-e", "$HOME", "a\\b", "*", "\u202e", "(", "é"])
def test_p9_the_query_is_literal(tmp_path: Path, query: str) -> None:
    (tmp_path / "yes").write_text(f"here: {query}.\n")
    (tmp_path / "no").write_text("needle HOME e\u0301 ab\n")
    rows = search_here(tmp_path, query)
    assert rows == ["[found in 1 of 2 files]", f"{tmp_path}/yes:1: here: {query}."]


def test_p2_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("needle")
    room = tmp_path / "room"
    room.mkdir()
    for name, target in {
        "a": "../secret",
        "b": "../secret/file",
        "c": "/etc",
        "d": "d",
        "e": "nowhere",
        "f": ".",
    }.items():
        (room / name).symlink_to(target)
    assert search(room, "needle").text == "[found in 0 of 0 files]"
    refused = search(room / "a", "needle", mounted=room)
    assert refused.code == 1
    assert "links are not followed" in refused.text


def test_p8_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("needle")
    assert search(tmp_path, "needle").lines[0] == "[found in 1 of 1 files]"


def test_m9_files_that_are_no_text_and_large_ones_are_counted(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\0needle")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    (tmp_path / "large").write_text("needle\n" + "x" * 5_000_000 + "\nneedle\n")
    assert search(tmp_path, "needle").lines == [
        "[found in 1 of 3 files; 3 passed over (no text, too large or not readable)]",
        f"{tmp_path}/large:1: needle",
    ]


def test_m9_of_a_long_line_the_part_around_the_hit_is_shown(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("a" * 500_000 + "needle" + "b" * 500_000 + "\n")
    row = search_here(tmp_path, "needle")[1]
    assert row.startswith(f"{tmp_path}/long:1: ...aaa")
    assert "aneedleb" in row
    assert row.endswith("b...")
    assert len(row) < 400 + len(str(tmp_path))


def test_m9_a_hundred_thousand_hits_are_cut(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"file{number:02}").write_text("needle\n" * 100_000)
    ended = search(tmp_path, "needle")
    assert len(ended.text) <= 16_000
    assert ended.lines[21] == f"{tmp_path}/file00: more lines of this file are not shown"
    assert ended.lines[-1].startswith("[cut here: stopped at ")


LIMITS = {
    "MOST_HITS": (5, "5 lines"),
    "MOST_FILES": (5, "5 files"),
    "MOST_BYTES": (60, "60 bytes"),
    "MOST_SECONDS": (0, "0 seconds"),
}


@pytest.mark.parametrize(("limit", "value", "says"), [(k, *v) for k, v in LIMITS.items()], ids=LIMITS.keys())
def test_s6_a_search_stops_at_each_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, says: str
) -> None:
    monkeypatch.setattr(searchfiles, limit, value)
    for number in range(50):
        (tmp_path / f"{number:03}").write_text("ten needle\n")
    assert search_here(tmp_path, "needle")[-1].startswith(f"[cut here: stopped at {says}; ")


def test_s6_a_directory_without_end_is_left_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searchfiles, "MOST_NAMES", 10)
    for number in range(50):
        (tmp_path / f"{number:03}").touch()
    assert search_here(tmp_path, "needle")[-1].startswith("[cut here: stopped at 10 names in a directory; ")


@pytest.fixture
def deep_place(tmp_path: Path) -> Iterator[Path]:
    """A directory that may become deeper than Python can remove: pytest would fail of it, some sessions later."""
    yield tmp_path
    subprocess.run(["rm", "-rf", "--", str(tmp_path)], check=True)


def test_s6_a_very_deep_tree_is_searched_or_passed_over_and_ends(deep_place: Path) -> None:
    here = os.open(deep_place, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    assert search(deep_place, "needle").code == 0


def test_a_name_shows_everything_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a\n/".rstrip("/")).write_text("needle")
    (tmp_path / "b\u202e").write_text("needle")
    assert search_here(tmp_path, "needle")[1:] == [
        f"{tmp_path}/a\\u{{a}}:1: needle",
        f"{tmp_path}/b\\u{{202e}}:1: needle",
    ]


def test_lines_of_bytes_that_are_no_text_are_shown_as_escapes(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9 needle and some more text\n")
    assert search(tmp_path, "needle").lines[1].endswith(":1: caf\\udce9 needle and some more text")


def test_no_descriptor_is_left_open(tree: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    search_here(tree, "needle")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
