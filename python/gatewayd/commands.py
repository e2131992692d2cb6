"""What a text that begins with `!` asks for. Pure.

Commands are exact: as written here, from the first character on, with one space between words; blanks at the end are
forgiven. What only looks like one is Malformed, so that whoever meant it is told and no model reads it. A quoted line,
a code block and an indented one begin otherwise and are messages; `!!` begins a message too.
"""

import re
import unicodedata

import attrs

from bxcore.ids import MAX_SAFE_INTEGER

USAGE = {
    "approve": "!approve <id>",
    "deny": "!deny <id> [reason]",
    "stop": "!stop",
    "status": "!status",
    "help": "!help",
}
_WORD_MOST = 32
_BLANKS = " \t\r\n"
_WORD = re.compile(r"![^\s!]*")
_EMPTY_LINES = re.compile(r"\A(?:[ \t]*\r?\n)+")
_NUMBER = re.compile(r"[1-9][0-9]{0,15}")
_LIKE_ONE = re.compile(rf"!\s*({'|'.join(USAGE)})(?![^\W\d_])")


@attrs.frozen(kw_only=True)
class Approve:
    """A yes to question `id`."""

    id: int


@attrs.frozen(kw_only=True)
class Deny:
    """A no to question `id`. `reason` is as it was written, None where there is none."""

    id: int
    reason: str | None


@attrs.frozen
class Stop:
    """Stop the turn of this thread."""


@attrs.frozen
class Status:
    """Say how things are."""


@attrs.frozen
class Help:
    """Say what can be said."""


@attrs.frozen(kw_only=True)
class Unknown:
    """Begins with `!` and is none. `word` is up to 32 characters of what a person wrote: to be quoted, if shown."""

    word: str


@attrs.frozen(kw_only=True)
class Malformed:
    """Meant as the command `word`, and not its exact form, which is `usage`."""

    word: str
    usage: str


Command = Approve | Deny | Stop | Status | Help | Unknown | Malformed
_PLAIN: dict[str, Command] = {"!stop": Stop(), "!status": Status(), "!help": Help()}


def parse(text: str) -> Command | None:
    """Return the command that a text is, None where it is a message."""
    if text.startswith("!!"):
        return None
    if not text.startswith("!"):
        return _lookalike(text)
    exact = text.rstrip(_BLANKS)
    return _PLAIN.get(exact) or _answer(exact) or _lookalike(text) or Unknown(word=_word(text))


def message_text(text: str) -> str:
    """Return what a message says: `!!` at its front is one `!`."""
    return text[1:] if text.startswith("!!") else text


def _answer(exact: str) -> Approve | Deny | None:
    word, _, rest = exact.partition(" ")
    number, space, reason = rest.partition(" ")
    if word not in ("!approve", "!deny") or not _NUMBER.fullmatch(number) or int(number) > MAX_SAFE_INTEGER:
        return None
    if word == "!deny":
        return Deny(id=int(number), reason=reason.strip() or None)
    return None if space else Approve(id=int(number))


def _lookalike(text: str) -> Malformed | None:
    """Find a command in other letters, beside blanks or what cannot be seen, or with more text than it takes."""
    front = _EMPTY_LINES.sub("", text)[: 4 * _WORD_MOST]
    if front.startswith(("    ", "\t")):
        return None  # an indented block is code
    visible = "".join(c for c in front if unicodedata.category(c) not in ("Cf", "Cc", "Mn") or c in _BLANKS)
    plain = unicodedata.normalize("NFKC", visible).casefold().lstrip()
    found = _LIKE_ONE.match(plain)
    return Malformed(word=found[1], usage=USAGE[found[1]]) if found else None


def _word(text: str) -> str:
    match = _WORD.match(text)
    return match[0][1 : _WORD_MOST + 1] if match else ""
