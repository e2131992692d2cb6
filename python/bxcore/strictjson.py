"""JSON without anything that two readers could take differently: bytes in, values out, and back.

Refused while reading: bytes that are not UTF-8, a byte-order mark, a repeated key, NaN and
Infinity, every number with a fraction or an exponent, `-0`, integers beyond +-(2^53-1), lone
surrogates, nesting deeper than MAX_DEPTH, anything after the value. Writing is deterministic: the
same value gives the same bytes. Pure; no I/O. Specified in docs/protocol.md, "Strict JSON".
"""

import json
import re
from typing import NoReturn, TypeAlias

from bxcore.errors import BadMessage
from bxcore.ids import MAX_SAFE_INTEGER

JsonValue: TypeAlias = "str | int | bool | list[JsonValue] | dict[str, JsonValue] | None"

MAX_DEPTH = 64
"""Lists and objects inside one another, the outermost included."""

_LONGEST_INTEGER = len(str(-MAX_SAFE_INTEGER))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OPENING = re.compile(rb"[\[{]")

# A string up to its closing quote or, where that is missing, up to the end: every byte is looked
# at once. Without `|\Z` a run of escaped quotes with no end would be scanned again from each one.
_STRING = re.compile(rb'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_STRUCTURE = re.compile(rb"[\[\]{}]")

# Only an escape can spell a surrogate, because the bytes themselves are valid UTF-8.
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def loads(untrusted: bytes) -> JsonValue:
    """Return the one value that `untrusted` spells, or raise BadMessage.

    The message says what is wrong and where, and quotes nothing that came from the sender.
    """
    if untrusted.startswith(_BYTE_ORDER_MARK):
        raise BadMessage("expected JSON, got a byte-order mark first")
    if len(_OPENING.findall(untrusted)) > MAX_DEPTH:
        _refuse_deep_nesting(untrusted)
    try:
        value: JsonValue = _DECODER.decode(str(untrusted, "utf-8"))
    except UnicodeDecodeError as error:
        raise BadMessage(f"expected UTF-8, got something else at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise BadMessage(f"expected JSON: {error.msg} (character {error.pos})") from None
    if _SURROGATE_ESCAPE.search(untrusted):
        _refuse_lone_surrogates(value)
    return value


def dumps(value: JsonValue) -> bytes:
    """Return the bytes for `value`: no spaces, keys in their order, no ASCII escaping.

    Raises TypeError for a type that JSON or this dialect does not have (floats, keys that are not
    text), and ValueError for a lone surrogate, an integer out of range or too deep a nesting: what
    is written here can always be read by `loads`.
    """
    parts: list[str] = []
    _write(value, parts, MAX_DEPTH)
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError:
        raise ValueError("a text with a lone surrogate has no JSON form") from None


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadMessage("expected each key once, got an object that repeats one")
    return found


def _integer(text: str) -> int:
    # The length first: int() of thousands of digits is slow, and raises a bare ValueError.
    if len(text) <= _LONGEST_INTEGER:
        value = int(text)
        if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER and text != "-0":
            return value
    raise BadMessage("expected a whole number between -(2^53-1) and 2^53-1, got another")


def _refuse_number(_: str) -> NoReturn:
    raise BadMessage("expected a whole number, got a fraction, an exponent, NaN or Infinity")


def _refuse_deep_nesting(untrusted: bytes) -> None:
    depth = 0
    for mark in _STRUCTURE.findall(_STRING.sub(b"", untrusted)):
        depth += 1 if mark in b"[{" else -1
        if depth > MAX_DEPTH:
            raise BadMessage(f"expected at most {MAX_DEPTH} levels of nesting, got more")


def _refuse_lone_surrogates(value: JsonValue) -> None:
    try:
        dumps(value)
    except ValueError:
        raise BadMessage("expected Unicode text, got a lone surrogate") from None


def _write(value: JsonValue, parts: list[str], levels: int) -> None:
    # Exact types: a subclass of str or int may print itself as something else.
    if type(value) is str:
        parts.append(_quote(value))
    elif type(value) is int:
        parts.append(_decimal(value))
    elif value is None or type(value) is bool:
        parts.append("null" if value is None else "true" if value else "false")
    elif levels == 0:
        raise ValueError(f"more than {MAX_DEPTH} levels of nesting have no JSON form")
    elif type(value) is dict:
        _write_object(value, parts, levels - 1)
    elif type(value) is list:
        _write_list(value, parts, levels - 1)
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form here")


def _write_object(value: dict[str, JsonValue], parts: list[str], levels: int) -> None:
    separator = "{"
    for key, item in value.items():
        if type(key) is not str:
            raise TypeError(f"a key of type {type(key).__name__} has no JSON form")
        parts.append(f"{separator}{_quote(key)}:")
        _write(item, parts, levels)
        separator = ","
    parts.append("}" if value else "{}")


def _write_list(value: list[JsonValue], parts: list[str], levels: int) -> None:
    separator = "["
    for item in value:
        parts.append(separator)
        _write(item, parts, levels)
        separator = ","
    parts.append("]" if value else "[]")


def _decimal(value: int) -> str:
    if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return str(value)
    raise ValueError("an integer beyond +-(2^53-1) has no JSON form here")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_refuse_number,
    parse_constant=_refuse_number,
)

# For a str this is the C routine that quotes it: only `"`, `\\` and U+0000 to U+001F are escaped.
_quote = json.JSONEncoder(ensure_ascii=False).encode
