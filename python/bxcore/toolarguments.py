"""What each tool may be told: one frozen class a tool, read from JSON by the rules that its fields carry.

The same class is judged by brokerd, run by toolkit and described to the model (bxcore.toolschema).
A field's metadata holds its description, its rule and, where it may be left out, the default that
the tool then uses; the field itself is None then, so that a default that was spelled out stays
another call than one that was not (docs/tools.md). Pure. Not built on bxcore.convert: the tool
container imports this at each call, and cattrs alone would take longer than the reading.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

import attrs

from bxcore import paths
from bxcore.errors import BoxmakerError
from bxcore.strictjson import JsonValue

T = TypeVar("T")

MOST_MS = 90_000
"""The longest that a command may ask for; the deadline of its container is later."""


class BadArguments(BoxmakerError):
    """The model's arguments are not what the tool takes. One line that names the field, never the value."""

    code = "invalid_arguments"


class Method(Enum):
    """What http_fetch may do to a page."""

    GET = "GET"
    HEAD = "HEAD"


@attrs.frozen(kw_only=True)
class Rule:
    """What one argument may be: in words of JSON schema, and as the check that returns its typed value.

    `read` raises ValueError saying what was expected. It may refuse more than the schema can say
    (docs/tools.md, "What the schema does not say"), never less.
    """

    schema: Mapping[str, JsonValue]
    read: Callable[[JsonValue], object]


def _text(value: JsonValue) -> str:
    if type(value) is not str:
        raise ValueError(f"expected text, got {_word(value)}")
    if "\0" in value:
        raise ValueError("expected text without NUL characters, got one")
    return value


def _some_text(value: JsonValue) -> str:
    text = _text(value)
    if not text:
        raise ValueError("expected at least one character, got none")
    return text


def _one_line(value: JsonValue) -> str:
    text = _some_text(value)
    if "\n" in text or "\r" in text:
        raise ValueError("expected one line of text, got several")
    return text


def _name_pattern(value: JsonValue) -> str:
    text = _one_line(value)
    if "/" in text:
        raise ValueError("expected a pattern for file names, got one with a slash")
    return text


def _path(value: JsonValue) -> str:
    return paths.check(_text(value))


def _url(value: JsonValue) -> str:
    from bxcore import hosts  # only calls of one tool need it, and each module costs a start of every tool

    text = _text(value)
    hosts.target(text)
    return text


def _whole(low: int, high: int) -> Rule:
    def read(value: JsonValue) -> int:
        if type(value) is not int or not low <= value <= high:
            got = "another" if type(value) is int else _word(value)
            raise ValueError(f"expected a whole number from {low} to {high}, got {got}")
        return value

    return Rule(schema={"type": "integer", "minimum": low, "maximum": high}, read=read)


def _choice(kind: type[Enum]) -> Rule:
    members: dict[str, Enum] = {member.value: member for member in kind}

    def read(value: JsonValue) -> Enum:
        if type(value) is not str or value not in members:
            raise ValueError(f"expected one of {', '.join(members)}, got something else")
        return members[value]

    return Rule(schema={"type": "string", "enum": list(members)}, read=read)


_TEXT = Rule(schema={"type": "string"}, read=_text)
_SOME_TEXT = Rule(schema={"type": "string", "minLength": 1}, read=_some_text)
_ONE_LINE = Rule(schema={"type": "string", "minLength": 1}, read=_one_line)
_NAME_PATTERN = Rule(schema={"type": "string", "minLength": 1}, read=_name_pattern)
_PATH = Rule(schema={"type": "string", "pattern": "^/"}, read=_path)
_URL = Rule(schema={"type": "string", "format": "uri"}, read=_url)


def _is(rule: Rule, description: str, *, default: int | str | None = None) -> Mapping[str, Any]:
    return {"rule": rule, "description": description, "default": default}


