"""What a program would make a link of, in text without code: addresses, and which of them may stay links. Pure.

Wider than any one reader: the server links `scheme://` and `www.`, the web and mobile apps also `scheme:x` (of schemes
that the administrator names), `name.tld/` and e-mail addresses. What is found for nothing is only shown as code.
"""

import re
from collections.abc import Iterator, Sequence

import attrs

from bxcore import hosts
from bxcore.hosts import HostRule

_LIVE = re.compile(
    r"(?P<scheme>(?<![A-Za-z0-9.+-])(?=[0-9.+-]*+[A-Za-z])[A-Za-z0-9.+-]{2,}+:(?=[/%\w]))"
    r"|(?P<www>(?i:www)\d{0,3}\.)"
    r"|(?P<name>\.[^\W\d_]{2,63}/)"
    r"|(?P<mail>@[\w.-]*\.[^\W\d_]{2})"
)
_BEFORE = {"name": re.compile(r"[\w.-]"), "mail": re.compile(r"[\w.+%-]")}
# Where an address ends: blanks, brackets that hold addresses, quotation marks, the marks of Chinese and Japanese.
_STOP = re.compile(
    '[\\s<>"\u00ab\u00bb\u201c\u201d\u2018\u2019\u3000-\u303f\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]|\\\\`'
)
_CLOSING_MARKS = ".,;:!?'*_~]}"
_ENTITY = re.compile(r"&#?\w+;")
_REST = re.compile(r"[.,;:!?')]*")


@attrs.frozen(kw_only=True)
class Address:
    """From where to where it stands; `link`: it may stay as it is."""

    start: int
    end: int
    link: bool


def within(text: str) -> bool:
    """Whether something in `text` would be made a link."""
    return _LIVE.search(text) is not None


def addresses(text: str, rules: Sequence[HostRule], *, last: bool) -> Iterator[Address]:
    """Yield the addresses in `text`, which begins a line or follows something. `last`: it ends its line."""
    at = 0
    while found := _LIVE.search(text, at):
        start = _start(text, found, at)
        end = max(found.end(), _end(text, start, found.end()))
        link = _stands_alone(text, start, end, last=last) and permitted(text[start:end], rules)
        yield Address(start=start, end=end, link=link)
        at = end


def permitted(url: str, rules: Sequence[HostRule]) -> bool:
    """Whether `url` is one that every reader takes for the same, to a host that one of `rules` covers."""
    if not url.startswith(("https://", "http://")) or any(mark in url for mark in "*~$@()[]'") or _ENTITY.search(url):
        return False
    try:
        target = hosts.target(url)
    except hosts.BadHost:
        return False
    return any(rule.covers(target) for rule in rules)


def _start(text: str, found: "re.Match[str]", earliest: int) -> int:
    start = found.start()
    before = _BEFORE.get(found.lastgroup or "")
    while before and start > earliest and before.match(text, start - 1):
        start -= 1
    return start


def _end(text: str, start: int, earliest: int) -> int:
    stop = _STOP.search(text, earliest)
    end = stop.start() if stop else len(text)
    spare = text.count(")", start, end) - text.count("(", start, end)
    while end > earliest and (text[end - 1] in _CLOSING_MARKS or (text[end - 1] == ")" and spare > 0)):
        spare -= text[end - 1] == ")"
        end -= 1
    return end


def _stands_alone(text: str, start: int, end: int, *, last: bool) -> bool:
    """Whether nothing beside the address could be taken for more of it."""
    if start and not (text[start - 1].isspace() or text[start - 1] == "("):
        return False
    rest = _REST.match(text, end)
    behind = rest.end() if rest else end
    return text[behind].isspace() if behind < len(text) else last
