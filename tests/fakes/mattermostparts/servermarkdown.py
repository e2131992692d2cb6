"""Markdown as server 11.6 reads it: text, code, images, links and addresses without brackets. Pure.

The blocks are those that the server knows (paragraph, quote, list, fence, indented code, reference), read by a
CommonMark parser that is told to know no others. What stands in a line is read step by step as the server does it:
its reader differs from CommonMark in what begins an address, and in that it knows neither HTML nor emphasis.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference

_BLOCKS = MarkdownIt("zero").enable(["code", "fence", "blockquote", "list", "reference"])
_SPACE = " \t\n\v\f\r"
_SPECIAL = re.compile(r"[\r\n\\`&!\[\]wW:]")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_EMOJI = re.compile(r":[a-zA-Z0-9_+-]+:")
_SCHEMES = frozenset({"http", "https", "ftp", "mailto", "tel"})
_WWW = re.compile(r"www\d{0,3}\.")
_BEFORE_WWW = "*_~)<(>"
_CANNOT_END = "?!.,:*_~'\""
_ENTITY = re.compile(r"&(#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]*);")
_TITLES = {'"': '"', "'": "'", "(": ")"}

Kind = Literal["text", "break", "code", "emoji", "autolink", "image", "link"]


@dataclass(kw_only=True)
class Node:
    """A piece of a line. `text` is what a text says; `target` what an image, link or autolink leads to."""

    kind: Kind
    text: str = ""
    target: str = ""
    children: list["Node"] = field(default_factory=list)

    def walk(self) -> Iterator["Node"]:
        yield self
        for child in self.children:
            yield from child.walk()


def nodes(markdown: str) -> Iterator[Node]:
    """Yield every piece of a text, those within others too; code blocks are left out."""
    known: dict[str, dict[str, dict[str, str]]] = {}
    blocks = _BLOCKS.parse(markdown, known)
    references = {label: entry["href"] for label, entry in known.get("references", {}).items()}
    for block in blocks:
        if block.type == "inline":
            yield Node(kind="break")
            for node in _Line(block.content, references).parse():
                yield from node.walk()


@dataclass
class _Opening:
    """A `[` or `![` that may begin something."""

    image: bool
    node: int
    end: int
    inactive: bool = False


class _Line:
    """The reader of one paragraph."""

    def __init__(self, raw: str, references: Mapping[str, str]) -> None:
        self._raw = raw
        self._references = references
        self._at = 0
        self._nodes: list[Node] = []
        self._openings: list[_Opening] = []

    def parse(self) -> list[Node]:
        while self._at < len(self._raw):
            self._step(self._raw[self._at])
        return self._nodes

    def _step(self, character: str) -> None:
        if character in "\r\n":
            self._nodes.append(Node(kind="break"))
            self._at += 1
        elif character == "\\":
            self._escaped()
        elif character == "`":
            self._backticks()
        elif character == "&":
            self._entity()
        elif character in "![":
            self._open()
        elif character == "]":
            self._close()
        elif not (character in "wW:" and (self._autolink(character) or self._emoji(character))):
            self._text()

    def _say(self, text: str, length: int) -> None:
        self._nodes.append(Node(kind="text", text=text))
        self._at += length

    def _text(self) -> None:
        found = _SPECIAL.search(self._raw, self._at)
        end = len(self._raw) if found is None else max(found.start(), self._at + 1)
        self._say(self._raw[self._at : end], end - self._at)

    def _escaped(self) -> None:
        follows = self._raw[self._at + 1 : self._at + 2]
        if _PUNCTUATION.fullmatch(follows):
            self._say(follows, 2)
        else:
            self._say("\\", 1)

    def _backticks(self) -> None:
        count = len(self._raw) - self._at - len(self._raw[self._at :].lstrip("`"))
        opening = "`" * count
        closing = re.compile(rf"(?<!`)`{{{count}}}(?!`)").search(self._raw, self._at + count)
        if closing is None:
            self._say(opening, count)
            return
        self._nodes.append(Node(kind="code", text=self._raw[self._at + count : closing.start()]))
        self._at = closing.end()

    def _entity(self) -> None:
        """A character that is written as a reference is a character: `&#64;all` names everybody."""
        match = _ENTITY.match(self._raw, self._at)
        known = unescape(match[0]) if match is not None else ""
        if match is None or known == match[0]:
            self._say("&", 1)
        else:
            self._say(known, len(match[0]))

    def _emoji(self, character: str) -> bool:
        match = _EMOJI.match(self._raw, self._at) if character == ":" else None
        if match is None:
            return False
        self._nodes.append(Node(kind="emoji", text=match[0]))
        self._at = match.end()
        return True

    # --- images and links ---

    def _open(self) -> None:
        image = self._raw[self._at] == "!"
        if image and self._raw[self._at + 1 : self._at + 2] != "[":
            self._say("!", 1)
            return
        length = 2 if image else 1
        self._openings.append(_Opening(image=image, node=len(self._nodes), end=self._at + length))
        self._say(self._raw[self._at : self._at + length], length)

    def _close(self) -> None:
        opening = self._openings.pop() if self._openings else None
        found = None if opening is None or opening.inactive else self._target(opening)
        if opening is None or found is None:
            self._say("]", 1)
            return
        target, self._at = found
        children = self._nodes[opening.node + 1 :]
        del self._nodes[opening.node :]
        self._nodes.append(Node(kind="image" if opening.image else "link", target=target, children=children))
        if not opening.image:  # no link within a link
            for outer in self._openings:
                outer.inactive = outer.inactive or not outer.image

    def _target(self, opening: _Opening) -> tuple[str, int] | None:
        """Return what the brackets that end here lead to, and where it ends."""
        inline = self._inline_target(self._at + 1, image=opening.image)
        if inline is not None:
            return inline
        label = re.compile(r"\[((?:\\[\s\S]|[^\[\]\\])*)\]").match(self._raw, self._at + 1)
        named = label[1] if label is not None and label[1] else self._raw[opening.end : self._at]
        end = label.end() if label is not None else self._at + 1
        reference = self._references.get(normalizeReference(named)) if named else None
        return None if reference is None else (reference, end)

    def _inline_target(self, at: int, *, image: bool) -> tuple[str, int] | None:
        if self._raw[at : at + 1] != "(":
            return None
        at = self._skip(at + 1)
        if at >= len(self._raw):
            return None
        if self._raw[at] == ")":
            return "", at + 1
        target, at = self._destination(at)
        for part in (self._dimensions, self._title) if image else (self._title,):
            if at < len(self._raw) and self._raw[at] in _SPACE:
                after = part(self._skip(at))
                if after is None:
                    return None
                at = after
        at = self._skip(at)
        return (_plain(target), at + 1) if self._raw[at : at + 1] == ")" else None

    def _skip(self, at: int) -> int:
        return len(self._raw) - len(self._raw[at:].lstrip(_SPACE))

    def _destination(self, at: int) -> tuple[str, int]:
        pointed = re.compile(r"<((?:\\[!-/:-@\[-`{-~]|[^<>\s\\]|\\(?![<>\s]))*)>").match(self._raw, at)
        if pointed is not None:
            return pointed[1], pointed.end()
        start, depth = at, 0
        while at < len(self._raw):
            character = self._raw[at]
            if character == "\\" and _PUNCTUATION.match(self._raw, at + 1):
                at += 1
            elif character == "(":
                depth += 1
            elif character in _SPACE or (character == ")" and depth < 1):
                break
            elif character == ")":
                depth -= 1
            at += 1
        at = min(at, len(self._raw))
        return self._raw[start:at], at

    def _dimensions(self, at: int) -> int | None:
        if self._raw[at : at + 1] != "=":
            return at - 1 if self._raw[at : at + 1] else at
        match = re.compile(r"=(?:\d*[xX]\d*|\d*)(?=[\s)])").match(self._raw, at)
        return None if match is None else match.end()

    def _title(self, at: int) -> int | None:
        closer = _TITLES.get(self._raw[at : at + 1])
        if closer is None:
            return at
        match = re.compile(rf"(?:\\[\s\S]|[^\\{re.escape(closer)}])*{re.escape(closer)}").match(self._raw, at + 1)
        return None if match is None else match.end()

    # --- addresses without brackets ---

    def _autolink(self, character: str) -> bool:
        if any(not opening.inactive for opening in self._openings):
            return False
        found = self._url() if character == ":" else self._www()
        if found is None:
            return False
        start, end = found
        if start < self._at:  # the scheme was taken for text
            last = self._nodes[-1] if self._nodes else None
            if last is None or last.kind != "text" or len(last.text) < self._at - start:
                return False
            last.text = last.text[: len(last.text) - (self._at - start)]
        text = self._raw[start:end]
        target = f"http://{text}" if text.startswith("www") else text
        self._nodes.append(Node(kind="autolink", target=_plain(target), children=[Node(kind="text", text=text)]))
        self._at = end
        return True

    def _www(self) -> tuple[int, int] | None:
        before = self._raw[self._at - 1] if self._at > 1 else " "
        if before not in _SPACE and before not in _BEFORE_WWW:
            return None
        if not _WWW.match(self._raw, self._at) or not _has_domain(self._raw[self._at :], short=False):
            return None
        return self._ended(self._at)

    def _url(self) -> tuple[int, int] | None:
        if self._raw[self._at + 1 : self._at + 3] != "//":
            return None
        before = self._raw[: self._at]
        scheme = re.search(r"[A-Za-z0-9]*\Z", before)
        host = self._raw[self._at + 3 :]
        if scheme is None or scheme[0].lower() not in _SCHEMES or not _is_host_character(host[:1]):
            return None
        return self._ended(scheme.start()) if _has_domain(host, short=True) else None

    def _ended(self, start: int) -> tuple[int, int] | None:
        match = re.compile(r"[^ \t\n\v\f\r<>]*").match(self._raw, start)
        assert match is not None, "it matches nothing as well"
        text = match[0]
        while text:
            if text[-1] in _CANNOT_END or (text[-1] == ")" and text.count(")") > text.count("(")):
                text = text[:-1]
            elif text[-1] == ";":
                entity = re.search(r"&[A-Za-z]+;\Z", text)
                text = text[: entity.start()] if entity is not None else text[:-1]
            else:
                break
        return (start, start + len(text)) if text else None


def _plain(target: str) -> str:
    """Return a target with its escapes and character references undone."""
    return unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", target))


def _is_host_character(character: str) -> bool:
    return bool(character) and not character.isspace() and not _is_punctuation(character)


def _is_punctuation(character: str) -> bool:
    return bool(_PUNCTUATION.fullmatch(character)) and character not in "$+<=>^`|~"


def _has_domain(text: str, *, short: bool) -> bool:
    """Whether what begins here can be a host; `short` ones need no full stop."""
    stop = False
    for character in text[1:-1]:
        if character == "_":
            return False
        if character == ".":
            stop = True
        elif not _is_host_character(character) and character != "-":
            break
    return short or stop