@attrs.frozen(kw_only=True)
class ReadFile:
    """Lines `start_line` to `start_line + max_lines - 1` of one file."""

    path: str = attrs.field(metadata=_is(_PATH, "Absolute path of the file."))
    start_line: int | None = attrs.field(
        default=None, metadata=_is(_whole(1, 1_000_000_000), "First line to read.", default=1)
    )
    max_lines: int | None = attrs.field(
        default=None, metadata=_is(_whole(1, 10_000), "How many lines to read.", default=500)
    )


@attrs.frozen(kw_only=True)
class WriteFile:
    """The whole content of one file, which need not exist; its directory must."""

    path: str = attrs.field(metadata=_is(_PATH, "Absolute path of the file."))
    content: str = attrs.field(metadata=_is(_TEXT, "The whole new text of the file."))


@attrs.frozen(kw_only=True)
class EditFile:
    """One exact replacement in one file."""

    path: str = attrs.field(metadata=_is(_PATH, "Absolute path of the file."))
    old_text: str = attrs.field(metadata=_is(_SOME_TEXT, "Text to replace. It must occur exactly once."))
    new_text: str = attrs.field(metadata=_is(_TEXT, "Text to put in its place."))


@attrs.frozen(kw_only=True)
class ListDirectory:
    """The entries of one directory, not of those below it."""

    path: str = attrs.field(metadata=_is(_PATH, "Absolute path of the directory."))


@attrs.frozen(kw_only=True)
class SearchFiles:
    """Lines that hold `query`, in the files below one directory (or in the one file) at `path`."""

    path: str = attrs.field(metadata=_is(_PATH, "Absolute path of the directory to search."))
    query: str = attrs.field(metadata=_is(_ONE_LINE, "Text to look for, exactly as written."))
    glob: str | None = attrs.field(default=None, metadata=_is(_NAME_PATTERN, "Only files with such names, e.g. *.md"))


@attrs.frozen(kw_only=True)
class Shell:
    """One command line for /bin/sh."""

    command: str = attrs.field(metadata=_is(_SOME_TEXT, "Command line for /bin/sh."))
    directory: str = attrs.field(metadata=_is(_PATH, "Absolute path of the directory to run it in."))
    timeout_ms: int | None = attrs.field(
        default=None, metadata=_is(_whole(100, MOST_MS), "When to stop it, in milliseconds.", default=60_000)
    )


@attrs.frozen(kw_only=True)
class HttpFetch:
    """One page of one host."""

    url: str = attrs.field(metadata=_is(_URL, "Address of the page, https://..."))
    method: Method | None = attrs.field(
        default=None, metadata=_is(_choice(Method), "HEAD for the headers alone.", default="GET")
    )


def read(kind: type[T], value: JsonValue) -> T:
    """Return `value` as an object of `kind`, one of the classes above, or raise BadArguments."""
    if type(value) is not dict:
        raise BadArguments(f"expected an object, got {_word(value)}")
    fields = attrs.fields_dict(kind)  # type: ignore[arg-type]
    if unknown := len(value.keys() - fields.keys()):
        raise BadArguments(f"expected {', '.join(fields)} and nothing else, got {unknown} unknown")
    found: dict[str, object] = {}
    for name, field in fields.items():
        if name in value:
            found[name] = _one(name, field.metadata["rule"], value[name])
        elif field.default is attrs.NOTHING:
            raise BadArguments(f"{name}: missing")
    return kind(**found)


def default_of(kind: type, name: str) -> Any:
    """Return what the tool uses where the argument `name` was left out."""
    return attrs.fields_dict(kind)[name].metadata["default"]


def _one(name: str, rule: Rule, value: JsonValue) -> object:
    try:
        return rule.read(value)
    except ValueError as error:
        raise BadArguments(f"{name}: {error}"[:300]) from None


_WORDS: Mapping[type, str] = {
    str: "text",
    int: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    type(None): "null (leave it out instead)",
}


def _word(value: JsonValue) -> str:
    return _WORDS[type(value)]
