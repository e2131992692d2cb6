"""The audit log's files, read piece by piece in constant memory. Changes nothing and takes no lock.

Reads: <directory>/YYYY-MM-DD.jsonl, oldest name first; other names are no part of the log. For brokerd at
its start, and for bxctl while brokerd runs or is down. Raises StateError.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from io import BufferedReader
from pathlib import Path

import attrs

from bxcore import auditlog, files
from bxcore.auditlog import Record, Recovered
from bxcore.chain import MAX_LINE, Verifier
from bxcore.errors import BadMessage
from bxcore.files import StateMissing

PIECE = 1024 * 1024
_RECOVERY_START = b'{"event":"recovery",'

Progress = Callable[[int], None]
"""Told now and then how many bytes have been read since the last time."""


@attrs.frozen(kw_only=True)
class Place:
    """A place between two lines: behind `lines` lines and `bytes` bytes of `file`; `seq` lines of the log before it."""

    file: str
    bytes: int
    lines: int
    seq: int


@attrs.frozen
class Line:
    """A line as stored, with its number in the whole log. `raw` is cut where it is longer than a record may be."""

    file: str
    number: int
    seq: int
    raw: bytes
    whole: bool


@attrs.frozen
class Entry:
    """A line, and whether a recovery behind it says that it was torn."""

    line: Line
    void: bool

    @property
    def record(self) -> Record | None:
        """The record that it holds, decoded anew; None where it holds none, or one that was torn."""
        try:
            return auditlog.decode(self.line.raw) if self.line.whole and not self.void else None
        except BadMessage:
            return None


def names(directory: Path) -> list[str]:
    """Return the names of the log's files, oldest first."""
    try:
        return sorted(path.name for path in directory.iterdir() if auditlog.is_log_file(path.name))
    except FileNotFoundError:
        raise StateMissing(f"{directory}: there is no audit log") from None
    except OSError as error:
        raise files.unreadable(directory, error) from None


def size(directory: Path, name: str) -> int:
    """Return a file's size in bytes."""
    try:
        return (directory / name).lstat().st_size
    except OSError as error:
        raise files.unreadable(directory / name, error) from None


def pieces(path: Path, *, start: int = 0) -> Iterator[bytes]:
    """Yield the content of a file from byte `start` on."""
    with files.open_read(path) as file:
        try:
            file.seek(start)
            while piece := file.read(PIECE):
                yield piece
        except OSError as error:
            raise files.unreadable(path, error) from None


def feed(verifier: Verifier, directory: Path, name: str, *, progress: Progress | None = None) -> None:
    """Tell `verifier` one whole file."""
    verifier.begin(name)
    for piece in pieces(directory / name):
        verifier.feed(piece)
        if progress is not None:
            progress(len(piece))
    verifier.end()


def entries(directory: Path, which: Sequence[str], *, start: Place | None = None) -> Iterator[Entry]:
    """Yield every line of the files `which` with its meaning: the log's first ones, or from `start` in the first."""
    seq = 0
    for name in which:
        begin = Place(file=name, bytes=0, lines=0, seq=seq)
        for entry in _settled(lines(directory, start if start is not None and start.file == name else begin)):
            seq = entry.line.seq
            yield entry


def lines(directory: Path, start: Place) -> Iterator[Line]:
    """Yield the lines of one file from `start` on."""
    number, seq = start.lines, start.seq
    path = directory / start.file
    with files.open_read(path) as file:
        file.seek(start.bytes)
        while raw := _line(file, path):
            number, seq = number + 1, seq + 1
            whole = raw.endswith(b"\n")
            yield Line(path.name, number, seq, raw[:MAX_LINE].removesuffix(b"\n"), whole and len(raw) <= MAX_LINE + 1)
            while not whole and (more := _line(file, path)):
                whole = more.endswith(b"\n")


def find(directory: Path, start: Place, seq: int) -> Entry | None:
    """Return the line of that number, which lies behind `start` in its file; None where it has fewer lines."""
    # The one after it too: it may say that this one was torn.
    near = itertools.dropwhile(lambda line: line.seq < seq, lines(directory, start))
    return next(_settled(itertools.islice(near, 2)), None)


def _line(file: BufferedReader, path: Path) -> bytes:
    try:
        return file.readline(MAX_LINE + 1)
    except OSError as error:
        raise files.unreadable(path, error) from None


def _settled(found: Iterator[Line]) -> Iterator[Entry]:
    """Hold each line back until the next one: a whole record that a recovery describes was torn, and is void."""
    held: Line | None = None
    for line in found:
        if held is not None:
            yield Entry(held, void=_voids(line, held))
        held = line
    if held is not None:
        yield Entry(held, void=False)


def _voids(line: Line, before: Line) -> bool:
    if not line.raw.startswith(_RECOVERY_START):
        return False
    record = Entry(line, void=False).record
    return (
        isinstance(record, Recovered)
        and record.line == before.number
        and record.bytes == len(before.raw)
        and record.sha256 == sha256(before.raw).hexdigest()
    )
