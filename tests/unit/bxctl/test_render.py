"""Escaping, widths, numbers, tables and bars."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxctl import render
from bxctl.render import Ink, Screen
from tests.fakes.screens import FakeTerminal

HIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def hidden(text: str) -> set[str]:
    return {character for character in text if unicodedata.category(character) in HIDDEN}


@given(st.text(st.characters(codec=None)))
def test_a_line_holds_nothing_that_steers_a_terminal(untrusted: str) -> None:
    assert hidden(render.safe_line(untrusted)) == set()


@given(st.text(st.characters(codec=None)))
def test_a_block_holds_nothing_but_line_breaks_and_tabs(untrusted: str) -> None:
    assert hidden(render.safe_block(untrusted)) <= {"\n", "\t"}


@given(st.text(), st.integers(0, 10))
def test_escaping_piece_by_piece_is_escaping_the_whole(untrusted: str, cut: int) -> None:
    whole = render.safe_block(untrusted)
    assert render.safe_block(untrusted[:cut]) + render.safe_block(untrusted[cut:]) == whole


@given(st.text(), st.integers(1, 60), st.booleans())
def test_clipped_text_is_never_wider_than_asked(text: str, width: int, unicode: bool) -> None:
    text = render.safe_line(text)
    clipped = render.clip(text, width, unicode=unicode)
    assert render.cells(clipped) <= width
    assert clipped == text or clipped.endswith("…" if unicode else "...") or width <= 3


WIDTHS = {"ascii": ("abc", 3), "wide": ("漢字", 4), "combining": ("e\u0301", 1), "emoji": ("🙂", 2)}


@pytest.mark.parametrize(("text", "width"), WIDTHS.values(), ids=WIDTHS.keys())
def test_columns_are_counted_as_a_terminal_does(text: str, width: int) -> None:
    assert render.cells(text) == width


SIZES = {0: "0 B", 999: "999 B", 1_000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 5 * 10**15: "5000.0 TB"}


@pytest.mark.parametrize(("size_bytes", "words"), SIZES.items())
def test_a_size_has_the_largest_unit_that_leaves_one(size_bytes: int, words: str) -> None:
    assert render.size(size_bytes) == words


TIMES = {0: "0.0 s", 9_949: "9.9 s", 10_000: "10 s", 99_999: "99 s", 100_000: "1 min 40 s"}


@pytest.mark.parametrize(("elapsed_ms", "words"), TIMES.items())
def test_a_duration_reads_well(elapsed_ms: int, words: str) -> None:
    assert render.seconds(elapsed_ms) == words


def test_a_table_aligns_wide_characters_too() -> None:
    lines = render.table([("name", "n"), ("漢字", "5"), ("ab", "12")], right=frozenset({1}))
    assert lines == ["name   n", "漢字   5", "ab    12"]


@pytest.mark.parametrize(("share", "bar"), [(-1, "----"), (0, "----"), (0.5, "##--"), (1, "####"), (7, "####")])
def test_a_bar_stays_inside_its_width(share: float, bar: str) -> None:
    assert render.progress_bar(share, 4, unicode=False) == bar


@given(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), st.integers(3, 200))
def test_stacked_parts_fit_and_none_that_exists_is_invisible(parts: list[int], width: int) -> None:
    columns = render.shares(parts, scale=max(sum(parts), 1), width=width)
    assert sum(columns) <= max(width, sum(1 for part in parts if part))
    assert all(bool(column) == bool(part) for column, part in zip(columns, parts, strict=True))


# -- the screen ----------------------------------------------------------------------------------------

DULL = {
    "a pipe": (False, {"TERM": "xterm"}),
    "NO_COLOR": (True, {"TERM": "xterm", "NO_COLOR": "1"}),
    "a dumb terminal": (True, {"TERM": "dumb"}),
    "no TERM": (True, {}),
}


@pytest.mark.parametrize(("terminal", "environ"), DULL.values(), ids=DULL.keys())
def test_nothing_is_coloured_or_redrawn_where_it_must_not_be(terminal: bool, environ: dict[str, str]) -> None:
    stream = FakeTerminal(terminal=terminal)
    screen = Screen(stream, environ)
    screen.live("waiting")
    screen.line("done", Ink.BAD)
    assert stream.getvalue() == "done\n"


def test_an_empty_no_color_counts_as_none() -> None:
    assert Screen(FakeTerminal(), {"TERM": "xterm", "NO_COLOR": ""}).lively


def test_a_live_line_gives_way_to_what_comes_next() -> None:
    stream = FakeTerminal()
    screen = Screen(stream, {"TERM": "xterm"})
    screen.write("half a line")
    screen.live("waiting")
    screen.write("more\n")
    assert stream.getvalue() == "half a line\n\r\x1b[2mwaiting\x1b[0m\x1b[K\r\x1b[Kmore\n"


def test_a_live_line_never_wraps() -> None:
    stream = FakeTerminal()
    Screen(stream, {"TERM": "xterm"}).live("x" * 500)
    assert "x" * 78 + "…" in stream.getvalue()
    assert "x" * 79 not in stream.getvalue()


def test_foreign_text_is_escaped_on_a_terminal_only() -> None:
    assert Screen(FakeTerminal(), {}).foreign("\x1b[2J") == "\\u{001B}[2J"
    assert Screen(FakeTerminal(terminal=False), {}).foreign("\x1b[2J") == "\x1b[2J"
