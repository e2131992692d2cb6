"""The arguments of a tool call: text from the model -> an object, or the reason why not. Pure.

Floats are allowed here (a tool may take one); everything that two JSON readers could see
differently, or that a llama.cpp server refuses to read back from history, is not.
"""

import json
import math
from typing import Any

MAX_ARGUMENT_BYTES = 262_144
MAX_DEPTH = 32
_LONGEST_INTEGER = 300


class BadArguments(ValueError):
    """Why the text is not a usable argument object; one line, safe to show to the model."""


def parse(untrusted_text: str) -> dict[str, Any]:
    """Return the object that the text spells, or raise BadArguments."""
    try:
        size_bytes = len(untrusted_text.encode())
        if size_bytes > MAX_ARGUMENT_BYTES:
            raise BadArguments(f"the arguments are {size_bytes} bytes long; the limit is {MAX_ARGUMENT_BYTES}")
        value = _DECODER.decode(untrusted_text)
        json.dumps(value, ensure_ascii=False).encode()  # an escaped lone surrogate fails here
    except BadArguments:
        raise
    except RecursionError:
        raise BadArguments("the arguments are nested too deeply") from None
    except UnicodeEncodeError:
        raise BadArguments("the arguments hold half of a surrogate pair") from None
    except ValueError:
        raise BadArguments("the arguments are not valid JSON") from None
    if not isinstance(value, dict):
        raise BadArguments("the arguments must be a JSON object")
    if _depth(value) > MAX_DEPTH:
        raise BadArguments(f"the arguments are nested more than {MAX_DEPTH} deep")
    return value


def canonical(name: str, arguments: dict[str, Any]) -> str:
    """Return one spelling for all calls that mean the same: key order and white space do not count."""
    return json.dumps([name, arguments], ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise BadArguments("the arguments name a key twice")
    return made


def _no_constant(_: str) -> Any:
    raise BadArguments("NaN and Infinity are not JSON")


def _integer(text: str) -> int:
    # Some 309 digits are the end of a double, in which the server holds what is longer than 64 bits.
    if len(text) > _LONGEST_INTEGER:
        raise BadArguments("the arguments hold a number that is too large")
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadArguments("the arguments hold a number that is too large")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_int=_integer, parse_float=_fraction
)


def _depth(value: Any) -> int:
    deepest, todo = 0, [(value, 1)]
    while todo:
        item, depth = todo.pop()
        deepest = max(deepest, depth)
        if isinstance(item, dict):
            todo.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, list):
            todo.extend((child, depth + 1) for child in item)
    return deepest
