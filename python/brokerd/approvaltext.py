r"""The block that the owner reads before saying yes: everything that will take effect, and nothing that can hide.

Invariant (INV-8): two calls that differ in anything never give the same block, nothing is left out, and no
character of the model's can hide, move or forge another. What comes from outside stands in quotes; whatever
does not show itself as one mark in its place, read from left to right, is written `\u{202e}`, a backslash is
doubled, and a long run of blanks is counted: `\u{20*300}`. Pure. Specified in docs/authority.md, "What an
approval shows".
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator

import attrs

from brokerd.call import Call, Labels
from bxcore import hosts, strictjson, timestamp, tools
from bxcore.strictjson import JsonValue
from bxcore.timestamp import Timestamp

LONGEST_RUN = 16
"""So many spaces in a row are an indentation; more could push the rest out of sight, so they are counted."""

_LONGEST_GAP = 3
_INDENT = "    "
_LABEL = 15

# Cc control, Cf format, Co private, Cs surrogate, Cn unassigned, Zl and Zp separators. Marks too (Mn, Me, Mc): they
# change the letter before them, overprint it or go before it. Zs: blanks of other widths.
_NOT_SHOWN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp", "Zs", "Mn", "Me", "Mc"})

# What is written from right to left, letters and Arabic digits: a terminal that follows that turns round what stands
# beside it too, digits and brackets of ours among them. With none of them there, nothing is ever turned.
_TURNING = frozenset({"R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"})

# Letters and symbols by their category, and yet nothing is seen of them.
_BLANK = frozenset("\u2800\u3164\uffa0\U0001d159")

# Such as run into one mark with their neighbours, or into nothing: parts of a Hangul syllable (a syllable that is one
# letter stays), shades of skin, the letters of a flag.
_JOINING = frozenset(
    chr(number)
    for first, last in ((0x1100, 0x11FF), (0xA960, 0xA97F), (0xD7B0, 0xD7FF), (0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF))
    for number in range(first, last + 1)
)

_SPACES = re.compile(rf" {{{LONGEST_RUN + 1},}}")
_GAP = re.compile(rf"\n{{{_LONGEST_GAP + 1},}}")
_PIECE = re.compile(rf"[^\n]*(?:{_GAP.pattern}|\n|\Z)")


@attrs.frozen(kw_only=True)
class MountShown:
    """One path of the host that the container will see, under the same name."""

    path: str
    writable: bool


@attrs.frozen(kw_only=True)
class Terms:
    """What a yes puts into effect. A yes to other terms than those of the moment runs nothing."""

    mounts: tuple[MountShown, ...]
    hosts: tuple[str, ...]
    image: str
    limits: tuple[str, ...]
    session: Labels
    result: Labels


@attrs.frozen(kw_only=True)
class Question:
    """One call that asks, whole. `id` is the seq of its decision record, `grant` the grant that asks."""

    id: int
    call: Call
    grant: str
    terms: Terms
    opened: Timestamp
    expires: Timestamp


def block(question: Question) -> str:
    """Return the text that is shown, of as many lines as it needs."""
    lines = [f"Approval {question.id}: may this call run?", "", *_lines(question)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def quoted(text: str) -> str:
    """Return `text` in quotes on one line, with all that does not show itself spelled out."""
    return f'"{escaped(text)}"'


def escaped(text: str) -> str:
    """Return `text` so that every character of it can be seen, and no two texts look the same."""
    if text.isascii() and text.isprintable() and not _SPACES.search(text) and "\\" not in text and '"' not in text:
        return text
    counted = re.split(rf"({_SPACES.pattern}|{_GAP.pattern})", text)
    return "".join(_run(part) if number % 2 else "".join(map(_seen, part)) for number, part in enumerate(counted))


def hidden(character: str) -> bool:
    """Whether `character` does not show itself as one mark in its own place."""
    if character.isascii():
        return not character.isprintable()
    return (
        unicodedata.category(character) in _NOT_SHOWN
        or unicodedata.bidirectional(character) in _TURNING
        or character in _BLANK
        or character in _JOINING
    )


def _seen(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return f"\\u{{{ord(character):x}}}" if hidden(character) else character


def _run(blanks: str) -> str:
    return f"\\u{{{ord(blanks[0]):x}*{len(blanks)}}}"


# -- the lines ----------------------------------------------------------------------------------


def _lines(question: Question) -> Iterator[str]:
    call, terms = question.call, question.terms
    yield _row("tool", f"{call.kind.name}{' (it writes)' if call.kind.writes else ''}")
    yield _row("session", f"{call.request.session}, call {call.request.call}")
    yield from _where(call)
    yield from _arguments(call)
    yield _row("grant", f"{quoted(question.grant)}, which asks")
    yield _row("session so far", _labels(terms.session, "has read untrusted text", "has read nothing untrusted"))
    yield _row("its result", _labels(terms.result, "untrusted", "trusted"))
    yield from _effects(terms)
    yield _row("asked", timestamp.to_text(question.opened))
    yield _row("expires", timestamp.to_text(question.expires))
    yield _row("fingerprint", call.fingerprint)


def _where(call: Call) -> Iterator[str]:
    asked = tools.asked_path(call.arguments)
    if call.path is not None:
        yield _row("path", _path(call.path))
    if asked is not None and asked != call.path:
        yield _row("asked as", _path(asked))
    if call.target is not None:
        name = " (not ASCII: this name stands for other letters)" if hosts.is_encoded(call.target.host) else ""
        yield _row("host", f"{quoted(f'{call.target.scheme}://{call.target.authority}')}{name}")


def _path(path: str) -> str:
    if path.isascii():
        return quoted(path)
    plain = "".join(character if character.isascii() else f"\\u{{{ord(character):x}}}" for character in escaped(path))
    return f'{quoted(path)} (not ASCII: "{plain}")'


def _arguments(call: Call) -> Iterator[str]:
    text = call.canonical.decode()
    others = sum(not character.isascii() for character in text)
    beyond = f", {others} characters beyond ASCII" if others else ""
    digest = hashlib.sha256(call.canonical).hexdigest()
    yield _row("arguments", f"{len(call.canonical)} bytes{beyond}, SHA-256 {digest}")
    yield from (f"{_INDENT}{line}" for line in _pretty(strictjson.loads(call.canonical), ""))


def _effects(terms: Terms) -> Iterator[str]:
    for mount in terms.mounts:
        yield _row("will see", f"{_path(mount.path)}, {'read and write' if mount.writable else 'read only'}")
    if not terms.mounts:
        yield _row("will see", "no file of this machine")
    yield _row("network", ", ".join(map(quoted, terms.hosts)) if terms.hosts else "none")
    yield _row("image", quoted(terms.image))
    yield _row("limits", ", ".join(terms.limits))


def _row(label: str, value: str) -> str:
    return f"  {label:<{_LABEL}} {value}"


def _labels(labels: Labels, untrusted: str, trusted: str) -> str:
    return f"{labels.data_class.value}, {untrusted if labels.untrusted else trusted}"


# -- arguments, one value a line, a text of several lines as several pieces --------------------------------


def _pretty(value: JsonValue, comma: str) -> list[str]:
    if isinstance(value, dict) and value:
        return ["{", *_indented(_members(value)), "}" + comma]
    if isinstance(value, list) and value:
        items = [_pretty(item, "," if number < len(value) else "") for number, item in enumerate(value, 1)]
        return ["[", *_indented(line for item in items for line in item), "]" + comma]
    if isinstance(value, str):
        return _pieces(value, comma)
    return [strictjson.dumps(value).decode() + comma]


def _members(value: dict[str, JsonValue]) -> Iterator[str]:
    for number, (key, item) in enumerate(value.items(), 1):
        first, *rest = _pretty(item, "," if number < len(value) else "")
        if isinstance(item, str) and rest:
            yield f"{quoted(key)}:"
            yield from _indented([first, *rest])
        else:
            yield f"{quoted(key)}: {first}"
            yield from rest


def _pieces(text: str, comma: str) -> list[str]:
    """Return `text` in quotes, cut behind each line end, which stays visible."""
    pieces = [piece for piece in _PIECE.findall(text) if piece] or [""]
    return [quoted(piece) for piece in pieces[:-1]] + [quoted(pieces[-1]) + comma]


def _indented(lines: "Iterator[str] | list[str]") -> Iterator[str]:
    return (f"  {line}" for line in lines)
