"""What a pass over the audit log says: its head, what is wrong and where, which calls have no end. Pure."""

from enum import Enum

import attrs

from bxcore import ids
from bxcore.auditlog import BreakAccepted, Fault, Recovered
from bxcore.ids import Hash32
from bxcore.timestamp import Timestamp

GENESIS = Hash32("0" * 64)
"""What the first record names as the hash of the one before it."""


@attrs.frozen(kw_only=True)
class Head:
    """A record by number and hash: who knows a head knows everything before it."""

    seq: int
    hash: Hash32

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


START = Head(seq=0, hash=GENESIS)
"""The head of a log without a record."""


def parse_head(text: str) -> Head:
    """Return the head that `text` spells as SEQ:HASH, or raise ValueError."""
    number, _, digest = text.partition(":")
    if not (number.isascii() and number.isdecimal() and len(number) <= 16):
        raise ValueError("expected SEQ:HASH, a whole number and 64 hexadecimal characters")
    return Head(seq=int(number), hash=ids.hash32(digest))


class Kept(Enum):
    """What became of the head that was kept elsewhere."""

    NOT_ASKED = "not_asked"
    HELD = "held"
    NOT_REACHED = "not_reached"
    MISSING = "missing"
    DIFFERS = "differs"

    @property
    def fault(self) -> Fault | None:
        """Return what it says about the log, None where nothing is wrong."""
        return {Kept.MISSING: Fault.MISSING_END, Kept.DIFFERS: Fault.OTHER_END}.get(self)


@attrs.frozen(kw_only=True)
class Unsettled:
    """Calls by the seq of their decision: asked and not answered; allowed and not started; started and not ended."""

    asked: tuple[int, ...] = ()
    allowed: tuple[int, ...] = ()
    started: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Finding:
    """The line `line` of `file` does not fit. `changed` is the line that was changed, where the next ones tell."""

    file: str
    line: int
    fault: Fault
    detail: str
    changed: int | None = None


@attrs.frozen(kw_only=True)
class Torn:
    """The end of the log, from `line` of `file` on, is no record: what a Recovered must say about it."""

    prev: Hash32
    file: str
    line: int
    bytes: int
    sha256: Hash32

    def recovered(self, *, seq: int, time: Timestamp) -> Recovered:
        return Recovered(
            seq=seq,
            time=time,
            prev=self.prev,
            file=self.file,
            line=self.line,
            bytes=self.bytes,
            sha256=self.sha256,
        )


@attrs.frozen(kw_only=True)
class Break:
    """Where the log first fails to fit: what a BreakAccepted must say about it."""

    prev: Hash32
    file: str
    line: int
    last_good: int
    found: Fault
    bytes: int
    sha256: Hash32

    def accepted(self, *, seq: int, time: Timestamp) -> BreakAccepted:
        return BreakAccepted(
            seq=seq,
            time=time,
            prev=self.prev,
            file=self.file,
            line=self.line,
            last_good=self.last_good,
            found=self.found,
            bytes=self.bytes,
            sha256=self.sha256,
        )


@attrs.frozen(kw_only=True)
class Report:
    """The whole answer. `counts` is of good records by event; `recovered` and `accepted` are the first of many.

    `broken` is None where the log is whole; `torn` may be set then. `next_seq` is the number of the next line.
    """

    files: int
    bytes: int
    head: Head
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    more_findings: int
    recovered: tuple[Recovered, ...]
    accepted: tuple[BreakAccepted, ...]
    unsettled: Unsettled
    torn: Torn | None
    broken: Break | None
    kept: Kept
    next_seq: int

    @property
    def records(self) -> int:
        return sum(self.counts.values())
