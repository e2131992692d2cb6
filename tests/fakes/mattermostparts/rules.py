"""The server's own reading of a text: whom it names, what it makes somebody fetch. Pure.

Written from the facts about server 11.6 and not from gatewayd's parsers, which these rules are there to judge.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

USERNAME = re.compile(r"[a-z0-9.\-_]{1,64}")
RESERVED = frozenset({"all", "channel", "matterbot", "system"})
ID = re.compile(r"[A-Za-z0-9]{26}")

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_TICKS = re.compile(r"(?<!`)(`+)(?!`)")
_NAME_CHARS = ":.-_@"
_CHANNEL_WIDE = frozenset({"@all", "@channel", "@here"})
_AUTOLINK = re.compile(r"(?:(?:https?|ftp)://|www\d{0,3}\.)[^\s<>\"`\\]+", re.IGNORECASE)
_INLINE_IMAGE = re.compile(
    r"!\[((?:[^\[\]\\]|\\.|\[[^\[\]]*\])*)\]\(\s*<?([^\s()<>]+(?:\([^\s()]*\)[^\s()<>]*)*)>?[^)]*\)"
)
_REFERENCE_IMAGE = re.compile(r"!\[((?:[^\[\]\\]|\\.)*)\](?:\[((?:[^\[\]\\]|\\.)*)\])?")
_LABELLED_LINK = re.compile(r"(?<!\\)\[((?:[^\[\]\\]|\\.)*)\]\(\s*<?([^\s()<>]+)>?[^)]*\)")
_DEFINITION = re.compile(r"^ {0,3}\[((?:[^\[\]\\]|\\.)+)\]:\s*<?([^\s<>]+)>?", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """A GET that a post causes. `who`: "server" while it is created, "client" where a reader sees it."""

    who: str
    url: str
    why: str
    post: str = ""


@dataclass(frozen=True, kw_only=True)
class Mentioned:
    """Whom a text names: user names that exist, and whether all of the channel."""

    names: frozenset[str]
    everybody: frozenset[str]


def without_code(text: str) -> str:
    """Return the text with its code blocks and code spans taken out, as the server's Markdown reads it."""
    return _without_spans(_without_blocks(text))


def _without_blocks(text: str) -> str:
    kept: list[str] = []
    fence = ""
    blank = True  # an indented block may not interrupt a paragraph
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            closes = mark is not None and mark[1].startswith(fence) and not line.strip().strip(fence[0])
            fence = "" if closes else fence
            continue
        if mark is not None and not (mark[1][0] == "`" and "`" in line[mark.end() :]):
            fence = mark[1]
            kept.append("")
            continue
        if blank and line.startswith(("    ", "\t")) and line.strip():
            continue
        kept.append(line)
        blank = not line.strip()
    return "\n".join(kept)


def _without_spans(text: str) -> str:
    out: list[str] = []
    at = 0
    for opening in _TICKS.finditer(text):
        if opening.start() < at or _is_escaped(text, opening.start()):
            continue
        closing = re.compile(rf"(?<!`){opening[1]}(?!`)").search(text, opening.end())
        if closing is None:
            continue
        out.append(text[at : opening.start()] + " ")
        at = closing.end()
    out.append(text[at:])
    return "".join(out)


def _is_escaped(text: str, at: int) -> bool:
    before = len(text[:at]) - len(text[:at].rstrip("\\"))
    return before % 2 == 1


def mentions(text: str, existing: Mapping[str, Any]) -> Mentioned:
    """Return whom a text names. An escaped `@` is plain text again, and counts."""
    names: set[str] = set()
    everybody: set[str] = set()
    if "@" not in text:
        return Mentioned(names=frozenset(), everybody=frozenset())
    for word in _words(_ESCAPED.sub(r"\1", without_code(text))):
        _read_word(word, existing, names, everybody)
    return Mentioned(names=frozenset(names), everybody=frozenset(everybody))


def _words(text: str) -> Iterator[str]:
    word: list[str] = []
    for character in text:
        if character in _NAME_CHARS or character.isalpha() or character.isnumeric():
            word.append(character)
        elif word:
            yield "".join(word)
            word = []
    if word:
        yield "".join(word)


