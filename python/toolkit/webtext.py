"""HTML -> text that reads like the page: headings, lists, tables, and where links lead. Pure.

Beautiful Soup reads the page; what a reader would not see is dropped (scripts, styles, hidden parts, comments). The
tree is walked with a stack of our own: a page may nest deeper than Python recurses.
"""

import re
from collections.abc import Iterator
from urllib.parse import urljoin

from bs4 import BeautifulSoup
from bs4.element import NavigableString, PageElement, PreformattedString, Tag

_DROPPED = {
    *("audio", "canvas", "datalist", "embed", "head", "iframe", "input", "object", "script", "style", "svg"),
    *("template", "title", "video"),
}
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_APART = {"blockquote", "dl", "figure", "ol", "p", "pre", "table", "ul", *_HEADINGS}
_BLOCKS = {
    *("address", "article", "aside", "body", "caption", "dd", "details", "dialog", "div", "dt", "fieldset"),
    *(
        "figcaption",
        "footer",
        "form",
        "header",
        "hr",
        "html",
        "legend",
        "li",
        "main",
        "nav",
        "noscript",
        "section",
        "summary",
    ),
    *("tbody", "tfoot", "thead", "tr", *_APART),
}
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\n\r\f]+")
_MOST_LINK = 500
_MOST_INDENT = 8


def readable(html: str, url: str) -> str:
    """Return the page as text. Links are shown with their targets, made absolute by `url`."""
    soup = BeautifulSoup(html, "html.parser")
    writer = _Writer()
    title = soup.title.get_text() if soup.title else ""
    if title.strip():
        writer.words(f"Title: {title}")
        writer.gap()
    walker = _Walker(writer, _base(soup, url))
    for node, entering in _walk(soup):
        if entering:
            walker.enter(node)
        else:
            walker.leave(node)
    return writer.text() or "(a page without text)"


def _base(soup: BeautifulSoup, url: str) -> str:
    base = soup.find("base", href=True)
    return _joined(url, str(base["href"])) or url if isinstance(base, Tag) else url


def _walk(soup: BeautifulSoup) -> Iterator[tuple[PageElement, bool]]:
    """Yield each node when it begins, and each tag again when it ends; nothing of what is not seen."""
    stack: list[tuple[PageElement, bool]] = [(node, True) for node in reversed(soup.contents)]
    while stack:
        node, entering = stack.pop()
        if entering and isinstance(node, Tag):
            if _unseen(node):
                continue
            stack.append((node, False))
            stack.extend((child, True) for child in reversed(node.contents))
        yield node, entering


def _unseen(tag: Tag) -> bool:
    if tag.name in _DROPPED or tag.has_attr("hidden") or tag.get("aria-hidden") == "true":
        return True
    return bool(_HIDDEN_STYLE.search(str(tag.get("style", ""))))


class _Walker:
    """What each tag means for the text."""

    def __init__(self, writer: "_Writer", base: str) -> None:
        self._out, self._base = writer, base
        self._lists: list[int | None] = []  # the next number of each open list, None for bullets

    def enter(self, node: PageElement) -> None:
        if isinstance(node, Tag):
            self._enter_tag(node)
        elif isinstance(node, NavigableString) and not isinstance(node, PreformattedString):
            self._out.words(str(node))

    def _enter_tag(self, tag: Tag) -> None:
        name = tag.name
        self._separate(name)
        if name in _HEADINGS:
            self._out.mark(f"{_HEADINGS[name]} ")
        elif name == "li":
            self._item()
        elif name in {"ul", "ol"}:
            self._lists.append(1 if name == "ol" else None)
            self._indent()
        elif name in {"td", "th"}:
            self._out.cell()
        elif name == "br":
            self._out.line()
        elif name == "hr":
            self._out.words("---")
            self._out.line()
        elif name == "pre":
            self._out.exact += 1
        elif name == "img" and str(tag.get("alt", "")).strip():
            self._out.words(f" [image: {str(tag['alt'])[:_MOST_LINK]}] ")

    def leave(self, node: PageElement) -> None:
        if not isinstance(node, Tag):
            return
        name = node.name
        if name == "a":
            self._link(node)
        elif name in {"ul", "ol"} and self._lists:
            self._lists.pop()
            self._indent()
        elif name == "pre":
            self._out.exact -= 1
        self._separate(name)

    def _separate(self, name: str) -> None:
        # A list inside of an item belongs to it: no empty line there.
        if name in _APART and not self._lists:
            self._out.gap()
        elif name in _BLOCKS:
            self._out.line()

    def _item(self) -> None:
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        self._out.mark("- " if number is None else f"{number}. ")

    def _indent(self) -> None:
        self._out.indent = "  " * min(max(len(self._lists) - 1, 0), _MOST_INDENT)

    def _link(self, tag: Tag) -> None:
        href = str(tag.get("href", "")).strip()
        if not href or href.startswith("#"):
            return
        target = _joined(self._base, href)
        # Not get_text(): over many links inside one another it would take the square of their number.
        only = tag.contents[0] if len(tag.contents) == 1 else None
        shown = str(only).strip() if isinstance(only, NavigableString) else ""
        if target is not None and target.rstrip("/") != shown.rstrip("/"):
            self._out.words(f" ({target})")


def _joined(base: str, href: str) -> str | None:
    """Return where a link leads, None where that is no place of the web or a mailbox, or nothing to read."""
    try:
        target = urljoin(base, href)
    except ValueError:
        return None
    if len(target) > _MOST_LINK or not target.lower().startswith(("http://", "https://", "mailto:")):
        return None
    return "".join(char if char.isprintable() and char != " " else "%20" for char in target)


class _Writer:
    """Puts words into lines: one space between words, at most one empty line between blocks."""

    def __init__(self) -> None:
        self.exact = 0
        self.indent = ""
        self._lines: list[str] = []
        self._mark, self._line = "", list[str]()
        self._space = self._cells = False

    def words(self, text: str) -> None:
        """Write running text, its white space folded unless `exact`."""
        if self.exact:
            self._exactly(text)
            return
        folded = _SPACES.sub(" ", text)
        if folded == " ":
            self._space = True
        elif folded:
            if self._line and (self._space or folded.startswith(" ")):
                self._line.append(" ")
            self._line.append(folded.strip(" "))
            self._space = folded.endswith(" ")

    def _exactly(self, text: str) -> None:
        first, *rest = text.split("\n")
        self._line.append(first)
        for line in rest:
            self._end()
            self._line.append(line)

    def mark(self, text: str) -> None:
        """Begin a line with a mark, which is forgotten where nothing follows."""
        self.line()
        self._mark = text

    def cell(self) -> None:
        """Begin a cell of a table."""
        if self._cells:
            self._line.append(" | ")
        self._cells, self._space = True, False

    def line(self) -> None:
        """End the line, if anything stands on it."""
        if any(piece.strip() for piece in self._line):
            self._end()
        self._line.clear()
        self._space = self._cells = False

    def gap(self) -> None:
        """End the line and leave one empty."""
        self.line()
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def _end(self) -> None:
        line = f"{self._mark}{''.join(self._line)}".rstrip()
        self._lines.append(f"{self.indent}{line}" if line else "")
        self._mark = ""
        self._line.clear()

    def text(self) -> str:
        self.line()
        return "\n".join(self._lines).strip("\n")
