"""Escaping, widths, numbers, tables and bars."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bxctl import render
from bxctl.render import Cut, Ink, Screen
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


TIMES = {
    0: "0.0 s",
    9_949: "9.9 s",
    10_000: "10 s",
    99_999: "99 s",
    100_000: "1 min 40 s",
    180_000: "3 min",
    3_599_000: "59 min 59 s",
}


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


@pytest.mark.parametrize(("value", "coloured"), [("1", False), ("0", False), ("", True)])
def test_no_color_takes_the_colour_away_and_leaves_the_live_line(value: str, coloured: bool) -> None:
    stream = FakeTerminal()
    screen = Screen(stream, {"TERM": "xterm", "NO_COLOR": value})
    screen.live("waiting")
    assert "waiting" in stream.getvalue()
    assert ("\x1b[2m" in stream.getvalue()) is coloured


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


class Resizable(Screen):
    columns = 80

    def width(self) -> int:
        return self.columns


NARROWED = {
    "still one row": (60, ""),
    "exactly full": (41, ""),
    "two rows": (40, "\x1b[K\x1b[A"),
    "five": (10, "\x1b[K\x1b[A" * 4),
}


@pytest.mark.parametrize(("columns", "up"), NARROWED.values(), ids=NARROWED.keys())
def test_a_live_line_that_a_narrower_window_wrapped_is_taken_away_whole(columns: int, up: str) -> None:
    stream = FakeTerminal()
    screen = Resizable(stream, {"TERM": "xterm", "NO_COLOR": "1"})
    screen.live("x" * 41)
    screen.columns = columns
    screen.erase()
    assert stream.getvalue() == "\r" + "x" * 41 + "\x1b[K\r" + up + "\x1b[K"


WRAPPED = {
    "short": ("one two", 20, 0, "one two"),
    "at a space": ("one two three", 8, 0, "one two\nthree"),
    "hanging": ("! one two three", 8, 2, "! one\n  two\n  three"),
    "a word that is too long": ("a /very/long/path b", 8, 0, "a\n/very/long/path\nb"),
    "columns": ("  /new   begin a new one", 20, 0, "  /new   begin a new\n         one"),
    "too narrow for its columns": ("  /new   begin a new one", 16, 0, "  /new   begin a\n  new one"),
    "indented": ("  one two three", 10, 0, "  one two\n  three"),
    "its own breaks": ("one two\nthree", 80, 0, "one two\nthree"),
    "wide characters": ("漢字 漢字", 8, 0, "漢字\n漢字"),
}


@pytest.mark.parametrize(("text", "width", "hang", "lines"), WRAPPED.values(), ids=WRAPPED.keys())
def test_our_own_texts_break_at_spaces(text: str, width: int, hang: int, lines: str) -> None:
    assert render.wrap(text, width, hang=hang) == lines


def test_a_text_of_ours_is_not_broken_where_nothing_bounds_the_line() -> None:
    pipe, terminal = FakeTerminal(terminal=False), FakeTerminal()
    for stream in (pipe, terminal):
        Screen(stream, {}).say("word " * 30)
    assert [stream.getvalue().count("\n") for stream in (pipe, terminal)] == [1, 2]


def test_a_number_of_one_is_one() -> None:
    assert [render.count_of(number, "turn") for number in (0, 1, 2_000)] == ["0 turns", "1 turn", "2,000 turns"]


def test_foreign_text_is_escaped_on_a_terminal_only() -> None:
    assert Screen(FakeTerminal(), {}).foreign("\x1b[2J") == "\\u{001B}[2J"
    assert Screen(FakeTerminal(terminal=False), {}).foreign("\x1b[2J") == "\x1b[2J"


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Mn", "Me"))), st.integers(4, 40))
@example("模0型", 4)
def test_a_text_cut_anywhere_fits_and_keeps_what_was_not_to_be_cut(text: str, width: int) -> None:
    for where in Cut:
        cut = render.clip_at(text, width, where, unicode=True)
        assert render.cells(cut) <= width
        if render.cells(text) <= width:
            assert cut == text
        elif where is Cut.BEGIN:
            assert text.endswith(cut.removeprefix("…"))
        elif where is Cut.MIDDLE:
            begin, _, end = cut.partition("…")
            assert "…" in text or (text.startswith(begin) and text.endswith(end))
