"""The owner's text and the session it goes to: checked here, before loopd is asked. Pure but for the id."""

import secrets

from bxcore import ids
from bxcore.deadline import Clock
from bxcore.errors import BoxmakerError
from bxcore.ids import SessionId
from bxcore.timestamp import to_text
from bxcore.wire.channel import MAX_TEXT_BYTES


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
        limit = f"{MAX_TEXT_BYTES:,}"
        raise Unsendable(f"the text has {size_bytes:,} bytes, a message may have {limit}; nothing was sent")
    return text


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
