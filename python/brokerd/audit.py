"""The audit log's one writer: a record is on disk when `append` returns, or nothing is ever recorded again.

Writes: <audit>/YYYY-MM-DD.jsonl (UTC), and beside it <state>/audit-head and <state>/audit-seals.jsonl. The
directory and the file are locked while it is open. Invariants: nothing is repaired, shortened or removed; the
file is never an older one than the last; after any failed write or fsync, and once the files are not as we left
them, every append raises AuditUnavailable until a restart. Threads: any; one lock, held while a record is
written, and never by who looks at what is already there. Specified in docs/audit-log.md.
"""

import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from brokerd import auditseals, auditstart
from brokerd.auditguard import Guard
from brokerd.audithead import HeadFile
from brokerd.auditseals import SealFile
from brokerd.auditstart import AuditExposed, Examined, Progress
from bxcore import auditfiles, audithead, auditlog, files, logs
from bxcore.auditfiles import Place
from bxcore.auditlog import BreakAccepted, Decided, Kind, Make, Record, Recovered
from bxcore.chain import MAX_LINE, START, Head, Unsettled, Verifier
from bxcore.deadline import Clock
from bxcore.errors import StateError
from bxcore.files import Appender, DirectoryLock, Files
from bxcore.timestamp import DAY_MS, MAX_TIMESTAMP, Timestamp

__all__ = ["AuditBroken", "AuditExposed", "AuditLog", "AuditUnavailable"]

log = logs.get("audit")


class AuditUnavailable(StateError):
    """A record could not be made durable. Until a restart none can: nobody knows what is on the disk."""

    code = "audit_unavailable"


class AuditBroken(StateError):
    """The log is not what was written. brokerd does not start until the owner has accepted that."""

    code = "audit_broken"


