"""A backup's manifest: what belongs into a backup, and the record of what is in one. Pure.

`manifest.jsonl` is written last: one `backup` line, one `file` line for each file, one `left_out` line for each thing
that was passed over, one `end` line with the SHA-256 of all lines before it. Specified in docs/backup.md.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

import attrs

from bxcore import auditlog, convert, ids, strictjson
from bxcore.errors import BadMessage
from bxcore.ids import Hash32
from bxcore.timestamp import Timestamp

FORMAT = 1
NAME = "manifest.jsonl"
MAX_LINE = 65_536

SESSIONS, AUDIT, BROKER, MEMORY, ETC = "sessions", "audit", "broker", "memory", "etc"
STATE_PARTS = (SESSIONS, AUDIT, BROKER, MEMORY)
"""Directories of the home that are backed up. The others are made anew: run, calls, containers, index, log."""

GRANTS = "grants"

_LOG = re.compile(r"(0|[1-9][0-9]{0,9})\.jsonl")
_BASELINE = re.compile(r"(0|[1-9][0-9]{0,9})\.baseline\.json")
_RESULT = re.compile(r"[1-9][0-9]{0,15}\.txt")
_BROKER = {"audit-head", "audit-seals.jsonl", "clock"}
_COMPLETE = "complete"
_INDEX = re.compile(r".*(-wal|-shm|-journal|\.db|\.sqlite3?)")
_DEEPEST = 32
"""Directories of memory/ in one another: they are gone through one inside the other."""
_MODE = re.compile(r"0[0-7]{3}")


class NewerBackup(BadMessage):
    """The backup has a format that this version does not know."""


@attrs.frozen(kw_only=True)
class Begin:
    """The first line. `head` is the last record of the audit log in the backup, SEQ:HASH; None without a log."""

    format: int
    time: Timestamp
    boxmaker: str
    parts: tuple[str, ...]
    head: str | None


@attrs.frozen(kw_only=True)
class File:
    """A file: where it lies in the backup, and its status where it was copied from.

    `cut` bytes at its end were no whole line when it was copied, and were left out.
    """

    path: str
    bytes: int
    sha256: Hash32
    mode: str
    changed: Timestamp
    cut: int


@attrs.frozen(kw_only=True)
class LeftOut:
    """Something that lay among the files and is not in the backup."""

    path: str
    why: str


@attrs.frozen(kw_only=True)
class End:
    """The last line: how many files, how many bytes they have together, and the SHA-256 of every line before this."""

    files: int
    bytes: int
    sha256: Hash32


@attrs.frozen(kw_only=True)
class Manifest:
    """The whole of it."""

    begin: Begin
    files: Mapping[str, File]
    left_out: tuple[LeftOut, ...]
    end: End


_TAG = "type"
_TYPES: Mapping[str, type] = {"backup": Begin, "file": File, "left_out": LeftOut, "end": End}
_NAMES: Mapping[type, str] = {kind: name for name, kind in _TYPES.items()}


# -- what belongs into a backup ---------------------------------------------------------------------


def is_session(name: str) -> bool:
    """Whether a directory of that name in sessions/ is a session's."""
    try:
        return bool(ids.session_id(name))
    except ValueError:
        return False


def is_session_log(name: str) -> bool:
    """Whether a file of that name in a session's directory is its log."""
    return _LOG.fullmatch(name) is not None


def only_grows(path: str) -> bool:
    """Whether a file of that path is written to at its end alone, and has any length."""
    match path.split("/"):
        case ["audit", _] | ["broker", "audit-seals.jsonl"]:
            return True
        case ["sessions", _, name]:
            return is_session_log(name)
    return False


def belongs(path: str) -> bool:
    """Whether a file of that path, as it stands in a backup, is one that a backup holds."""
    match path.split("/"):
        case ["audit", name]:
            return auditlog.is_log_file(name)
        case ["broker", name]:
            return name in _BROKER
        case ["broker", "sessions", name]:
            return name == _COMPLETE or (name.endswith(".json") and is_session(name.removesuffix(".json")))
        case ["sessions", session, name]:
            return is_session(session) and (is_session_log(name) or _BASELINE.fullmatch(name) is not None)
        case ["sessions", session, "results", name]:
            return is_session(session) and _RESULT.fullmatch(name) is not None
        case ["memory", *names]:
            return _is_memory(names) and _INDEX.fullmatch(names[-1]) is None
        case ["etc", name] | ["etc", "grants", name]:
            return _is_plain(name) and name.endswith(".toml")
    return False


