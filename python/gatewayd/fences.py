"""A text as prose and blocks of code, read once, so that what is written anew reads the same to everybody. Pure.

The server, the web app, the mobile app and CommonMark disagree on where a block of code begins and ends: in a list,
in a quote, behind an empty bullet, with `~` behind the closing backticks. So nobody is left to find out. What counts
here as a block is what a block is: it is written at the left margin, behind an empty line, with a fence that nothing
in it can close. Whatever else looks like a fence is prose, where its marks are escaped (gatewayd.markdown).
"""

import re
from collections.abc import Iterator

import attrs

LONGEST_FENCE = 40
"""A block that would need a longer fence, of backticks and of tildes, is prose."""
LONGEST_INFO = 40

# What has no width is left out, since text can be hidden in it. Joiners, the selectors of emoji, the marks of direction
# that right-to-left text needs, and the letters of a flag (England's) stay.
_NOTHING = re.compile(
    "(?P<flag>\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f)"
    "|[\u00ad\u034f\u180e\u200b\u2060-\u2065\u206a-\u206f\ufe00-\ufe0d\ufeff\ufff0-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
# Two lists: what is seen and belongs nowhere is shown as its picture, what turns text round or is nothing is U+FFFD.
# U+2424, a picture of a line end, is made a line end by the web app; so are others by other readers.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\u2424\ud800-\udfff]")
_LINE_ENDS = frozenset("\u0085\u2028\u2029\u2424")
_REPLACED = "\ufffd"

_OPENING = re.compile(r"([ \t]*)(`{3,}+(?=[^`]*\Z)|~{3,}+(?=[^`~]*\Z))(.*)")
_CLOSING = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*\Z")
_INFO = re.compile(rf"[A-Za-z0-9_+#.=,:;/{{}}()'\" -]{{0,{LONGEST_INFO}}}")
_RUNS = {"`": re.compile("`+"), "~": re.compile("~+")}


@attrs.frozen(kw_only=True)
class Code:
    """A block of code: `fence` opens and closes it, and no line of it could."""

    fence: str
    info: str
    lines: tuple[str, ...]

    @property
    def opening(self) -> str:
        return f"{self.fence}{self.info}"


@attrs.frozen(kw_only=True)
class Prose:
    """Lines between blocks of code. A line of blanks alone is empty."""

    lines: tuple[str, ...]


def clean(text: str) -> str:
    """Return `text` with one kind of line end, control and turning characters seen, and nothing hidden."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _NOTHING.sub(lambda found: found["flag"] or "", text)
    return _UNSEEN.sub(lambda found: _seen(found[0]), text)


def blocks(text: str) -> Iterator[Code | Prose]:
    """Yield the blocks of a clean `text`; a block of code that is not closed ends with the text.

    A block that stands further right (in a list) is moved to the margin, and so is what follows it there.
    """
    lines = text.split("\n")
    prose: list[str] = []
    at, margin = 0, 0
    while at < len(lines):
        opening = _OPENING.fullmatch(lines[at])
        if opening is None:
            indent = _indent(lines[at])
            blank = not lines[at].strip()
            margin = margin if blank or indent >= margin else 0
            prose.append("" if blank else _dedented(lines[at], margin))
            at += 1
            continue
        margin = _indent(opening[1])
        end = _end(lines, at + 1, opening[2], margin)
        content = tuple(_dedented(line, margin) for line in lines[at + 1 : end])
        yield from _block(prose, opening[0], opening[3].strip(), content, lines[end : end + 1])
        at = end + 1
    if prose:
        yield Prose(lines=tuple(prose))


def _block(
    prose: list[str], opening: str, info: str, content: tuple[str, ...], closing: list[str]
) -> Iterator[Code | Prose]:
    fence = _fence(content)
    if fence is None:
        prose.extend(line if line.strip() else "" for line in (opening, *content, *closing))
        return
    if not _INFO.fullmatch(info):
        prose.append(info)
        info = ""
    if prose:
        yield Prose(lines=tuple(prose))
        prose.clear()
    yield Code(fence=fence, info=info, lines=content)


def _seen(character: str) -> str:
    if character in _LINE_ENDS:
        return "\u23ce"
    if character == "\x7f":
        return "\u2421"
    return chr(0x2400 + ord(character)) if "\0" < character < " " else _REPLACED


def _end(lines: list[str], start: int, fence: str, margin: int) -> int:
    """Return the number of the line that closes the block, or how many lines there are."""
    for number in range(start, len(lines)):
        closing = _CLOSING.fullmatch(lines[number])
        if closing and closing[2].startswith(fence) and _indent(closing[1]) <= margin + 3:
            return number
    return len(lines)


def _fence(content: tuple[str, ...]) -> str | None:
    """Return a fence longer than each run of its mark in `content`, at the start of a line or elsewhere."""
    for mark, runs in _RUNS.items():
        longest = max((len(run) for line in content for run in runs.findall(line)), default=0)
        if longest < LONGEST_FENCE:
            return mark * max(3, longest + 1)
    return None


def _indent(line: str) -> int:
    blanks = line[: len(line) - len(line.lstrip(" \t"))]
    return len(blanks.expandtabs(4))


def _dedented(line: str, columns: int) -> str:
    """Return `line` moved left by at most so many columns. A tab that would be cut becomes spaces."""
    rest = line.lstrip(" \t")
    if not columns or len(rest) == len(line):
        return line
    blanks = line[: len(line) - len(rest)]
    return blanks.expandtabs(4)[columns:] + rest
