"""How bxctl looks: escaping, colours, widths, tables and bars. Only Screen writes.

Invariant: text that came over a socket or out of a file reaches a terminal through `safe_line`,
`safe_block` or `Screen.foreign`, so that nothing a model wrote is ever a control sequence. The
escaping looks at single code points: a sequence cut between two deltas cannot slip through.
"""

import io
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TextIO

from bxcore import sanitize

_PLAIN_WIDTH = 80
_LINE_CUT = 400
"""Where a line is cut that no terminal bounds."""
_WORK_CUT = 4_000
_COLUMN = re.compile(r" *\S.* {2,}(?=\S)")
_SINGLE_SPACE = re.compile(r"(?<=\S) (?=\S)")


class Ink(Enum):
    """The few styles there are, as terminal attribute numbers."""

    DIM = "2"
    BOLD = "1"
    GOOD = "32"
    BAD = "31"
    WARN = "33"
    NEW = "36"


class Cut(Enum):
    """Where a text that is too long for its place loses something."""

    END = "end"
    MIDDLE = "middle"
    BEGIN = "begin"


def safe_line(untrusted: str) -> str:
    """Return `untrusted` on one line, every control and invisible character spelled out."""
    return sanitize.escape_terminal(untrusted, keep_newlines=False)


def safe_block(untrusted: str) -> str:
    """Return `untrusted` with its line breaks and tabs, every other such character spelled out."""
    return sanitize.escape_terminal(untrusted, keep_newlines=True)


class Screen:
    """One output stream and what it can do. Not for several threads."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self.lively = self.terminal and environ.get("TERM", "dumb") != "dumb"
        # https://no-color.org: any value but the empty one, and colour alone
        self._coloured = self.lively and not environ.get("NO_COLOR")
        self.unicode = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "") == "utf8"
        self._fresh = True
        self._live_cells = 0

    @classmethod
    def nowhere(cls) -> "Screen":
        """Return a screen that nobody sees."""
        return cls(io.StringIO(), {})

    def width(self) -> int:
        """Return the width now; a window may have been resized since the last draw."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _PLAIN_WIDTH
        except (OSError, ValueError):
            return _PLAIN_WIDTH

    def paint(self, text: str, *inks: Ink) -> str:
        """Return `text` in the given styles, or unchanged where colours are off."""
        if not (self._coloured and inks and text):
            return text
        return f"\x1b[{';'.join(ink.value for ink in inks)}m{text}\x1b[0m"

    def glyph(self, fancy: str, plain: str) -> str:
        """Return `fancy` where the stream can show it."""
        return fancy if self.unicode else plain

    def foreign(self, untrusted: str) -> str:
        """Return `untrusted` as this stream may carry it: escaped on a terminal, as it is elsewhere."""
        return safe_block(untrusted) if self.terminal else untrusted

    def write(self, text: str, *inks: Ink) -> None:
        """Write `text`, which is ours or escaped, over any live line, at once."""
        if not text:
            return
        self.erase()
        self._stream.write(self.paint(text, *inks))
        self._stream.flush()
        self._fresh = text.endswith("\n")

    def control(self, sequence: str) -> None:
        """Send a terminal control sequence of ours: it takes no room."""
        self._stream.write(sequence)
        self._stream.flush()

    def line(self, text: str, *inks: Ink) -> None:
        """Write `text` as a line of its own."""
        self.fresh_line()
        self.erase()
        self._stream.write(self.paint(text, *inks) + "\n")
        self._stream.flush()

    def say(self, text: str, *inks: Ink, hang: int = 0) -> None:
        """Write a text of our own as lines that break at spaces, see `wrap`."""
        self.line(wrap(text, self.width() - 1, hang=hang) if self.terminal else text, *inks)

    def fresh_line(self) -> None:
        """End the line that was begun, if any."""
        if not self._fresh:
            self.write("\n")

    def ended_by_keys(self) -> None:
        """The terminal itself has ended the line: it shows what is typed, Enter too."""
        self._fresh = True

    def live(self, text: str) -> None:
        """Show `text` as a line that the next output replaces. Only where `lively`."""
        if not self.lively:
            return
        self.fresh_line()
        shown = clip(text, self.width() - 1, unicode=self.unicode)
        self._stream.write(f"{self._to_live_start()}{self.paint(shown, Ink.DIM)}\x1b[K")
        self._stream.flush()
        self._live_cells = max(1, cells(shown))

    def erase(self) -> None:
        """Take the live line away."""
        if self._live_cells:
            self._stream.write(f"{self._to_live_start()}\x1b[K")
            self._stream.flush()
            self._live_cells = 0

    def _to_live_start(self) -> str:
        # A window that became narrower has wrapped the live line, as tmux and most terminals do, and left
        # the cursor in its last row. (xterm cuts the line instead: there a row above is lost, once.)
        rows_above = max(0, self._live_cells - 1) // max(1, self.width())
        # Row by row, since tmux keeps what "erase all below" takes from a whole window.
        return "\r" + "\x1b[K\x1b[A" * rows_above


# -- widths ---------------------------------------------------------------------------------------