def may_hold(path: str) -> bool:
    """Whether a directory of that path may hold files that a backup holds."""
    match path.split("/"):
        case ["audit" | "broker" | "sessions" | "memory" | "etc"] | ["broker", "sessions"] | ["etc", "grants"]:
            return True
        case ["sessions", session] | ["sessions", session, "results"]:
            return is_session(session)
        case ["memory", *names]:
            return _is_memory(names)
    return False


def is_passing(name: str) -> bool:
    """Whether a name is that of a file that is being written, or a lock: no part of what is kept, and never told of."""
    return name.startswith(".")


def _is_memory(names: Sequence[str]) -> bool:
    return 0 < len(names) <= _DEEPEST and all(map(_is_plain, names))


def _is_plain(name: str) -> bool:
    return bool(name) and not name.startswith(".") and name.isprintable() and len(name) <= 255


# -- the file ---------------------------------------------------------------------------------------


def encode(begin: Begin, files: Sequence[File], left_out: Sequence[LeftOut]) -> Iterator[bytes]:
    """Yield the manifest's lines, each with its newline."""
    digest, size_bytes = sha256(), 0
    records: list[Begin | File | LeftOut] = [begin, *files, *left_out]
    for record in records:
        line = _line(record)
        digest.update(line)
        size_bytes += record.bytes if isinstance(record, File) else 0
        yield line
    yield _line(End(files=len(files), bytes=size_bytes, sha256=Hash32(digest.hexdigest())))


def _line(record: object) -> bytes:
    return strictjson.dumps(convert.unstructure_tagged(record, _NAMES, tag=_TAG)) + b"\n"


class Reader:
    """Told each line with `take`, then asked with `finish`. Both raise BadMessage, NewerBackup."""

    def __init__(self) -> None:
        self._begin: Begin | None = None
        self._end: End | None = None
        self._files: dict[str, File] = {}
        self._left_out: list[LeftOut] = []
        self._digest = sha256()
        self._bytes = 0

    def take(self, line: bytes) -> None:
        """The next line, without its newline."""
        if self._end is not None:
            raise BadMessage("something stands behind the end line")
        value = strictjson.loads(line)
        if self._begin is None:
            _refuse_newer(value)
        record: Begin | File | LeftOut | End = convert.structure_tagged(value, _TYPES, tag=_TAG)
        if isinstance(record, Begin) != (self._begin is None):
            raise BadMessage("the backup line must be the first one, and no other")
        if isinstance(record, End):
            self._take_end(record)
            return
        self._digest.update(line + b"\n")
        if isinstance(record, Begin):
            self._take_begin(record)
        elif isinstance(record, File):
            self._take_file(record)
        else:
            self._left_out.append(record)

    def _take_begin(self, begin: Begin) -> None:
        if len(set(begin.parts)) < len(begin.parts) or not set(begin.parts) <= {*STATE_PARTS, ETC}:
            raise BadMessage("parts that no backup has")
        self._begin = begin

    def _take_file(self, file: File) -> None:
        if not belongs(file.path) or file.bytes < 0 or file.cut < 0 or _MODE.fullmatch(file.mode) is None:
            raise BadMessage("a file that no backup holds")
        # What is restored goes by the parts: a file of another one would be in the backup and never be put back.
        if self._begin is None or file.path.partition("/")[0] not in self._begin.parts:
            raise BadMessage("a file of a part that was not there: the manifest was changed")
        if file.path in self._files:
            raise BadMessage("a file that was named before")
        self._files[file.path] = file
        self._bytes += file.bytes

    def _take_end(self, end: End) -> None:
        if (end.files, end.bytes, end.sha256) != (len(self._files), self._bytes, self._digest.hexdigest()):
            raise BadMessage("the end line does not fit the lines before it: the manifest was changed")
        self._end = end

    def finish(self) -> Manifest:
        if self._begin is None or self._end is None:
            raise BadMessage("there is no end line: it was never finished, or cut")
        return Manifest(begin=self._begin, files=self._files, left_out=tuple(self._left_out), end=self._end)


def _refuse_newer(value: object) -> None:
    found = value.get("format") if isinstance(value, dict) else None
    if type(found) is int and found > FORMAT:
        raise NewerBackup(f"of format {found}, which a newer Boxmaker wrote; this one knows {FORMAT}")
