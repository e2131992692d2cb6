"""Files of one JSON object a line: appended to, never changed, read back after any crash.

A record is acknowledged when JsonlWriter.append returns. A crash in the middle of that can leave a
tail that is no record: it is kept, ended with a newline, and described by a `recovery` record after
it. Readers skip what a recovery record describes and report every other damaged line by its number.
Reading takes constant memory. Threads: a writer belongs to one thread at a time; reading is free.
"""

import hashlib
import os
from array import array
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path

import attrs

from bxcore import convert, files, strictjson
from bxcore.deadline import Clock
from bxcore.errors import BadMessage
from bxcore.files import Appender, Files
from bxcore.ids import Hash32
from bxcore.strictjson import JsonValue
from bxcore.timestamp import Timestamp

MAX_LINE = 8 * 1024 * 1024
"""Longest line, without its newline. Longer ones are never written, and damaged where they are met."""

RECOVERY = "recovery"
_RECOVERY_START = b'{"type":"recovery",'
_TAG = "type"
_PIECE = 65_536


@attrs.frozen(kw_only=True)
class Recovery:
    """Record `recovery`: from line `line` (counted from 1) up to this record is no record.

    `bytes` and `sha256` are those of the tail as it was found, newlines inside it included.
    """

    time: Timestamp
    line: int
    bytes: int
    sha256: Hash32


@attrs.frozen
class Line:
    """A line as stored, the `number`-th from 1, at byte `start` of the file.

    `raw` has no newline and at most MAX_LINE bytes of the `size` that the line has.
    """

    number: int
    start: int
    raw: bytes
    size: int
    complete: bool


@attrs.frozen
class Entry:
    """A line with its meaning. `value` is the object, or None where `fault` says why there is none.

    `torn` marks a line that a crash cut and a recovery record describes (or, at the very end of a
    file that no writer has opened since, one without its newline): expected, never acknowledged.
    A fault that is not torn is damage.
    """

    number: int
    start: int
    raw: bytes
    value: dict[str, JsonValue] | None
    fault: str | None
    torn: bool


