"""TOML text -> plain values, and the line on which each key stands.

tomlkit does the reading; it knows no positions. They are found by cutting the text into statements:
a header, or a key with its value, ends with the first line that leaves no text and no bracket open.
Only a file that has a fault pays for that. Reads: the file, or bytes. Raises ConfigError only.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import tomlkit
from tomlkit.exceptions import KeyAlreadyPresent, ParseError, TOMLKitError
from tomlkit.items import Float, Item

from bxcore import regularfile
from bxcore.errors import ConfigError
from bxcore.ids import MAX_SAFE_INTEGER

Keys = tuple[str | int, ...]
"""Where a value stands: names of tables and keys, and numbers from 0 inside lists."""

MAX_BYTES = 64 * 1024
"""More than any configuration; tomlkit takes seconds for what is much longer."""

_TOKEN = re.compile(
    r"""
    \"{3} (?: \\. | [^\\] )*? (?: \"{3,5} | \\?\Z )  # text over several lines; it may end in two quotes of its own
    | '{3} .*? (?: '{3,5} | \Z )
    | \" (?: \\[^\n] | [^\"\\\n] )* \"?
    | ' [^'\n]* '?
    | \# [^\n]*
    | [\[\]{}\n]
    """,
    re.VERBOSE | re.DOTALL,
)
"""What says where a statement ends. Text also matches where it is not closed, so that no place is read twice."""

_WORDS: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    Decimal: "a number with a fraction",
    dict: "a table",
    list: "a list",
    datetime: "a date",
    date: "a date",
    time: "a time",
}

_BARE = re.compile(r"(?<=[=\[,{])[ \t]*(?P<word>[A-Za-z/*][^\s,\]}#\"']*)")
"""A word where a value begins: nothing that TOML knows but true, false, inf and nan."""


@attrs.frozen
class Document:
    """A file that could be read: its text, and what it says (floats as Decimal)."""

    text: str
    content: dict[str, Any]

    def lines(self) -> dict[Keys, int]:
        """Return the line, counted from 1, of the statement that sets each key."""
        return _lines(self.text)


@attrs.frozen
class _Statement:
    line: int
    text: str
    meaning: tomlkit.TOMLDocument


class BadToml(ConfigError):
    """The bytes cannot be read as TOML: `what` is wrong on `line`, or with the whole file where that is 0."""

    code = "config"

    def __init__(self, name: str, line: int, what: str) -> None:
        super().__init__(f"{name}:{line}: {what}" if line else f"{name}: {what}")
        self.line = line
        self.what = what


class _Unreadable(Exception):
    """The statement that starts on `line` cannot be read by itself."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def read(path: Path) -> Document:
    """Read `path`. Raises ConfigError with the line where it is not there, not UTF-8 or not TOML."""
    try:
        raw = regularfile.content(path, most=MAX_BYTES)
    except FileNotFoundError:
        raise BadToml(str(path), 0, "there is no such file") from None
    except OSError as error:
        raise BadToml(str(path), 0, f"cannot be read: {error.strerror}") from None
    return parse(str(path), raw)


def parse(name: str, raw: bytes) -> Document:
    """Read what `raw` says; errors call it `name`. Raises BadToml."""
    text = _text(name, raw)
    try:
        return Document(text, _plain(tomlkit.parse(text)))
    except RecursionError:
        raise BadToml(name, 1, "nested too deeply") from None
    except (TOMLKitError, ValueError) as error:
        line, what = _syntax_fault(text, error)
        raise BadToml(name, line, f"not TOML: {what}") from None


def line_of(lines: dict[Keys, int], keys: Keys) -> int:
    """Return the line of `keys`, or of the nearest table around it; 1 where there is none."""
    while keys and keys not in lines:
        keys = keys[:-1]
    return lines.get(keys, 1)


def word(value: object) -> str:
    """Return the words for what a value is."""
    if type(value) is int and abs(value) > MAX_SAFE_INTEGER:
        return "a whole number beyond 2^53-1"
    return _WORDS.get(type(value), "something else")


def _text(name: str, raw: bytes) -> str:
    if len(raw) > MAX_BYTES:
        raise BadToml(name, 0, f"longer than the {MAX_BYTES} bytes that are read")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise BadToml(name, 1, "starts with a byte-order mark; save it without one")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadToml(name, raw.count(b"\n", 0, error.start) + 1, "not UTF-8") from None


def _plain(item: Any) -> Any:
    if isinstance(item, dict):
        return {str(key): _plain(inner) for key, inner in item.items()}
    if isinstance(item, list):
        return [_plain(inner) for inner in item]
    if isinstance(item, Float):
        return _decimal(item.as_string())
    return item.unwrap() if isinstance(item, Item) else item  # a truth value comes without its wrapping


