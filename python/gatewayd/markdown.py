"""What the model wrote -> what can be posted: no program fetches anything because of it, nobody is notified. Pure.

Invariant: for each of the four readers of a post (the server, which notifies and fetches previews; the web app; the
mobile app; CommonMark) what this returns holds no image, no HTML, no reference, no mention, and no link to a host
that `hosts` does not cover. The readers differ in what comes first, emphasis or code, so code that would be live as
text is guarded against being read as text. All is done line by line, and never depends on what a line stands in.
Rules: docs/mattermost.md. Blocks of code: gatewayd.fences. Addresses: gatewayd.live. Cutting: gatewayd.split.
"""

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import Enum

import attrs

from bxcore.hosts import HostRule
from gatewayd import fences, live
from gatewayd.fences import Code

MOST_TICKS = 16
"""Code in a line that would need more backticks around it is text."""
LONGEST_LINK = 900
"""A link is in one post, so a longer one is none."""
DEEPEST = 80
"""Marks of lists and quotes count up to this column: the web app stops taking nested ones apart at a hundred."""

_RUNS = re.compile("`+")
_SPECIAL = re.compile(r"\\[!-/:-@\[-`{-~]|`+")
# Every reader takes a backslash before these as an escape; the web app takes none before the other marks.
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_NEEDLESS = frozenset("\"%&',/:;<=?@^")
_LINK = re.compile(r"(?<![!\\])\[([^\[\]`!\\\n]{1,500})\]\(([^\s()<>\\`\"']+)\)")
_PLAIN = re.compile(r"\\[!-/:-@\[-`{-~]|\[|<(?![ \t])|&(?=#?\w{1,40};)|~{3,}|@(?!\s)|[*_~$\"]")
_ENTITIES = {"$": "&#36;", '"': "&quot;", "<": "&lt;", "&": "&amp;"}

_PREFIX = re.compile(r"(?:[ \t>]|[-+*](?=[ \t])|\d{1,9}[.)](?=[ \t]))*")
_EMPTY_ITEM = re.compile(r"(?:[ \t>]|[-+*](?=[ \t])|\d{1,9}[.)](?=[ \t]))+")
_ITEM = re.compile(r" *(?:[-+*]|\d+\.) +\S")
_DELIMITERS = re.compile(r"(?:[\s>]|[+*]\s|\d{1,9}[.)]\s)*([-:| \t]*)(.*)")
_MAIL = re.compile(r"[^\s]*@[\w.-]*\.[^\W\d_]{2}")
_LIVE_MARKS = re.compile(r"\]\(|<|@")
_BARE_PIPE = re.compile(r"(?<!\\)((?:\\\\)*)\|")

# For quote(): a mark is escaped, or an entity where the web app knows no escape of it.
_QUOTED = {ord(mark): f"\\{mark}" for mark in "\\`*{}[]()#+-.!_>|~"}
_QUOTED |= {ord(mark): f"&#{ord(mark)};" for mark in ":/$"}
_QUOTED |= {ord("<"): "&lt;", ord("&"): "&amp;", ord("@"): "@\u200b", ord("\t"): " "}


class Kind(Enum):
    """TEXT may be cut wherever two marks of it meet, a LINK nowhere, CODE only where it is too long for one post."""

    TEXT = "text"
    LINK = "link"
    CODE = "code"


@attrs.frozen
class Atom:
    """A piece of a line as it is posted. Around CODE stand `ticks` backticks, which are part of `text`."""

    kind: Kind
    text: str
    ticks: int = 0


Line = tuple[Atom, ...]


@attrs.frozen
class _Piece:
    """A piece of a line as it was written: the text, the content of code, a link's address with its label."""

    kind: Kind
    text: str
    label: str | None = None


def harmless(text: str, *, hosts: Sequence[HostRule]) -> str:
    """Return `text` so that it can be posted. Of links only those to a host of `hosts` are left."""
    lines: list[str] = []
    for block in blocks(text, hosts):
        if isinstance(block, Code):
            lines += [block.opening, *block.lines, block.fence]
        else:
            lines += ["".join(atom.text for atom in line) for line in block]
    return leading("\n".join(lines))


def quote(text: str) -> str:
    """Return foreign text as one line in which nothing is Markdown, nothing an address, and nobody is named."""
    return fences.clean(text).replace("\n", "\u23ce").translate(_QUOTED)


