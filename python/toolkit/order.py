"""What one container is asked to do: the JSON line on its stdin -> an Order, or the reason why it is none.

Written by brokerd from a decision; checked here all the same, since a wrapper that guesses is none.
Pure.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from bxcore import paths, strictjson, tools
from bxcore.errors import BoxmakerError
from bxcore.strictjson import JsonValue

MOST_BYTES = 1_048_576
"""Of the line; brokerd's own frame is no longer."""


MOST_ARGUMENT_BYTES = tools.MAX_ARGUMENT_BYTES + 2 * paths.MAX_BYTES
"""The path in them is the resolved one: longer than what the model wrote, and each of its bytes may be escaped."""


class Misuse(Exception):
    """The line is not an order. Only brokerd writes these, so the two were built apart. Exit code 2."""


class ToolError(Exception):
    """What the tool itself has to say to the model instead of a result. Exit code 1."""


@attrs.frozen(kw_only=True)
class Mount:
    """A place that was mounted for this call, and which file or directory brokerd had in mind there."""

    path: str
    device: int
    inode: int


@attrs.frozen(kw_only=True)
class Order:
    """One call. `arguments` is an object of the tool's own class; `proxy` is the socket of the egress proxy.

    Its path is the resolved one, which was judged and mounted, not what the model wrote.
    """

    tool: str
    arguments: object
    mounts: tuple[Mount, ...]
    proxy: str | None


def read(line: bytes) -> Order:
    """Return the order that the line spells, or raise Misuse."""
    try:
        return _order(_object(strictjson.loads(line), "tool", "arguments", "mounts", "proxy"))
    except (BoxmakerError, ValueError, KeyError) as error:
        raise Misuse(str(error)) from None


def _order(given: Mapping[str, Any]) -> Order:
    if type(given["mounts"]) is not list:
        raise ValueError("mounts: expected a list")
    tool, proxy = _text(given["tool"]), given["proxy"]
    return Order(
        tool=tool,
        arguments=tools.parse(tool, strictjson.dumps(given["arguments"]).decode(), most_bytes=MOST_ARGUMENT_BYTES),
        mounts=tuple(_mount(_object(mount, "path", "device", "inode")) for mount in given["mounts"]),
        proxy=None if proxy is None else paths.check(_text(proxy)),
    )


def _mount(given: Mapping[str, Any]) -> Mount:
    return Mount(path=paths.check(_text(given["path"])), device=_number(given["device"]), inode=_number(given["inode"]))


def _object(value: JsonValue, *keys: str) -> Mapping[str, Any]:
    if type(value) is not dict or value.keys() != set(keys):
        raise ValueError(f"expected an object of {', '.join(keys)}")
    return value


def _text(value: JsonValue) -> str:
    if type(value) is not str:
        raise ValueError("expected text")
    return value


def _number(value: JsonValue) -> int:
    # As digits too: the inode numbers of some file systems go beyond what our JSON counts up to.
    if type(value) is str and value.isascii() and value.isdecimal() and len(value) <= 20:
        return int(value)
    if type(value) is int and value >= 0:
        return value
    raise ValueError("expected a whole number")
