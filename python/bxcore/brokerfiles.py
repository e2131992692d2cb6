"""The small files that brokerd keeps beside the audit log: a session's labels, the latest time seen. Pure.

brokerd writes them (brokerd.sessionstate, brokerd.expiryclock); brokerd and `bxctl backup verify` read them.
Specified in docs/authority.md.
"""

import attrs

from bxcore import convert, strictjson
from bxcore.errors import BadMessage
from bxcore.ids import SessionId
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass

VERSION = 1
MOST_BYTES = 4096

CLOCK = "clock"
SESSIONS = "sessions"
COMPLETE = "complete"
"""In the directory of the sessions: each session that has labels has its file. Theirs end in .json."""


class NewerFile(BadMessage):
    """A newer Boxmaker wrote it."""


@attrs.frozen(kw_only=True)
class SessionFile:
    """`<session>.json`: what a session has seen."""

    v: int
    session: SessionId
    taint: DataClass
    untrusted: bool


@attrs.frozen(kw_only=True)
class ClockFile:
    """`clock`: the latest time that was ever seen here."""

    v: int
    latest: Timestamp


def encode(file: SessionFile | ClockFile) -> bytes:
    """Return the content of the file."""
    return strictjson.dumps(convert.unstructure(file)) + b"\n"


def read_session(session: SessionId, content: bytes) -> SessionFile:
    """Return the labels of `session`, whose file holds `content`. Raises NewerFile, BadMessage."""
    value = strictjson.loads(content)
    version = value.get("v") if type(value) is dict else None
    if type(version) is int and version > VERSION:
        raise NewerFile(f"of version {version}, which a newer Boxmaker wrote; this one knows {VERSION}")
    stored = convert.structure(value, SessionFile)
    if stored.v != VERSION:
        raise BadMessage(f"v: expected {VERSION}")
    if stored.session != session:
        raise BadMessage("session: expected the one that names the file")
    if stored.taint is DataClass.PUBLIC:
        raise BadMessage("taint: expected private or secret, for every session starts as private")
    return stored


def read_clock(content: bytes) -> Timestamp:
    """Return the time that the clock's file holds. Raises BadMessage."""
    stored = convert.structure(strictjson.loads(content), ClockFile)
    if stored.v != VERSION:
        raise BadMessage(f"v: expected {VERSION}")
    return stored.latest
