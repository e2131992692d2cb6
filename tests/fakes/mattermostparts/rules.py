"""The server's own reading of a text: whom it names, what it makes somebody fetch. Pure.

Written from the facts about server 11.6 and not from gatewayd's parsers, which these rules are there to judge.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.mattermostparts import servermarkdown

USERNAME = re.compile(r"[a-z0-9.\-_]{1,64}")
RESERVED = frozenset({"all", "channel", "matterbot", "system"})
ID = re.compile(r"[A-Za-z0-9]{26}")

_NAME_CHARS = ":.-_@"
_CHANNEL_WIDE = frozenset({"@all", "@channel", "@here"})


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


def mentions(text: str, existing: Mapping[str, Any]) -> Mentioned:
    """Return whom a text names. An escaped `@` is plain text again, and so is `&#64;`: both count."""
    names: set[str] = set()
    everybody: set[str] = set()
    if "@" in text or "&" in text:
        for words in _texts(text):
            for word in _words(words):
                _read_word(word, existing, names, everybody)
    return Mentioned(names=frozenset(names), everybody=frozenset(everybody))


def _texts(text: str) -> Iterator[str]:
    """Yield the runs of plain text, between whatever else there is."""
    run: list[str] = []
    for node in servermarkdown.nodes(text):
        if node.kind == "text":
            run.append(node.text)
        elif run:
            yield "".join(run)
            run = []
    yield "".join(run)


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
    nodes = list(servermarkdown.nodes(message)) if any(sign in message for sign in "[:wW") else []
    first = next((node.target for node in nodes if node.kind == "autolink"), None)
    safe = props.get("unsafe_links") == "true"  # the text, and nothing that is merely true
    attached = tuple(dict.fromkeys(_attachment_images(props)))
    found = [Fetch(who="server", url=url, why="attachment") for url in attached]
    if safe:
        found = found if first is not None and is_permalink(first, site_url) else []
    else:
        found.extend(Fetch(who="server", url=node.target, why="image") for node in nodes if node.kind == "image")
        if first is not None and previews and not attached:
            found.append(Fetch(who="server", url=first, why="preview"))
    shown = [Fetch(who="client", url=fetch.url, why=fetch.why) for fetch in found if fetch.why != "preview"]
    return (*found, *shown)


def is_permalink(url: str, site_url: str) -> bool:
    """Whether an address is a link to a post of this server."""
    path = url.removeprefix(site_url).removeprefix("/")
    return url.startswith(site_url) and re.fullmatch(r"[0-9a-z_-]{1,64}/pl/[a-z0-9]{26}", path) is not None


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
                yield from (node.target for node in servermarkdown.nodes(text) if node.kind == "image")


def links(message: str) -> tuple[str, ...]:
    """Return what a reader can click in a text: bare addresses, and links with a text of their own."""
    return tuple(node.target for node in servermarkdown.nodes(message) if node.kind in ("autolink", "link"))


def dump(value: Any) -> str:
    """Return JSON as the server encodes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def hashtags(text: str) -> str:
    """Return the #words of a text, as the field of a post has them."""
    return " ".join(re.findall(r"(?<![\w#])#[A-Za-z][\w.\-]*[\w]", text)) if "#" in text else ""