def cells(text: str) -> int:
    """Return how many terminal columns `text` takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_cell(character) for character in text)


def _cell(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def clip(text: str, width: int, *, unicode: bool) -> str:
    """Return `text` cut to `width` columns, with a mark where something is missing."""
    if cells(text) <= width:
        return text
    mark = "…" if unicode else "..."
    room, kept = width - len(mark), ""
    for character in text:
        room -= _cell(character)
        if room < 0:
            break
        kept += character
    return kept + mark if width > len(mark) else mark[:width]


def clip_at(text: str, width: int, where: Cut, *, unicode: bool) -> str:
    """Return `text` cut to `width` columns as `clip` does, but at its end, in its middle or at its beginning."""
    mark = "…" if unicode else "..."
    room = width - len(mark)
    # Each piece that is kept may be one wide character.
    if where is Cut.END or cells(text) <= width or room < (4 if where is Cut.MIDDLE else 2):
        return clip(text, width, unicode=unicode)
    begin = head(text, room // 2) if where is Cut.MIDDLE else ""
    return begin + mark + head(text[::-1], room - cells(begin))[::-1]


def most_cells(text: str) -> int:
    """Return how many columns `text` takes at most: some terminals give two to what others give one."""
    return len(text) if text.isascii() else sum(_most_cells(character) for character in text)


def _most_cells(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in ("W", "F", "A") else 1


def head(text: str, width: int) -> str:
    """Return as much of `text` as fits into `width` columns of any terminal, at least one character."""
    taken, room = 0, width
    for character in text:
        room -= _most_cells(character)
        if room < 0 and taken:
            break
        taken += 1
    return text[:taken]


def wrap(text: str, width: int, *, hang: int) -> str:
    """Return `text` broken at single spaces where it is wider than `width`.

    What follows a break begins `hang` columns right of its line, or where the line's last column begins:
    a wider gap makes columns.
    """
    return "\n".join(_wrapped(line, width, hang) for line in text.split("\n"))


def _wrapped(line: str, width: int, hang: int) -> str:
    column = _COLUMN.match(line)
    hang = column.end() if column else hang + len(line) - len(line.lstrip())
    begin = " " * (hang if 2 * hang <= width else 2)
    done, current = "", ""
    for word in _SINGLE_SPACE.split(line):
        longer = f"{current} {word}" if current else word
        if current and cells(longer) > width:
            done, longer = f"{done}{current}\n", begin + word
        current = longer
    return done + current


def clip_line(untrusted: str, screen: Screen, *, used: int = 0, where: Cut = Cut.END) -> str:
    """Return `untrusted` escaped and cut to what is left of a line that already has `used` columns."""
    room = screen.width() - used - 1 if screen.terminal else _LINE_CUT
    # The cut before the escaping only bounds the work: no terminal shows so much on one line.
    if len(untrusted) > 2 * _WORK_CUT:
        untrusted = untrusted[:_WORK_CUT] + ("" if where is Cut.END else untrusted[-_WORK_CUT:])
    return clip_at(safe_line(untrusted), max(room, 8), where, unicode=screen.unicode)


_DENIAL = re.compile(r"denied: ([a-z_]{1,40})(?: \((.*)\))?", re.DOTALL)


def denial(untrusted: str) -> tuple[str | None, str]:
    """Return the code and the rest of a result that says that a call was denied; (None, all of it) for any other."""
    found = _DENIAL.fullmatch(untrusted)
    return (found[1], found[2] or "denied") if found else (None, untrusted)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return `text` filled up to `width` columns."""
    gap = " " * max(0, width - cells(text))
    return gap + text if right else text + gap


# -- numbers ---------------------------------------------------------------------------------------


def count(number: int) -> str:
    """Return 12345 as 12,345."""
    return f"{number:,}"


def count_of(number: int, one: str) -> str:
    """Return "1 turn" or "2 turns" for `one` = "turn"."""
    return f"{count(number)} {one}" if number == 1 else f"{count(number)} {one}s"


def size(size_bytes: int) -> str:
    """Return a size in the largest unit that leaves at least one."""
    if size_bytes < 1_000:
        return f"{size_bytes} B"
    value, units = size_bytes / 1_000, iter(("kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 999.95 and (larger := next(units, None)):
        value, unit = value / 1_000, larger
    return f"{value:.1f} {unit}"


def seconds(elapsed_ms: int) -> str:
    """Return a duration: tenths below ten seconds, minutes from one hundred on."""
    if elapsed_ms < 10_000:
        return f"{elapsed_ms / 1000:.1f} s"
    minutes, rest = divmod(elapsed_ms // 1000, 60)
    if minutes * 60 + rest < 100:
        return f"{minutes * 60 + rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


# -- tables and bars ---------------------------------------------------------------------------------


def table(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Return `rows` as lines with aligned columns; those numbered in `right` are right-aligned."""
    if not rows:
        return []
    widths = [max(cells(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(pad(text, widths[i], right=i in right) for i, text in enumerate(row)).rstrip() for row in rows]


def progress_bar(share: float, width: int, *, unicode: bool) -> str:
    """Return a bar of `width` columns, filled to `share` (0 to 1)."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    full, empty = ("█", "░") if unicode else ("#", "-")
    return full * filled + empty * (width - filled)


def shares(parts: Sequence[int], *, scale: int, width: int) -> list[int]:
    """Return how many of `width` columns each part gets where `scale` would fill them all.

    A part that is not zero is never invisible: it gets at least one column, taken from the largest.
    """
    if scale <= 0:
        return [0 for _ in parts]
    columns = [max(round(part * width / scale), 1 if part else 0) for part in parts]
    while sum(columns) > width and max(columns) > 1:
        columns[columns.index(max(columns))] -= 1
    return columns
