"""The owner's text and the session it goes to: checked here, before loopd is asked. Pure but for the id."""

import difflib
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from bxcore import ids, strictjson, tools
from bxcore.deadline import Clock
from bxcore.errors import BadMessage, BoxmakerError
from bxcore.frame import MAX_FRAME
from bxcore.ids import SessionId
from bxcore.timestamp import to_text
from bxcore.wire.channel import MAX_TEXT_BYTES

_ENVELOPE_BYTES = 1_024
"""More than everything in the frame of a user_message but its text."""

MAX_SPELLED_BYTES = MAX_FRAME - _ENVELOPE_BYTES
"""What a text may take once it is spelled as JSON."""


_INTEGER = re.compile(r"-?[0-9]{1,15}")


class Unsendable(BoxmakerError):
    """What the owner gave cannot be a message, or names no session. Exit 2."""

    code = "unsendable"


def checked(text: str) -> str:
    """Return `text`, or raise Unsendable where loopd could not take it."""
    if not text.strip():
        raise Unsendable("there is no text to send")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise Unsendable("the text is not valid UTF-8; nothing was sent") from None
    if size_bytes > MAX_TEXT_BYTES:
        raise Unsendable(f"the text has {size_bytes:,} bytes, a message may have {MAX_TEXT_BYTES:,}; nothing was sent")
    spelled_bytes = len(strictjson.dumps(text))
    if spelled_bytes > MAX_SPELLED_BYTES:
        why = "its control characters take six bytes each on the way"
        numbers = f"the text becomes {spelled_bytes:,} bytes, a frame holds {MAX_SPELLED_BYTES:,}"
        raise Unsendable(f"{numbers}: {why}; nothing was sent")
    return text


def read(stream: BinaryIO) -> str:
    """Return all of `stream` as text, or raise Unsendable once it has more than a message may have."""
    untrusted = stream.read(MAX_TEXT_BYTES + 1)
    if len(untrusted) > MAX_TEXT_BYTES:
        raise Unsendable(
            f"the input has more than {MAX_TEXT_BYTES:,} bytes, the most that a message may have; nothing was sent"
        )
    return decoded(untrusted)


def decoded(untrusted: bytes) -> str:
    """Return the text that `untrusted` spells, or raise Unsendable with the place of the first bad byte."""
    try:
        return untrusted.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1:,} of {len(untrusted):,}"
        raise Unsendable(f"the input is not valid UTF-8 ({where}); nothing was sent") from None


def session(named: str) -> SessionId:
    """Return the session id that the owner typed, or raise Unsendable."""
    try:
        return ids.session_id(named)
    except ValueError as error:
        raise Unsendable(f"not a session id: {error}") from None


def new_session(clock: Clock) -> SessionId:
    """Return a fresh id, YYYYMMDD-HHMMSS-xxxx (UTC, then random): it sorts by time and can be typed."""
    moment = to_text(clock.now_ms())  # 2026-11-30T10:26:00.000Z
    day, time = moment[:10].replace("-", ""), moment[11:19].replace(":", "")
    return ids.session_id(f"{day}-{time}-{secrets.token_hex(2)}")


def arguments(tool: str, pairs: Sequence[str]) -> str:
    """Return the JSON object that NAME=VALUE `pairs` spell, typed as `tool` wants them; raise Unsendable."""
    properties = _properties(tool)
    found: dict[str, str | int] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Unsendable("an argument is written NAME=VALUE")
        if name in found:
            raise Unsendable(f"the argument {name} is given twice")
        whole = properties.get(name) == "integer" and _INTEGER.fullmatch(value)
        found[name] = int(value) if whole else value
    try:
        return strictjson.dumps(dict(found)).decode()
    except ValueError:
        raise Unsendable("an argument is not valid UTF-8") from None


def check_call(tool: str, text: str) -> None:
    """Raise Unsendable where there is no such tool, or the JSON `text` has other arguments than it takes.

    What stands in the arguments is brokerd's to judge.
    """
    if tool not in tools.TOOLS:
        raise Unsendable(f"there is no tool {tool}{_meant(tool, tools.TOOLS)}")
    try:
        given = strictjson.loads(text.encode("utf-8", "surrogateescape"))
    except BadMessage as error:
        raise Unsendable(f"the arguments are no JSON: {error.detail}") from None
    if not isinstance(given, dict):
        raise Unsendable("the arguments must be one JSON object")
    takes, needed = list(_properties(tool)), _needed(tool)
    for name in given:
        if name not in takes:
            raise Unsendable(f"{tool} takes no argument {name}{_meant(name, takes)}")
    if missing := [name for name in needed if name not in given]:
        raise Unsendable(f"{tool} needs the argument {missing[0]}; it takes {', '.join(takes)}")


def _meant(name: str, known: Iterable[str]) -> str:
    alike = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {alike[0]}?" if alike else f"; there are {', '.join(known)}"


def _needed(tool: str) -> list[str]:
    found: Any = tools.schema(tool)["required"]
    return list(found)


def _properties(tool: str) -> dict[str, object]:
    if tool not in tools.TOOLS:
        return {}
    found: Any = tools.schema(tool)["properties"]
    return {name: entry["type"] for name, entry in found.items()}