class AuditLog:
    """The log, open for appending. Made with `open`."""

    def __init__(self, directory: Path, lock: DirectoryLock, *, disk: Files, clock: Clock, keep: HeadFile) -> None:
        self._directory, self._directory_lock = directory, lock
        self._disk, self._clock, self._head_file = disk, clock, keep
        self._lock = threading.Lock()
        self._appender: Appender | None = None
        self._guard: Guard
        self._broken = False
        self._verifier = Verifier()
        self._head = START
        self._day = -1
        self._current: Progress
        self._places: list[Place] = []
        self._seals: SealFile
        self.recovered: Recovered | None = None
        """The torn end that opening had to describe, if any: worth a word to the owner."""
        self.accepted: BreakAccepted | None = None
        """The break that opening has recorded as accepted, if any."""

    @classmethod
    def open(cls, directory: Path, state: Path, *, disk: Files, clock: Clock, accept_break: bool = False) -> "AuditLog":
        """Verify the log and open it. Either directory is made where it is not there.

        Raises AuditBroken (unless `accept_break`, which then records it), AuditExposed, AuditUnavailable,
        StateInUse where another brokerd has it, StateError.
        """
        disk.make_dir(directory)
        disk.make_dir(state)
        auditstart.require_private(directory)
        auditstart.require_unshared(state)
        lock = files.lock_directory(directory)
        keep = None
        try:
            keep = HeadFile.open(state)
            opened = cls(directory, lock, disk=disk, clock=clock, keep=keep)
            opened._seals = SealFile(state, disk)
            opened._start(accept_break=accept_break)
        except BaseException:
            if keep is not None:
                keep.close()
            lock.close()
            raise
        return opened

    # -- what it is for ---------------------------------------------------------------------------

    def append(self, make: Make[Kind]) -> Kind:
        """Record what `make` returns, durable when this returns.

        Raises AuditUnavailable; ValueError (nothing written) for a record that is too long or not the next one.
        """
        with self._lock:
            self._refuse_if_broken()
            time, head = self._time_or_give_up(), self._head
            record = make(head.seq + 1, time, head.hash)
            if (record.seq, record.time, record.prev) != (head.seq + 1, time, head.hash):
                raise ValueError("not the next record: seq, time and prev are those that were given")
            if isinstance(record, Recovered | BreakAccepted):
                raise ValueError("only opening the log writes a record of this kind")
            self._write(record, ready=lambda: self._turn_page(time))
            return record

    @property
    def broken(self) -> bool:
        """Whether nothing can be recorded any more until a restart."""
        return self._broken

    @property
    def head(self) -> Head:
        """The last record that is on disk."""
        return self._head

    def records(self, *, after: int = 0) -> Iterator[Record]:
        """Yield every record behind number `after`; lines that hold none, and records that were torn, are left out."""
        start = self._before(after + 1)
        which = [name for name in auditfiles.names(self._directory) if start is None or name >= start.file]
        entries = auditfiles.entries(self._directory, which, start=start)
        found = (entry.record for entry in entries if entry.line.seq > after)
        return (record for record in found if record is not None)

    def find(self, seq: int) -> Record | None:
        """Return the record of that number, None where there is none. Raises StateError."""
        if seq > self._head.seq:
            return None
        start = self._before(seq)
        entry = None if start is None else auditfiles.find(self._directory, start, seq)
        record = None if entry is None else entry.record
        return record if record is not None and record.seq == seq else None

    def open_questions(self) -> tuple[Decided, ...]:
        """The decisions that the owner was asked about, and that have no answer."""
        return self._decisions(self.unsettled.asked)

    def not_started(self) -> tuple[Decided, ...]:
        """The decisions that allow a call of which nothing more is on record: it has not run."""
        return self._decisions(self.unsettled.allowed)

    def unfinished(self) -> tuple[Decided, ...]:
        """The decisions whose call was started and has no result."""
        return self._decisions(self.unsettled.started)

    @property
    def unsettled(self) -> Unsettled:
        """The same three by number, as of now."""
        with self._lock:
            return self._verifier.unsettled

    def close(self) -> None:
        """Give the log back. May be called twice."""
        with self._lock:
            self._broken = True
            if self._appender is not None:
                self._appender.close()
            self._appender = None
            self._head_file.close()
            self._directory_lock.close()

    # -- opening ----------------------------------------------------------------------------------

    def _start(self, *, accept_break: bool) -> None:
        kept = self._head_file.read()
        today = _name(self._time())
        seals = self._seals.read()
        found = auditstart.examine(self._directory, seals=seals, kept=kept, whole=accept_break, first_file=today)
        if kept is None and found.report.next_seq > 1:
            log.warning("no head was kept: a tail that was cut off would not show code=audit_head_lost")
        if found.broken is not None and not accept_break:
            raise AuditBroken(_told(found))
        self._take(found)
        self._write_findings(found)
        if found.broken is not None:
            self._seals.start_over(found.seals)
            self._head_file.write_alone(self._head)
        else:
            self._seals.add(*found.seals)
            self._head_file.write(audithead.slot(self._head))
        self._seal_if_due()

    def _take(self, found: Examined) -> None:
        self._verifier, self._current, self._head = found.verifier, found.current, found.verifier.head
        self._places = list(found.places)
        try:
            self._appender = self._disk.open_append(self._directory / self._current.file)
        except StateError as error:
            raise AuditUnavailable(f"{self._current.file} cannot be opened for appending: {error.detail}") from None
        self._guard = self._guarded(self._current.file, self._appender, size_bytes=self._current.size_bytes)

    def _guarded(self, name: str, file: Appender, *, size_bytes: int) -> Guard:
        try:
            return Guard(self._directory / name, file=file, lock=self._directory_lock, size_bytes=size_bytes)
        except BaseException:
            file.close()
            raise

    def _write_findings(self, found: Examined) -> None:
        """Record an accepted break, or a torn end. One line: what is torn within a break is described by it."""
        seq, time = found.report.next_seq, self._time()
        if found.broken is not None:
            self.accepted = found.broken.accepted(seq=seq, time=time)
            self._write_behind_any_tear(self.accepted)
            log.warning("a break was accepted: %s code=audit_broken", _told(found))
        elif found.report.torn is not None:
            self.recovered = found.report.torn.recovered(seq=seq, time=time)
            self._write_behind_any_tear(self.recovered)
            where, size_bytes = self.recovered.line, self.recovered.bytes
            log.warning(
                "set aside a torn end file=%s line=%d bytes=%d code=log_recovered",
                self.recovered.file,
                where,
                size_bytes,
            )

    def _write_behind_any_tear(self, record: Record) -> None:
        newline = b"" if _ends_with_newline(self._directory / self._current.file) else b"\n"
        self._current.add(newline)
        self._write(record, newline=newline)

    # -- writing ----------------------------------------------------------------------------------

    def _write(self, record: Record, *, newline: bytes = b"", ready: Callable[[], None] | None = None) -> None:
        line = auditlog.encode(record)
        if len(line) > MAX_LINE:
            raise ValueError(f"a record of {len(line)} bytes is longer than a line may be, {MAX_LINE}")
        try:
            if self._appender is None:
                raise AuditUnavailable("the audit log is closed")
            self._guard.check()
            if ready is not None:
                ready()
            # All that can be done before the wait for the disk is: what runs after one finds cold caches.
            stored, head = line + b"\n", self._next_head(line, record.seq)
            self._current.add(stored)
            slot = audithead.slot(head)
            self._appender.append(newline + stored)
            self._guard.wrote(len(newline) + len(stored))
            self._head = head
            self._head_file.write(slot)
            self._seal_if_due()
        except StateError as error:
            self._give_up()
            log.error("nothing is recorded any more until a restart: %s code=audit_unavailable", error.detail)
            raise AuditUnavailable(f"nothing is recorded any more until a restart: {error.detail}") from None
        except BaseException:
            self._give_up()
            raise

    def _next_head(self, line: bytes, seq: int) -> Head:
        whole, head = self._verifier.appended(line), self._verifier.head
        if not whole or head.seq != seq:
            raise AuditUnavailable(f"record {seq} does not verify")
        return head

    def _time(self) -> Timestamp:
        time = self._clock.now_ms()
        if not 0 <= time <= MAX_TIMESTAMP:
            raise AuditUnavailable(
                f"this machine's clock lies outside the years 1970 to 9999 ({time} ms since 1970), and no record can "
                "say so: set it, then start brokerd again"
            )
        return time

    def _time_or_give_up(self) -> Timestamp:
        try:
            return self._time()
        except AuditUnavailable as error:
            self._give_up()
            log.error("nothing is recorded any more until a restart: %s code=audit_unavailable", error.detail)
            raise

    def _give_up(self) -> None:
        self._broken = True
        if self._appender is not None:
            self._appender.close()
        self._appender = None

    def _refuse_if_broken(self) -> None:
        if self._broken:
            raise AuditUnavailable("nothing is recorded any more until a restart")

    def _turn_page(self, time: Timestamp) -> None:
        """Go on in a newer file; where the clock went back, in the same one."""
        if time // DAY_MS == self._day:
            return
        self._day = time // DAY_MS
        name = _name(time)
        if name <= self._current.file:
            return
        if (self._directory / name).exists():
            raise AuditUnavailable(f"{name} is there already, and not by our hand")
        fresh = self._disk.open_append(self._directory / name)
        self._guard = self._guarded(name, fresh, size_bytes=0)
        if self._appender is not None:
            self._appender.close()
        self._appender = fresh
        self._seal()
        self._current = Progress(file=name, before=self._head)
        self._verifier.begin(name)
        self._places.append(Place(file=name, bytes=0, lines=0, seq=self._verifier.log_lines))

    def _seal_if_due(self) -> None:
        if self._current.size_bytes - self._current.sealed_bytes >= auditseals.EVERY_BYTES:
            self._seal()
            self._places.append(self._current.seal(self._verifier).end)

    def _seal(self) -> None:
        self._current.sealed_bytes = self._current.size_bytes
        if self._current.size_bytes:
            self._seals.add(self._current.seal(self._verifier))

    def _before(self, seq: int) -> Place | None:
        """Return the last noted place before a record. Without the lock: what was written stays where it is."""
        places = tuple(self._places)
        at = bisect_left(places, seq, key=lambda place: place.seq) - 1
        return None if at < 0 else places[at]

    def _decisions(self, numbers: tuple[int, ...]) -> tuple[Decided, ...]:
        found = (self.find(number) for number in numbers)
        return tuple(record for record in found if isinstance(record, Decided))


def _name(time: Timestamp) -> str:
    return auditlog.file_name(datetime.fromtimestamp(time / 1000, UTC).date())


def _ends_with_newline(path: Path) -> bool:
    """Also true of an empty file."""
    try:
        with files.open_read(path) as file:
            if file.seek(0, os.SEEK_END) == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"
    except OSError as error:
        raise files.unreadable(path, error) from None


def _told(found: Examined) -> str:
    first, count = found.findings[0], len(found.findings) + found.report.more_findings
    more = f" (and {count - 1} more: bxctl audit verify)" if count > 1 else ""
    return f"{first.file}:{first.line}: {first.detail}{more}"