def _decimal(written: str) -> Decimal:
    """Return what the owner wrote, not its nearest binary fraction; NaN for an absurd exponent."""
    try:
        return Decimal(written)
    except ArithmeticError:
        return Decimal("NaN")


def _syntax_fault(text: str, error: Exception) -> tuple[int, str]:
    what = str(error).split(" at line ")[0]
    twice = isinstance(error, KeyAlreadyPresent) or isinstance(error.__cause__, KeyAlreadyPresent)
    if twice or what.startswith("Redefinition"):
        # The reader notices only at the end of the table, or does not say where.
        return _clash(text), what
    if "'\\x00'" in what and "\0" not in text:
        what = "the file ends inside a value"  # the reader sees a NUL there
    if not isinstance(error, ParseError):
        return 1, what
    line, column = _place_of_fault(text, error)
    bare = _is_bare(text.split("\n")[line - 1], column)
    return line, "a text needs quotes; only numbers, times, true and false stand without" if bare else what


def _is_bare(line: str, column: int) -> bool:
    """Whether what the reader stumbled over at `column` is a text without quotes."""
    for found in _BARE.finditer(line):
        before = line[: found.start("word")]
        if found.start("word") <= column <= found.end("word"):
            return before.count('"') % 2 == before.count("'") % 2 == 0
    return False


def _place_of_fault(text: str, error: ParseError) -> tuple[int, int]:
    """Return the line of the fault, and how many characters stand before it there."""
    # The reader's own lines end at every character that Unicode calls a line end; an editor's do not.
    before = text.splitlines(keepends=True)[: error.line - 1]
    place = sum(len(line) for line in before) + error.col
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place) - 1


def _clash(text: str) -> int:
    """Return the line of the statement that sets a key which an earlier one, or itself, has set."""
    try:
        statements = list(_statements(text))
    except _Unreadable as unreadable:
        return unreadable.line
    return _first_clash(statements).line


def _first_clash(statements: list[_Statement]) -> _Statement:
    fine, clashing = 0, len(statements)
    while clashing - fine > 1:
        middle = (fine + clashing) // 2
        try:
            tomlkit.parse("".join(statement.text for statement in statements[:middle]))
            fine = middle
        except TOMLKitError:
            clashing = middle
    return statements[clashing - 1]


def _statements(text: str) -> Iterator[_Statement]:
    """Yield the statements in their order. Raises _Unreadable at one that cannot be read by itself."""
    line = 1
    for chunk in _chunks(text):
        try:
            yield _Statement(line, chunk, tomlkit.parse(chunk))
        except (TOMLKitError, ValueError, RecursionError):
            raise _Unreadable(line) from None
        line += chunk.count("\n")


def _chunks(text: str) -> Iterator[str]:
    """Cut `text` after each line that leaves nothing open."""
    start = depth = 0
    for token in _TOKEN.finditer(text):
        match token.group():
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case "\n" if depth <= 0:
                yield text[start : token.end()]
                start, depth = token.end(), 0
    if start < len(text):
        yield text[start:]


def _lines(text: str) -> dict[Keys, int]:
    found: dict[Keys, int] = {}
    last: dict[Keys, int] = {}  # the number of the newest table of each [[array]]
    table: Keys = ()
    for statement in _readable(text):
        if statement.text.lstrip().startswith("["):
            table = _header(statement.meaning, last)
            found.setdefault(table, statement.line)
            if isinstance(table[-1], int):  # the list of a [[header]] stands where its first table does
                found.setdefault(table[:-1], statement.line)
        else:
            _note(found, table, statement.meaning, statement.line)
    return found


def _readable(text: str) -> Iterator[_Statement]:
    try:
        yield from _statements(text)
    except _Unreadable:
        return  # what comes after has no line: the nearest table's is shown


def _header(meaning: Any, last: dict[Keys, int]) -> Keys:
    keys: Keys = ()
    while isinstance(meaning, dict) and meaning:
        name, meaning = next(iter(meaning.items()))
        keys = (*keys, str(name))
        if isinstance(meaning, list):
            last[keys] = last.get(keys, -1) + 1
            meaning = None
        if keys in last:
            keys = (*keys, last[keys])
    return keys


def _note(found: dict[Keys, int], keys: Keys, item: Any, line: int) -> None:
    inner: dict[str | int, Any] = {}
    if isinstance(item, dict):
        inner = {str(key): value for key, value in item.items()}
    elif isinstance(item, list):
        inner = dict(enumerate(item))
    for key, value in inner.items():
        found.setdefault((*keys, key), line)
        _note(found, (*keys, key), value, line)