def leading(text: str) -> str:
    """Return `text` so that it does not begin with `/`, as a command does."""
    blanks = len(text) - len(text.lstrip())
    return f"{text[:blanks]}&#47;{text[blanks + 1 :]}" if text.startswith("/", blanks) else text


def blocks(text: str, rules: Sequence[HostRule]) -> Iterator[Code | tuple[Line, ...]]:
    """Yield blocks of code, and lines of prose made harmless. An empty line is before each block but the first."""
    empty = True
    for block in fences.blocks(fences.clean(text)):
        if isinstance(block, Code):
            if not empty:
                yield ((),)
            yield block
            empty = False
        else:
            lines = tuple(_prose([_bounded(line) for line in block.lines], rules))
            yield lines
            empty = not lines[-1]


# -- what belongs together ---------------------------------------------------------------------------


def _bounded(line: str) -> str:
    """Return `line` without marks of lists and quotes that stand too far right, or that nothing follows."""
    prefix = _PREFIX.match(line)
    end = prefix.end() if prefix else 0
    if end > DEEPEST and (mark := re.search(r"[-+*>.)]", line[DEEPEST:end])):
        at = DEEPEST + mark.start()
        return f"{line[:at]}\\{line[at:]}"
    # For the web app an item with nothing in it goes on over the empty line that follows.
    return line.rstrip() if _EMPTY_ITEM.fullmatch(line) else line


def _prose(lines: Sequence[str], rules: Sequence[HostRule]) -> Iterator[Line]:
    for blank, run in itertools.groupby(lines, lambda line: not line):
        if blank:
            yield from (() for _ in run)
            continue
        together = list(run)
        table = any(map(_may_delimit, together))
        for scope in _scopes(together):
            yield from _scope(scope, rules, table=table)


def _scopes(lines: Sequence[str]) -> Iterator[list[str]]:
    """Cut lines before each item of a list: the web app's emphasis reaches over lines, not over items."""
    scope: list[str] = []
    for line in lines:
        if scope and _ITEM.match(line):
            yield scope
            scope = []
        scope.append(line)
    if scope:
        yield scope


def _may_delimit(line: str) -> bool:
    """Whether `line`, or the start of it where it is cut, could be what stands below the head of a table."""
    found = _DELIMITERS.fullmatch(line)
    return bool(found and "-" in found[1] and ("|" in found[1] or not found[2]))


def _scope(lines: Sequence[str], rules: Sequence[HostRule], *, table: bool) -> Iterator[Line]:
    """Yield lines that one piece of emphasis could span."""
    read = [_pieces(line, rules) for line in lines]
    codes = [piece.text for pieces in read for piece in pieces if piece.kind is Kind.CODE]
    marks: frozenset[str] = frozenset()
    if any(_LIVE_MARKS.search(code) or live.within(code) for code in codes):
        # The web app ends emphasis (and both apps a formula, or a quoted mail address) inside code if it began before.
        inside = "".join(codes)
        marks = frozenset(mark for mark in "*_~$" if mark in inside) | ({'"'} if '"@' in inside else set())
        if table and "|" in inside:
            read = [[_piped(piece) for piece in pieces] for pieces in read]
    for pieces in read:
        yield tuple(_atoms(pieces, marks))


def _piped(piece: _Piece) -> _Piece:
    """In a table a bare `|` ends a cell, also within code."""
    return attrs.evolve(piece, text=_BARE_PIPE.sub(r"\1\\|", piece.text)) if piece.kind is Kind.CODE else piece


# -- one line, read ----------------------------------------------------------------------------------


def _pieces(line: str, rules: Sequence[HostRule]) -> list[_Piece]:
    segments = list(_segments(line))
    pieces: list[_Piece] = []
    for number, segment in enumerate(segments, 1):
        if segment.kind is Kind.CODE:
            pieces.append(segment)
        else:
            pieces += _links(_ESCAPED.sub(_needed, segment.text), rules, last=number == len(segments))
    return pieces


