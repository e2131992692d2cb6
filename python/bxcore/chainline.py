"""One line of the audit log, looked at without parsing JSON where that will do. Pure.

The first fields of every record stand in one order (bxcore.auditlog): event, seq, time, prev, and then the
decision that the record is about or, in a decision, its verdict.
"""

import re
from hashlib import sha256

from bxcore import auditlog, strictjson
from bxcore.auditlog import BreakAccepted, Fault, Recovered
from bxcore.chainreport import Head
from bxcore.errors import BadMessage
from bxcore.ids import Hash32

MAX_LINE = 4 * 1024 * 1024
"""Longest record, without its newline. A longer line is none."""

Groups = tuple[bytes, bytes, bytes, bytes | None, bytes | None, bytes | None]
"""What stands in front: event, seq, prev, decision, ending, verdict."""

PREFIX = re.compile(
    rb'\{"event":"([a-z_]+)","seq":([0-9]{1,16}),"time":".{24}","prev":"([0-9a-f]{64})"'
    rb'(?:,"decision":([0-9]{1,16})(?:,"ending":"([a-z_]+)")?|,"verdict":"([a-z]+)")?[,}]'
)

RECOVERY, ACCEPTED = b"recovery", b"accepted_break"
SPECIAL = frozenset((RECOVERY, ACCEPTED))
"""Events that describe other lines. Only these are ever parsed while all is well."""


def told(line: bytes) -> Groups | Recovered | BreakAccepted | None:
    """Return what a line is, None where it is no record."""
    found = PREFIX.match(line)
    if found is None or len(line) > MAX_LINE or not is_object(line):
        return None
    groups: Groups = found.groups()  # type: ignore[assignment]  # as many as the expression has
    if groups[0] not in SPECIAL:
        return groups
    try:
        record = auditlog.decode(line)
    except BadMessage:
        return None
    return record if isinstance(record, Recovered | BreakAccepted) else None


def is_object(line: bytes) -> bool:
    try:
        return type(strictjson.loads(line)) is dict
    except BadMessage:
        return False


def wrong(told: Groups, before: Head) -> tuple[Fault, str]:
    seq, belongs = int(told[1]), before.seq + 1
    if seq != belongs:
        return Fault.OUT_OF_ORDER, f"record {seq} where {belongs} belongs: lines were removed, added or moved"
    return Fault.BROKEN_LINK, "does not name the hash of the record before it: one of the two was changed"


def head_of(line: bytes, seq: int) -> Head:
    return Head(seq=seq, hash=Hash32(sha256(line).hexdigest()))
