"""One grant file while it is read: what its keys hold, and every fault found so far, each with its line.

Faults name the key and what was expected there, never what it holds. Pure; bxcore.grants knows the keys.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from bxcore import convert, sanitize, tomlfile
from bxcore.tomlfile import Document, Keys

T = TypeVar("T")


class Wrong(ValueError):
    """A value is refused; says what was expected."""


class GrantFile:
    """Used by one thread, once. Readers of values raise ValueError for what they refuse."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._faults: list[tuple[Keys, str]] = []

    def refuse(self, keys: Keys, what: str) -> None:
        self._faults.append((keys, what))

    def faults(self) -> list[tuple[int, str]]:
        """Return line and text of each fault."""
        hidden = list(_hidden_characters(self._document.text))
        if not self._faults:
            return hidden
        lines = self._document.lines()
        return hidden + [(tomlfile.line_of(lines, keys), f"{_name(keys)}{what}") for keys, what in self._faults]

    def top(self) -> dict[str, object]:
        return self._document.content

    def table(self, key: str) -> dict[str, object]:
        """Return the table at `key`; an empty one where there is none or something else stands."""
        found = self.top().get(key)
        return found if type(found) is dict else {}

    def needed(self, key: str, read: Callable[[object], T], wanted: str) -> T | None:
        if key not in self.top():
            self.refuse((key,), f"missing; expected {wanted}")
        return self.given(key, read, None)

    def given(self, key: str, read: Callable[[object], T], default: T) -> T:
        """Return what `key` holds, the default where it is not there or wrong."""
        if key in self.top():
            try:
                return read(self.top()[key])
            except ValueError as error:
                self.refuse((key,), str(error))
        return default

    def items(self, keys: tuple[str, str], read: Callable[[str], T]) -> tuple[T, ...]:
        """Return the texts of the list at `keys` as `read` makes them; nothing where there is no such key."""
        table, key = self.table(keys[0]), keys[1]
        if key not in table:
            return ()
        listed = table[key]
        if type(listed) is not list or not listed:
            got = "an empty one" if listed == [] else tomlfile.word(listed)
            self.refuse(keys, f"expected a list of at least one text, got {got}")
            return ()
        first: dict[T, int] = {}
        for index, item in enumerate(listed):
            try:
                made = read(_text(item))
                if first.setdefault(made, index) != index:
                    raise Wrong(f"the same as {key}[{first[made]}]")
            except ValueError as error:
                self.refuse((*keys, index), str(error))
        return tuple(first)


def _text(value: object) -> str:
    if type(value) is not str:
        raise Wrong(f"expected text, got {tomlfile.word(value)}")
    return value


def _hidden_characters(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold a character which shows nothing, or moves what follows."""
    if text.isascii():
        return  # the reader of TOML refuses the control characters among these
    for number, line in enumerate(text.split("\n"), start=1):
        line_without_end = line.removesuffix("\r")
        if sanitize.escape_terminal(line_without_end, keep_newlines=True) != line_without_end:
            yield number, "holds a character that cannot be seen; if it is meant, write it as an escape (\\u…)"


def _name(keys: Keys) -> str:
    name = ""
    for key in keys:
        name += f"[{key}]" if isinstance(key, int) else f"{'.' if name else ''}{convert.plain_key(key)}"
    return f"{name}: "