def read_lines(path: Path) -> Iterator[Line]:
    """Yield every line; only the last can be incomplete. Raises StateError where `path` cannot be read."""
    with files.open_read(path) as file:
        number, start = 0, 0
        while raw := _line(file, path):
            number += 1
            size = len(raw)
            ended = raw.endswith(b"\n")
            while not ended and size > MAX_LINE and (more := _line(file, path)):
                size += len(more)
                ended = more.endswith(b"\n")
            yield Line(number, start, raw[:MAX_LINE].removesuffix(b"\n"), size - ended, ended)
            start += size


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield every line with its meaning, recovery records included; see Entry. Raises StateError.

    Lines that have no meaning are held back until the record after them says whether a crash cut
    them: memory is that of one line, plus that of such a run.
    """
    held: list[Entry] = []
    for line in read_lines(path):
        entry = _entry(line)
        if entry.value is not None:
            yield from _settled(path, held, entry)
            held = []
        held.append(entry)
    yield from held


class JsonlWriter:
    """A file of records, open for appending. Made with `open`."""

    def __init__(self, appender: Appender, encode: Callable[[object], JsonValue], recovery: Recovery | None) -> None:
        self._appender = appender
        self._encode = encode
        self.recovery = recovery
        """What opening had to describe, or None: worth a line in the log and a word to the owner."""

    @classmethod
    def open(
        cls,
        path: Path,
        disk: Files,
        *,
        clock: Clock,
        encode: Callable[[object], JsonValue] = convert.unstructure,
    ) -> "JsonlWriter":
        """Open or make `path`; a tail that is no record is kept and described. Raises StateError."""
        appender = disk.open_append(path)
        try:
            recovery = _describe_tail(path, appender, clock)
        except OSError as error:
            appender.close()
            raise files.unreadable(path, error) from None
        except BaseException:
            appender.close()
            raise
        return cls(appender, encode, recovery)

    def append(self, *records: object) -> None:
        """Write all records, durable when this returns: one write, one fsync.

        Raises StateError where that failed: the writer is of no more use then, and the records may be
        there in part. ValueError (nothing written) for a record that is longer than MAX_LINE.
        """
        lines = [strictjson.dumps(self._encode(record)) for record in records]
        for line in lines:
            if len(line) > MAX_LINE:
                raise ValueError(f"a record of {len(line)} bytes is longer than a line may be, {MAX_LINE}")
        if lines:
            self._appender.append(b"\n".join(lines) + b"\n")

    def close(self) -> None:
        """Give the file back. May be called twice."""
        self._appender.close()


def _line(file: BufferedReader, path: Path) -> bytes:
    try:
        return file.readline(MAX_LINE + 1)
    except OSError as error:
        raise files.unreadable(path, error) from None


def _entry(line: Line) -> Entry:
    if not line.complete:
        return Entry(line.number, line.start, line.raw, None, "cut off: no newline at its end", torn=True)
    try:
        return Entry(line.number, line.start, line.raw, _object(line), None, torn=False)
    except BadMessage as error:
        return Entry(line.number, line.start, line.raw, None, error.detail, torn=False)


def _object(line: Line) -> dict[str, JsonValue]:
    if line.size > MAX_LINE:
        raise BadMessage(f"longer than a line may be: {line.size} bytes")
    value = strictjson.loads(line.raw)
    if type(value) is not dict:
        raise BadMessage("expected an object")
    return value


def _settled(path: Path, held: list[Entry], follower: Entry) -> Iterator[Entry]:
    """Yield what was held back, now that the record after it is known."""
    recovery = _recovery(follower)
    tail = [entry for entry in held if recovery is not None and entry.number >= recovery.line]
    if recovery is None or not tail or not _describes(recovery, path, tail[0].start, follower.start):
        yield from held
        return
    yield from held[: len(held) - len(tail)]
    for entry in tail:
        yield Entry(entry.number, entry.start, entry.raw, None, "cut off by a crash", torn=True)


def _recovery(entry: Entry) -> Recovery | None:
    if not entry.raw.startswith(_RECOVERY_START):
        return None
    try:
        return convert.structure_tagged(entry.value, {RECOVERY: Recovery}, tag=_TAG)
    except BadMessage:
        return None


def _describes(recovery: Recovery, path: Path, start: int, end: int) -> bool:
    if end - start - recovery.bytes not in (0, 1):  # 1: the tail had no newline, and was given one
        return False
    # The hash too: bytes that changed after they were described are damage, not a tear.
    with files.open_read(path) as file:
        try:
            return recovery.sha256 == _hash(file, start, recovery.bytes)
        except OSError as error:
            raise files.unreadable(path, error) from None


def _hash(file: BufferedReader, start: int, count: int) -> str:
    digest = hashlib.sha256()
    file.seek(start)
    while count and (piece := file.read(min(count, _PIECE))):
        digest.update(piece)
        count -= len(piece)
    return digest.hexdigest()


def _describe_tail(path: Path, appender: Appender, clock: Clock) -> Recovery | None:
    with files.open_read(path) as file:
        starts = _line_starts(path)
        good = len(starts) - 1
        while good and not _is_record(file, starts[good - 1], starts[good]):
            good -= 1
        if good == len(starts) - 1:
            return None
        digest = _hash(file, starts[good], starts[-1] - starts[good])
        file.seek(-1, os.SEEK_END)
        newline = b"" if file.read() == b"\n" else b"\n"
    recovery = Recovery(time=clock.now_ms(), line=good + 1, bytes=starts[-1] - starts[good], sha256=Hash32(digest))
    value = convert.unstructure_tagged(recovery, {Recovery: RECOVERY}, tag=_TAG)
    appender.append(newline + strictjson.dumps(value) + b"\n")
    return recovery


def _line_starts(path: Path) -> "array[int]":
    """Return the offset at which each line starts, and the size of the file after them."""
    starts = array("Q", [0])
    for line in read_lines(path):
        starts.append(line.start + line.size + line.complete)
    return starts


def _is_record(file: BufferedReader, start: int, end: int) -> bool:
    file.seek(start)
    raw = file.read(min(end - start, MAX_LINE + 1))
    line = Line(0, start, raw.removesuffix(b"\n"), end - start - 1, raw.endswith(b"\n"))
    return _entry(line).value is not None
