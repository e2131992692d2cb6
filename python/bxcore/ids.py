"""Identifiers that cross a wire or name a file. Each is a NewType with one parser.

The parsers are what bxcore.convert calls for these types, so a value of one of these types that
came from outside has always been checked. Standard library only.
"""

import re
from typing import NewType

SessionId = NewType("SessionId", str)
"""1 to 64 characters of [a-z0-9-]; a directory name below sessions/."""

MessageKey = NewType("MessageKey", str)
"""1 to 64 characters of [A-Za-z0-9_-]; chosen by the client, makes resending harmless."""

CallId = NewType("CallId", int)
"""Number of a tool call, 1 to 2^53-1, increasing within a session."""

Hash32 = NewType("Hash32", str)
"""SHA-256 as 64 lowercase hexadecimal characters."""

MattermostId = NewType("MattermostId", str)
"""What Mattermost calls a user, a channel or a post: 26 characters of [a-z0-9]."""

_SESSION = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")

_MATTERMOST = re.compile(r"[a-z0-9]{26}")

MAX_SAFE_INTEGER = 2**53 - 1


def session_id(value: object) -> SessionId:
    """Return `value` as a SessionId or raise ValueError. A leading hyphen is refused (option injection)."""
    if type(value) is str and _SESSION.fullmatch(value):
        return SessionId(value)
    raise ValueError("expected 1 to 64 characters of a-z, 0-9 and -, not starting with -")


def message_key(value: object) -> MessageKey:
    """Return `value` as a MessageKey or raise ValueError."""
    if type(value) is str and _KEY.fullmatch(value):
        return MessageKey(value)
    raise ValueError("expected 1 to 64 characters of A-Z, a-z, 0-9, _ and -")


def call_id(value: object) -> CallId:
    """Return `value` as a CallId or raise ValueError."""
    if type(value) is int and 1 <= value <= MAX_SAFE_INTEGER:
        return CallId(value)
    raise ValueError("expected a whole number of 1 or more")


def hash32(value: object) -> Hash32:
    """Return `value` as a Hash32 or raise ValueError."""
    if type(value) is str and _HASH.fullmatch(value):
        return Hash32(value)
    raise ValueError("expected 64 lowercase hexadecimal characters")


def mattermost_id(value: object) -> MattermostId:
    """Return `value` as a MattermostId or raise ValueError."""
    if type(value) is str and _MATTERMOST.fullmatch(value):
        return MattermostId(value)
    raise ValueError("expected 26 characters of a-z and 0-9")


def new_message_key() -> MessageKey:
    """Return a fresh key (96 random bits)."""
    import secrets  # late: each tool container imports this module, and none makes a key

    return MessageKey(secrets.token_hex(12))