def _read_word(word: str, existing: Mapping[str, Any], names: set[str], everybody: set[str]) -> None:
    if word[0] == ":" and word[-1] == ":":
        return  # an emoji
    word = word.lstrip(":.-_")
    shortened = word
    while shortened:
        if _is_named(shortened, existing, names, everybody):
            return
        if shortened[-1] not in ".-:_":
            break
        shortened = shortened[:-1]
    if not word.startswith("@"):
        for part in re.split(r"[.\-:]", word):
            _is_named(part, existing, names, everybody)


def _is_named(word: str, existing: Mapping[str, Any], names: set[str], everybody: set[str]) -> bool:
    lowered = word.lower()
    if lowered in _CHANNEL_WIDE:
        everybody.add(lowered)
        return True
    if lowered.startswith("@") and lowered[1:] in existing:
        names.add(lowered[1:])
        return True
    return False


def fetches(message: str, props: Mapping[str, Any], *, previews: bool, site_url: str = "") -> tuple[Fetch, ...]:
    """Return every GET that this post causes. `previews` is EnableLinkPreviews, which images do not care about.

    `unsafe_links` stops all but one thing: where the first address is a permalink of this server, images of
    attachments are looked at as ever.
    """
    plain = without_code(message) if any(sign in message for sign in ("://", "www", "WWW", "![")) else ""
    first = next(_autolinks(plain), None)
    safe = props.get("unsafe_links") == "true"  # the text, and nothing that is merely true
    attached = tuple(dict.fromkeys(_attachment_images(props)))
    found = [Fetch(who="server", url=url, why="attachment") for url in attached]
    if safe:
        found = found if first is not None and is_permalink(first, site_url) else []
    else:
        found.extend(Fetch(who="server", url=url, why="image") for url in _images(plain))
        if first is not None and previews and not attached:
            found.append(Fetch(who="server", url=first, why="preview"))
    shown = [Fetch(who="client", url=fetch.url, why=fetch.why) for fetch in found if fetch.why != "preview"]
    return (*found, *shown)


def is_permalink(url: str, site_url: str) -> bool:
    """Whether an address is a link to a post of this server."""
    path = url.removeprefix(site_url).removeprefix("/")
    return url.startswith(site_url) and re.fullmatch(r"[0-9a-z_-]{1,64}/pl/[a-z0-9]{26}", path) is not None


def _images(plain: str) -> Iterator[str]:
    for match in _INLINE_IMAGE.finditer(plain):
        if not _is_escaped(plain, match.start()) and not _is_escaped(plain, match.start() + 1):
            yield match[2]
    defined = {_label(match[1]): match[2] for match in _DEFINITION.finditer(plain)}
    for match in _REFERENCE_IMAGE.finditer(plain) if defined else ():
        target = defined.get(_label(match[2] or match[1]))
        if target is not None and not _is_escaped(plain, match.start()):
            yield target


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()


def _autolinks(plain: str) -> Iterator[str]:
    rest = _LABELLED_LINK.sub(" ", _INLINE_IMAGE.sub(" ", _DEFINITION.sub(" ", plain)))
    for match in _AUTOLINK.finditer(rest):
        before = rest[match.start() - 1] if match.start() else " "
        if not (before.isalnum() or before in "_/"):
            yield match[0].rstrip(".,:;!?)\"'*_~")


def _attachment_images(props: Mapping[str, Any]) -> Iterator[str]:
    attachments = props.get("attachments")
    for attachment in attachments if isinstance(attachments, list) else ():
        if not isinstance(attachment, dict):
            continue
        for name in ("image_url", "thumb_url", "author_icon", "footer_icon"):
            if isinstance(attachment.get(name), str) and attachment[name]:
                yield attachment[name]
        fields = attachment.get("fields")
        texts = [attachment.get("text"), attachment.get("pretext")]
        texts += [entry.get("value") for entry in fields if isinstance(entry, dict)] if isinstance(fields, list) else []
        for text in texts:
            if isinstance(text, str):
                yield from _images(without_code(text))


def links(message: str) -> tuple[str, ...]:
    """Return what a reader can click in a text: bare addresses and `[text](address)`."""
    plain = without_code(message)
    labelled = [match[2] for match in _LABELLED_LINK.finditer(plain)]
    return (*_autolinks(plain), *labelled)


def dump(value: Any) -> str:
    """Return JSON as the server encodes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def hashtags(text: str) -> str:
    """Return the #words of a text, as the field of a post has them."""
    return " ".join(re.findall(r"(?<![\w#])#[A-Za-z][\w.\-]*[\w]", text)) if "#" in text else ""