def _segments(line: str) -> Iterator[_Piece]:
    """Yield text and code in turns. Text has no backtick but escaped ones."""
    runs: dict[int, list[int]] = {}
    for run in _RUNS.finditer(line):
        runs.setdefault(len(run[0]), []).append(run.start())
    text: list[str] = []
    at = 0
    while found := _SPECIAL.search(line, at):
        text.append(line[at : found.start()])
        at = found.end()
        if found[0][0] == "\\":
            text.append(found[0])
            continue
        starts = runs.get(len(found[0]), [])
        partner = bisect_left(starts, at)
        if partner == len(starts) or _ticks(line[at : starts[partner]]) is None:
            text.append("\\`" * len(found[0]))
            continue
        yield _Piece(Kind.TEXT, "".join(text))
        yield _Piece(Kind.CODE, line[at : starts[partner]])
        text = []
        at = starts[partner] + len(found[0])
    yield _Piece(Kind.TEXT, "".join(text) + line[at:])


def _needed(found: "re.Match[str]") -> str:
    """Return an escape, or its mark alone where that has no meaning, so that it is treated as any other."""
    before = found.string[found.start() - 1 : found.start()]
    return found[1] if found[1] in _NEEDLESS or (found[1] == "." and before.isalpha()) else found[0]


def _links(text: str, rules: Sequence[HostRule], *, last: bool) -> Iterator[_Piece]:
    at = 0
    for found in _LINK.finditer(text):
        if not _may_stay(found[1], found[2], rules):
            continue
        yield from _addresses(text[at : found.start()], rules, last=False)
        yield _Piece(Kind.LINK, found[2], found[1])
        at = found.end()
    yield from _addresses(text[at:], rules, last=last)


def _may_stay(label: str, url: str, rules: Sequence[HostRule]) -> bool:
    long = len(url) + len(_plain(label, frozenset('*_~$"'))) > LONGEST_LINK
    return bool(label.strip()) and not long and not live.within(label) and live.permitted(url, rules)


def _addresses(text: str, rules: Sequence[HostRule], *, last: bool) -> Iterator[_Piece]:
    at = 0
    for address in live.addresses(text, rules, last=last):
        yield _Piece(Kind.TEXT, text[at : address.start])
        shown = text[address.start : address.end]
        yield (
            _Piece(Kind.LINK, shown)
            if address.link and len(shown) <= LONGEST_LINK
            else _Piece(Kind.CODE, _ESCAPED.sub(r"\1", shown))
        )
        at = address.end
    yield _Piece(Kind.TEXT, text[at:])


# -- one line, written -------------------------------------------------------------------------------


def _atoms(pieces: Sequence[_Piece], marks: frozenset[str]) -> Iterator[Atom]:
    before = ""
    for piece in pieces:
        if piece.kind is Kind.TEXT:
            atom = Atom(Kind.TEXT, _plain(piece.text, marks))
        elif piece.kind is Kind.LINK:
            atom = Atom(
                Kind.LINK, piece.text if piece.label is None else f"[{_plain(piece.label, marks)}]({piece.text})"
            )
        else:
            if gap := _gap(before, piece.text):
                yield Atom(Kind.TEXT, gap)
            ticks = _ticks(piece.text) or 1
            atom = Atom(Kind.CODE, f"{'`' * ticks}{piece.text}{'`' * ticks}", ticks)
        if atom.text:
            yield atom
            before = atom.text if piece.kind is not Kind.TEXT else before + atom.text


def _plain(text: str, marks: frozenset[str]) -> str:
    def safe(found: "re.Match[str]") -> str:
        mark = found[0]
        if mark == "[":
            return "\\["
        if mark == "@":
            return "@\u200b"
        if mark in ("<", "&", "\\$"):
            return _ENTITIES[mark[-1]]
        if mark.startswith("~~~"):
            return "\\~" * len(mark)
        if mark in marks:
            return _ENTITIES.get(mark, f"\\{mark}")
        return mark

    return _PLAIN.sub(safe, text)


def _gap(before: str, code: str) -> str:
    """Return what must stand between `before` and the backticks of `code`, so that they are seen as such."""
    if before.endswith("`"):
        return " "
    word = before[max(before.rfind(" "), before.rfind("\t")) + 1 :]
    glued = (word.endswith(":") and code.startswith(("(", "-("))) or (
        word.strip("*_(") != "" and _MAIL.match(code) is not None
    )
    # A backslash that escapes nothing would escape the backtick.
    odd = (len(before) - len(before.rstrip("\\"))) % 2
    return "\\" * odd + " " * glued


def _ticks(code: str) -> int | None:
    """Return how many backticks can stand around `code`, or None where it would be too many."""
    taken = {len(run) for run in _RUNS.findall(code)}
    return next((number for number in range(1, MOST_TICKS + 1) if number not in taken), None)
