"""The audit log's records and its file names: what brokerd writes and bxctl reads.

One record per line of audit/YYYY-MM-DD.jsonl, each naming the hash of the record before it (bxcore.chain).
Results are recorded by hash and size: a secret that was read must not be copied here. The order of the
fields is part of the format: chain reads event, seq, time, prev and the one after them without parsing JSON.
Specified in docs/audit-log.md.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import TypeVar, get_args

import attrs

from bxcore import convert, strictjson, timestamp
from bxcore.ids import MAX_SAFE_INTEGER, CallId, Hash32, SessionId
from bxcore.timestamp import DAY_MS, Timestamp
from bxcore.wire.admin import ApprovalEnding, Verdict
from bxcore.wire.tools import RISING, DataClass, DenyReason

TAG = "event"

_quoted = json.JSONEncoder(ensure_ascii=False).encode

_FILE_NAME = re.compile(r"(\d{4})-(\d{2})-(\d{2})\.jsonl")


class RunEnding(Enum):
    """How the run of a call ended. UNKNOWN: brokerd died meanwhile, so its effect is not known."""

    DONE = "done"
    TOOL_ERROR = "tool_error"
    FAILED = "failed"
    UNKNOWN = "unknown"


_RETURNED = {RunEnding.DONE, RunEnding.TOOL_ERROR}


class Fault(Enum):
    """What is wrong with the log at one place. The last three show only against what was kept outside of it."""

    UNREADABLE = "unreadable"
    OUT_OF_ORDER = "out_of_order"
    BROKEN_LINK = "broken_link"
    FALSE_RECOVERY = "false_recovery"
    FALSE_ACCEPTANCE = "false_acceptance"
    MISSING_END = "missing_end"
    OTHER_END = "other_end"
    OTHER_BYTES = "other_bytes"


@attrs.frozen(kw_only=True)
class Decided:
    """event `decision`: what policy said about one request. `arguments` is what loopd sent, whole.

    Longer ones than a tool takes, and a name that no tool has room for, are given by size and hash.
    `canonical` and `path` are None where the arguments could not be read; `grants` is the digest of
    all grant files; `path` is the resolved one that was judged, `host` a `name:port`.
    """

    seq: int
    time: Timestamp
    prev: Hash32
    verdict: Verdict
    session: SessionId
    call: CallId
    tool: str
    arguments: str
    canonical: Hash32 | None
    path: str | None
    host: str | None
    taint: DataClass
    untrusted: bool
    grant: str | None
    grant_hash: Hash32 | None
    grants: Hash32 | None
    reason: DenyReason | None
    detail: str | None


@attrs.frozen(kw_only=True)
class Answered:
    """event `approval`: how the question about decision `decision` ended, and with which grant and labels.

    `approver` is `bxctl` or a channel's user id; `post` the channel's post; `reason` the owner's words.
    """

    seq: int
    time: Timestamp
    prev: Hash32
    decision: int
    ending: ApprovalEnding
    approver: str | None
    post: str | None
    reason: str | None
    grant: str | None
    grant_hash: Hash32 | None
    taint: DataClass
    untrusted: bool


@attrs.frozen(kw_only=True)
class Started:
    """event `started`: the container of decision `decision` is about to run. `plan` hashes all of its settings."""

    seq: int
    time: Timestamp
    prev: Hash32
    decision: int
    image: str
    plan: Hash32


@attrs.frozen(kw_only=True)
class Ended:
    """event `result`: what came back, by hash and size in bytes, and the labels that it was given.

    `taint_after` and `untrusted_after` are the session's. `exit` is None where nothing exited.
    """

    seq: int
    time: Timestamp
    prev: Hash32
    decision: int
    session: SessionId
    ending: RunEnding
    exit: int | None
    size: int
    sha256: Hash32
    truncated: bool
    data_class: DataClass
    untrusted: bool
    taint_after: DataClass
    untrusted_after: bool

    @property
    def least_labels(self) -> tuple[DataClass, bool]:
        """What its session has at least since then: what it was said to be, and what went back to it.

        A failed call gave back fixed text only, so its own labels raise nothing.
        """
        if self.ending not in _RETURNED:
            return self.taint_after, self.untrusted_after
        rank = max(RISING.index(self.taint_after), RISING.index(self.data_class))
        return RISING[rank], self.untrusted_after or self.untrusted


@attrs.frozen(kw_only=True)
class Recovered:
    """event `recovery`: the end of this file from line `line` on was torn or unreadable; it is kept, and void.

    `bytes` and `sha256` are those of that end, newlines inside it included, the one behind it not. `prev`
    is the hash of the last record before it.
    """

    seq: int
    time: Timestamp
    prev: Hash32
    file: str
    line: int
    bytes: int
    sha256: Hash32


@attrs.frozen(kw_only=True)
class BreakAccepted:
    """event `accepted_break`: the owner accepted that the log does not fit from `file`:`line` on.

    `found` is what was wrong there first and `last_good` the seq of the last record before it, whose hash is
    `prev`. `bytes` and `sha256` are those of everything from there to this record, as in `recovery`.
    """

    seq: int
    time: Timestamp
    prev: Hash32
    file: str
    line: int
    last_good: int
    found: Fault
    bytes: int
    sha256: Hash32


Record = Decided | Answered | Started | Ended | Recovered | BreakAccepted

Kind = TypeVar("Kind", bound=Record)
Make = Callable[[int, Timestamp, Hash32], Kind]
"""Makes a record, told its number, its time and the hash of the line before it."""

EVENTS: Mapping[str, type[Record]] = {
    "decision": Decided,
    "approval": Answered,
    "started": Started,
    "result": Ended,
    "recovery": Recovered,
    "accepted_break": BreakAccepted,
}
EVENT_OF: Mapping[type, str] = {record: event for event, record in EVENTS.items()}


def _fields(record: type[Record]) -> Iterator[tuple[str, str, frozenset[type]]]:
    """Yield for each field what stands before its value, its name, and the types that the value may have."""
    begin = f'{{"{TAG}":"{EVENT_OF[record]}"'
    for field in attrs.fields(attrs.resolve_types(record)):
        kinds = get_args(field.type) or (field.type,)
        # A NewType is its own supertype as far as a value can tell.
        yield f'{begin},"{field.name}":', field.name, frozenset(getattr(kind, "__supertype__", kind) for kind in kinds)
        begin = ""


# Written out at import, because a record is made between two waits for the disk: what is looked up then is cold.
_FIELDS: Mapping[type, tuple[tuple[str, str, frozenset[type]], ...]] = {kind: tuple(_fields(kind)) for kind in EVENT_OF}
_WORDS: Mapping[object, str] = {True: "true", False: "false", None: "null"} | {
    member: f'"{member.value}"'
    for vocabulary in (Verdict, ApprovalEnding, RunEnding, DataClass, DenyReason, Fault)
    for member in vocabulary
}


def encode(record: Record) -> bytes:
    """Return the stored line of `record`, without its newline: what strictjson would write, in one step.

    TypeError where a field holds another type than it declares, ValueError for what could not be read again.
    """
    parts = []
    for key, name, kinds in _FIELDS[type(record)]:
        value = getattr(record, name)
        kind = type(value)
        if kind not in kinds:
            raise TypeError(f"{name}: holds {kind.__name__}")
        parts.append(key)
        if kind is str:
            parts.append(_quoted(value))
        elif kind is int:
            parts.append(_time(value) if name == "time" else _number(value))
        else:
            parts.append(_WORDS[value])
    parts.append("}")
    return "".join(parts).encode()


def _number(value: int) -> str:
    if 0 <= value <= MAX_SAFE_INTEGER:
        return str(value)
    raise ValueError("an integer below 0 or beyond 2^53-1 has no place in a record")


def _time(value: int) -> str:
    days, ms = divmod(value, DAY_MS)
    seconds, ms = divmod(ms, 1000)
    return f'"{_day(days)}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{ms:03d}Z"'


@lru_cache(maxsize=4)
def _day(days: int) -> str:
    return timestamp.to_text(Timestamp(days * DAY_MS))[:10]


def decode(line: bytes) -> Record:
    """Return the record of a stored line. Raises BadMessage."""
    return convert.structure_tagged(strictjson.loads(line), EVENTS, tag=TAG)


def file_name(day: date) -> str:
    """Return the name of the log file of `day` (UTC)."""
    return f"{day.isoformat()}.jsonl"


def is_log_file(name: str) -> bool:
    """Whether `name` is that of an audit log file: a real day of the calendar, nothing else."""
    match = _FILE_NAME.fullmatch(PurePath(name).name)
    if match is None or not name.isascii():
        return False
    try:
        date(*map(int, match.groups()))
    except ValueError:
        return False
    return True
