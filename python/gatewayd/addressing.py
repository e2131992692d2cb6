"""Is a text meant for us: whom it names, by Mattermost's own rules, and the text without our name. Pure.

A name is an `@` and the longest run of name characters behind it that exists as a user, after dots, hyphens,
underscores and colons were taken off its end one at a time; nothing inside code is a name, an escaped `@` is one.
`@all`, `@channel` and `@here` are nobody. Rules and sources: docs/mattermost.md.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

EVERYBODY = frozenset({"all", "channel", "here"})
_NAME_MOST = 64
"""No user name is longer, so a longer run is shortened to it at once."""

_TOKEN = re.compile(r"(?<![A-Za-z0-9._-])@([A-Za-z0-9._:-]+)")
_ENDS = ".-_:"
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_TICKS = re.compile(r"`+")
_QUOTE = re.compile(r"(?: {0,3}> ?)+")
_LOOKED_UP_MOST = 500
"""Of more possible names in one post the rest is not asked about."""


class Names(Protocol):
    """Which user names exist."""

    def existing(self, names: Collection[str]) -> frozenset[str]:
        """Return those that exist; all are lower-case. May ask the server, and raise MattermostFault."""
        ...


def mentions(text: str) -> tuple[tuple[str, ...], ...]:
    """Return for each `@` in the text the names that it may be, longest first, lower-case; each set of them once."""
    if "@" not in text:
        return ()
    plain = _ESCAPED.sub(r"\1", _without_code(text))
    found = (_candidates(match[1].lower()) for match in _TOKEN.finditer(plain))
    return tuple(dict.fromkeys(candidates for candidates in found if candidates))


def for_us(text: str, *, bot: str, direct: bool, own_thread: bool, names: Names) -> bool:
    """Say whether a post is for the bot: in a direct channel always, else where it is named or nobody else is.

    Raises whatever `names` raises.
    """
    if direct:
        return True
    said = mentions(text)
    if any(_is_named(candidates, bot.lower(), names) for candidates in said):
        return True
    return own_thread and not _anybody(said, names)


def strip_mention(text: str, bot: str) -> str:
    """Return the text without the bot's name at its front, and without a colon or comma behind that.

    Of what follows only the blanks of the same line and empty lines go: what is code further down stays code.
    """
    match = re.match(r"\s*@([A-Za-z0-9._:-]+)", text)
    if match is None or bot.lower() not in _candidates(match[1].lower()):
        return text
    rest = text[match.start(1) + len(bot) :]
    rest = (rest[1:] if rest[:1] in (":", ",") else rest).lstrip(" \t")
    return re.sub(r"\A(?:[ \t]*\r?\n)+", "", rest)


def _candidates(token: str) -> tuple[str, ...]:
    """Return what a run of name characters may name, longest first. A colon belongs to the names of other servers."""
    found = list(_shortened(token))
    local, colon, _ = token.partition(":")
    if colon:  # `@bot:please`: the server would find nobody, a person means the bot
        found += [name for name in _shortened(local) if name not in found]
    return tuple(name for name in found if name not in EVERYBODY)


def _shortened(token: str) -> Iterator[str]:
    kept = len(token.rstrip(_ENDS))
    for length in range(min(len(token), _NAME_MOST), max(kept, 1) - 1, -1):
        yield token[:length]


def _is_named(candidates: Sequence[str], bot: str, names: Names) -> bool:
    if bot not in candidates:
        return False
    longer = candidates[: candidates.index(bot)]
    return not longer or not names.existing(longer)


def _anybody(said: Sequence[Sequence[str]], names: Names) -> bool:
    asked = list(dict.fromkeys(name for candidates in said for name in candidates))[:_LOOKED_UP_MOST]
    return bool(asked) and bool(names.existing(asked))


# -- code ---------------------------------------------------------------------------------------


def _without_code(text: str) -> str:
    if "`" not in text and "~~~" not in text and "    " not in text and "\t" not in text:
        return text
    return "\n\n".join(_without_spans(paragraph) for paragraph in _paragraphs(text))


def _paragraphs(text: str) -> Iterator[str]:
    """Yield what is neither a fenced nor an indented block, cut at empty lines: a code span does not cross one."""
    lines: list[str] = []
    fence, depth = "", 0  # of the block, or else of the paragraph that is open: how often it is quoted
    for untouched in text.splitlines():
        quote = _QUOTE.match(untouched)
        line, here = (untouched[quote.end() :], quote[0].count(">")) if quote else (untouched, 0)
        mark = _FENCE.match(line)
        if fence and here >= depth:
            closes = mark is not None and mark[1].startswith(fence) and not line[mark.end() :].strip()
            fence = "" if closes else fence
            continue
        fence = mark[1] if mark else ""  # a block ends with the quotation that it is in
        if lines and (mark or here > depth or not line.strip()):
            yield "\n".join(lines)
            lines = []
        # Without its sign a quoted paragraph goes on, and an indented block cannot interrupt one.
        depth = depth if lines else here
        if line.strip() and mark is None and (lines or not line.startswith(("    ", "\t"))):
            lines.append(line)
    if lines:
        yield "\n".join(lines)


def _without_spans(text: str) -> str:
    """Cut out code spans: from one run of backticks to the next that is as long. One pass, whatever the runs are."""
    runs = [(match.start(), match.end()) for match in _TICKS.finditer(text)]
    later: dict[int, list[int]] = {}
    for index in range(len(runs) - 1, -1, -1):
        later.setdefault(runs[index][1] - runs[index][0], []).append(index)
    kept: list[str] = []
    at = index = 0
    while index < len(runs):
        start, end = runs[index]
        start += _is_escaped(text, start)
        closing = _next(later, end - start, index)
        if closing is None:
            index += 1
            continue
        kept.append(text[at:start])
        at, index = runs[closing][1], closing + 1
    return " ".join([*kept, text[at:]])


def _next(later: dict[int, list[int]], length: int, after: int) -> int | None:
    """Return the next run of this length; indices are kept newest last and dropped once they lie behind."""
    waiting = later.get(length, [])
    while waiting and waiting[-1] <= after:
        waiting.pop()
    return waiting[-1] if waiting else None


def _is_escaped(text: str, at: int) -> bool:
    before = at
    while before > 0 and text[before - 1] == "\\":
        before -= 1
    return (at - before) % 2 == 1
