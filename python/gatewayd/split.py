"""A long answer -> the texts of its posts: each within the server's limit and harmless by itself, nothing lost. Pure.

A cut falls between paragraphs where it can, else between lines, else between words; never within an escape, a link,
or code that fits into one post; within a mark that takes several code points (a flag, a family) only where one such
mark is longer than a post. A block of code that is cut is closed and opened again, and so is code in a line. What
`pieces` returns says which characters those are, and which blanks at a cut are not posted.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import Enum

import attrs

from bxcore.hosts import HostRule
from gatewayd import markdown
from gatewayd.fences import Code
from gatewayd.markdown import Kind

SHORTEST = 1_000
"""The lowest limit: what stands around a piece must leave room for some of it."""

_SLASH = len("&#47;") - 1
_ENTITY = re.compile(r"&(?:lt|amp|quot|#\d\d);")
_LONGEST_ENTITY = 6
_BLANKS = re.compile(r"\s*")
_JOINERS = frozenset("\u200b\u200d")
_FURTHEST = 64
"""So many code points back a cut within a mark of several is moved. More than twice markdown.MOST_TICKS."""


class _Span(Enum):
    BLOCK = "block"
    CODE = "code"
    LINK = "link"


@attrs.frozen
class _Region:
    """What a cut must respect, from `start` to `end`; what may be cut of it lies from `inner` to `outer`."""

    span: _Span
    start: int
    inner: int
    outer: int
    end: int
    opening: str
    closing: str


@attrs.frozen(kw_only=True)
class Piece:
    """What becomes one post. `body` and `gap` of all pieces, joined, are the harmless text.

    `before` and `after` are added: code that is cut is opened and closed. `gap` is left out: blanks at the cut.
    """

    before: str
    body: str
    after: str
    gap: str

    @property
    def text(self) -> str:
        return markdown.leading(f"{self.before}{self.body}{self.after}")


def parts(text: str, *, limit: int, hosts: Sequence[HostRule]) -> tuple[str, ...]:
    """Return the texts of the posts, each of at most `limit` (at least SHORTEST) code points; none for blanks alone."""
    return tuple(piece.text for piece in pieces(text, limit=limit, hosts=hosts))


def pieces(text: str, *, limit: int, hosts: Sequence[HostRule]) -> tuple[Piece, ...]:
    """Return what the posts are made of. What stands before the first piece is blank."""
    if limit < SHORTEST:
        raise ValueError(f"limit: expected at least {SHORTEST}")
    return tuple(_Cutter(*_laid_out(text, hosts), limit).run())


def _laid_out(text: str, hosts: Sequence[HostRule]) -> tuple[str, list[_Region]]:
    """Return the harmless text, and its regions in order."""
    lines: list[str] = []
    regions: list[_Region] = []
    at = 0
    for block in markdown.blocks(text, hosts):
        if isinstance(block, Code):
            inner = at + len(block.opening) + 1
            outer = inner + sum(len(line) + 1 for line in block.lines) - 1
            end = outer + 1 + len(block.fence) if block.lines else inner + len(block.fence)
            regions.append(_Region(_Span.BLOCK, at, inner, outer, end, f"{block.opening}\n", f"\n{block.fence}"))
            lines += [block.opening, *block.lines, block.fence]
            at = end + 1
            continue
        for line in block:
            for atom in line:
                end = at + len(atom.text)
                if atom.kind is not Kind.TEXT:
                    span = _Span.CODE if atom.kind is Kind.CODE else _Span.LINK
                    ticks = "`" * atom.ticks
                    regions.append(_Region(span, at, at + atom.ticks, end - atom.ticks, end, ticks, ticks))
                at = end
            lines.append("".join(atom.text for atom in line))
            at += 1
    return "\n".join(lines), regions


class _Cutter:
    """Goes through one text from its start to its end. Not shared."""

    def __init__(self, whole: str, regions: list[_Region], limit: int) -> None:
        self._whole = whole
        self._text = whole.rstrip()
        self._regions = regions
        self._starts = [region.start for region in regions]
        self._limit = limit

    def run(self) -> Iterator[Piece]:
        at = self._after_blanks(0, self._limit // 8)
        while at < len(self._text):
            region = self._region(at)
            before = self._opened(region, at) if region else ""
            slash = _SLASH if not before and self._text.startswith("/", self._after_blanks(at, 0)) else 0
            budget = self._limit - len(before) - slash
            if len(self._text) - at <= budget:
                yield Piece(before=before, body=self._text[at:], after="", gap=self._whole[len(self._text) :])
                return
            end, after, start = self._cut(at, budget)
            yield Piece(before=before, body=self._text[at:end], after=after, gap=self._text[end:start])
            at = start

    def _cut(self, at: int, budget: int) -> tuple[int, str, int]:
        """Return where the piece from `at` ends, what closes it, and where the next one begins."""
        cut = self._between_lines(at, budget) or self._within_line(at, at + budget)
        region = self._region(cut)
        if region is None:
            end = at + len(self._text[at:cut].rstrip())
            return end, "", self._after_blanks(cut, self._limit // 8)
        if region.span is _Span.CODE:
            return cut, " " * (self._text[cut - 1] == "`") + region.closing, cut
        return cut, region.closing, cut + (self._text[cut] == "\n")

    def _between_lines(self, at: int, budget: int) -> int | None:
        end = at + budget
        region = self._region(end)
        # A block that fits into the next post is not cut.
        if region and region.span is _Span.BLOCK and at + budget // 4 < region.start >= region.end - self._limit:
            return region.start - 1
        return self._last("\n\n", at + budget // 2, end) or self._last("\n", at + budget // 4, end)

    def _last(self, mark: str, lowest: int, end: int) -> int | None:
        """Return the last place of `mark` where a cut may be."""
        cut = self._text.rfind(mark, lowest, end + len(mark))
        while cut > lowest and not self._allowed(cut, end):
            cut = self._text.rfind(mark, lowest, cut + len(mark) - 1)
        return cut if cut > lowest else None

    def _allowed(self, cut: int, end: int) -> bool:
        region = self._region(cut)
        if region is None:
            return True
        return region.span is _Span.BLOCK and region.inner < cut < region.outer and cut + len(region.closing) <= end

    def _within_line(self, at: int, end: int) -> int:
        region = self._region(end)
        if region and region.span is _Span.BLOCK:
            cut = min(end - len(region.closing), region.outer - 1)
            if cut <= max(region.inner, at):
                return region.start - 1
            space = self._text.rfind(" ", max(region.inner, at + (end - at) // 2), cut)
            return space + 1 if space > 0 else self._whole_mark(at, cut)
        lowest = at + (end - at) // 2
        space = end
        while (space := self._text.rfind(" ", lowest, space + 1)) > lowest:
            inside = self._region(space)
            if inside is None and not _joined(self._text, at, space + 1):
                return space
            space = inside.start if inside else space - 1
        if region is None:
            return self._whole_mark(at, end)
        if region.start > at and region.end - region.start <= self._limit:
            return region.start
        return self._within_code(max(at, region.inner), end - len(region.closing) - 1)

    def _within_code(self, first: int, cut: int) -> int:
        """Return a place at or before `cut` where no run of backticks is left that could close the code."""
        start = cut
        while start > first and self._text[start - 1] == "`":
            start -= 1
        if self._text[cut] != "`" or start == cut:
            return self._whole_mark(first, cut) if start == cut else cut
        if cut - start <= _FURTHEST:
            return start if start > first else cut
        return cut - _FURTHEST // 2

    def _whole_mark(self, at: int, end: int) -> int:
        """Return the last place up to `end` that is within no mark of several code points and no escape."""
        region = self._region(end)
        for cut in range(end, max(at, end - _FURTHEST), -1):
            if self._region(cut) is not region:
                break
            if not _joined(self._text, at, cut) and (region or not _torn(self._text, at, cut)):
                return cut
        cut = end
        while region is None and cut > at + 1 and _torn(self._text, at, cut):
            cut -= 1
        return cut

    def _region(self, at: int) -> _Region | None:
        """Return the region that a cut at `at` would be within."""
        number = bisect_left(self._starts, at) - 1
        return self._regions[number] if number >= 0 and at < self._regions[number].end else None

    def _opened(self, region: _Region, at: int) -> str:
        return region.opening + " " * (region.span is _Span.CODE and self._text[at] == "`")

    def _after_blanks(self, at: int, indent: int) -> int:
        """Return where the text goes on, at the start of a line with its indent unless that is longer than `indent`."""
        found = _BLANKS.match(self._text, at)
        end = found.end() if found else at
        line = self._text.rfind("\n", at, end) + 1 or (at if at == 0 else end)
        return line if end - line <= indent else end


def _torn(text: str, at: int, cut: int) -> bool:
    """Whether a cut would fall within an escape or an entity. `at` is no such place."""
    slashes = cut
    while slashes > at and text[slashes - 1] == "\\":
        slashes -= 1
    if (cut - slashes) % 2:
        return True
    start = text.rfind("&", max(at, cut - _LONGEST_ENTITY), cut)
    entity = _ENTITY.match(text, start) if start >= 0 else None
    return entity is not None and entity.end() > cut


def _joined(text: str, at: int, cut: int) -> bool:
    """Whether the code points on both sides of a cut are one mark, as far as their kind tells. Before `at` one ends."""
    if cut >= len(text):
        return False
    behind, before = text[cut], text[cut - 1]
    if behind in _JOINERS or before == "\u200d" or unicodedata.category(behind)[0] == "M":
        return True
    if "\U0001f3fb" <= behind <= "\U0001f3ff" or "\U000e0020" <= behind <= "\U000e007f":
        return True
    if not (_is_flag(behind) and _is_flag(before)):
        return False
    start = cut
    while start > at and _is_flag(text[start - 1]):
        start -= 1
    return (cut - start) % 2 == 1


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
