"""Session files: `sessions/<id>/<epoch>.jsonl`, `<epoch>.baseline.json`, `results/<call>.txt`.

Invariant (INV-6): what `append` returned from survives a power cut; a tail that a crash cut is kept
and described, never removed; any other damage is reported with its line and nothing is written.
Threads: the store holds no state; an OpenLog belongs to its session. Format: docs/session-log.md.
"""

from collections.abc import Iterator
from pathlib import Path

import attrs

from bxcore import ids, jsonl, logs, sessionrecords
from bxcore.deadline import Clock
from bxcore.errors import BadMessage
from bxcore.files import Files, StateMissing, StateUnreadable
from bxcore.ids import CallId, SessionId
from bxcore.jsonl import Entry, JsonlWriter, Line, Recovery
from bxcore.sessionrecords import Record, SessionStart
from loopd import baseline
from loopd.baseline import Baseline
from loopd.faults import SessionDamaged, SessionExists

log = logs.get("sessionlog")

EPOCH = 0
"""Sessions have one epoch so far."""


@attrs.frozen(kw_only=True)
class StoredSession:
    """A session as it lies on disk. `records` can be run through once."""

    id: SessionId
    records: Iterator[Record]


class OpenLog:
    """A session's log, open for appending and locked against every other process."""

    def __init__(self, directory: Path, writer: JsonlWriter, files: Files) -> None:
        self._directory, self._writer, self._files = directory, writer, files
        self.recovered = writer.recovery
        """What opening had to set aside, or None."""

    def append(self, *new: Record) -> None:
        """Write the records; durable when it returns. Raises StateError, and is of no more use then."""
        self._writer.append(*new)

    def keep_result(self, call: CallId, text: str) -> None:
        """Keep a whole tool result beside the log. Raises StateError."""
        folder = self._directory / "results"
        self._files.make_dir(folder)
        self._files.replace(folder / f"{call}.txt", text.encode("utf-8", errors="replace"))

    def close(self) -> None:
        """Give the file back. May be called twice."""
        self._writer.close()


class SessionStore:
    """The directory of all sessions."""

    def __init__(self, directory: Path, *, files: Files, clock: Clock) -> None:
        self._directory, self._files, self._clock = directory, files, clock

    def ids(self) -> list[SessionId]:
        """Every session that has a log, in no order. A directory that does not exist yet holds none."""
        try:
            names = [path.name for path in self._directory.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as fault:
            raise StateUnreadable(f"{self._directory.name}: {fault.strerror}") from None
        return [session for name in names if (session := _as_id(name)) is not None and self.exists(session)]

    def newest(self, limit: int) -> list[SessionId]:
        """The `limit` sessions that spoke last, newest first; by name those that spoke in one tick of the clock."""
        return sorted(self.ids(), key=lambda session: (self._changed_at(session), session), reverse=True)[:limit]

    def exists(self, session: SessionId) -> bool:
        """There is a record in the session's log: more than what a crash left of an attempt to begin it."""
        try:
            entries = jsonl.read_entries(self._log_path(session))
            return any(entry.value is not None and not _is_recovery(entry) for entry in entries)
        except StateMissing:
            return False
        except (StateUnreadable, SessionDamaged):
            return True  # whoever opens it is told what is wrong

    def create(self, session: SessionId, front: Baseline, *, slot: int) -> tuple[StoredSession, Baseline, OpenLog]:
        """Make a session; also over what a crash left of an earlier attempt. Raises SessionExists, StateError."""
        self._files.make_dir(self._directory)
        self._files.make_dir(self._directory / session)
        log_file = self._open_log(session)
        try:
            start = self._begin(session, front, log_file, slot=slot)
        except BaseException:
            log_file.close()
            raise
        return StoredSession(id=session, records=iter((start,))), front, log_file

    def _begin(self, session: SessionId, front: Baseline, log_file: OpenLog, *, slot: int) -> SessionStart:
        """Write the baseline and the first record. Only ever under the log's lock."""
        if self.exists(session):  # begun by somebody else since the caller looked: that baseline is theirs
            raise SessionExists("a session of that name exists already; continue it, or choose another name")
        content = front.to_bytes()
        self._files.replace(self._baseline_path(session), content)
        start = SessionStart(
            time=self._clock.now_ms(),
            format=sessionrecords.FORMAT,
            session=session,
            epoch=EPOCH,
            slot=slot,
            baseline=baseline.hash_of(content),
        )
        log_file.append(start)
        return start

    def open(self, session: SessionId) -> tuple[StoredSession, Baseline, OpenLog]:
        """Open a session to go on with it. Raises SessionDamaged, StateError; nothing is changed then."""
        front = self._check(session)
        # All of it before the log is opened for writing: opening may add a recovery record, and a damaged
        # session is not written to. Then once more for the caller: a long log is not held in memory.
        for _ in self._before_the_tail(session):
            pass
        log_file = self._open_log(session)
        return StoredSession(id=session, records=self.read(session)), front, log_file

    def read(self, session: SessionId) -> Iterator[Record]:
        """Yield the records. Raises SessionDamaged at the first line that is neither whole nor explained."""
        for entry in jsonl.read_entries(self._log_path(session)):
            if not entry.torn:
                yield _record(session, entry)

    def _before_the_tail(self, session: SessionId) -> Iterator[Record]:
        """Like `read`, but lines without meaning at the very end are let pass: opening sets them aside."""
        damaged: Entry | None = None
        for entry in jsonl.read_entries(self._log_path(session)):
            if entry.torn:
                continue
            if entry.fault is None:
                yield _record(session, damaged or entry)
            else:
                damaged = damaged or entry

    def raw_lines(self, session: SessionId) -> Iterator[tuple[int, Line]]:
        """Yield (epoch, line) for every stored line, just as it is."""
        for line in jsonl.read_lines(self._log_path(session)):
            yield EPOCH, line

    def _check(self, session: SessionId) -> Baseline:
        """Read the start of the log and the baseline that it names; refuse what is not ours to continue."""
        start = next((record for record in self.read(session) if not isinstance(record, Recovery)), None)
        if not isinstance(start, SessionStart):
            raise SessionDamaged(f"{session}/{EPOCH}.jsonl: does not begin with a session_start record")
        if start.format > sessionrecords.FORMAT:
            raise SessionDamaged(f"{session}/{EPOCH}.jsonl: written by a newer version (format {start.format})")
        if start.session != session:
            raise SessionDamaged(
                f"{session}/{EPOCH}.jsonl: is the log of another session, whose name its directory must have"
            )
        try:
            content = self._files.read(self._baseline_path(session))
        except StateMissing:
            raise SessionDamaged(f"{session}/{EPOCH}.baseline.json: not there; restore it") from None
        return baseline.read(content, expected=start.baseline)

    def _open_log(self, session: SessionId) -> OpenLog:
        path = self._log_path(session)
        writer = JsonlWriter.open(path, self._files, clock=self._clock, encode=sessionrecords.to_value)
        if writer.recovery is not None:
            where, size_bytes = writer.recovery.line, writer.recovery.bytes
            log.warning(
                "set aside a torn end session=%s line=%d bytes=%d code=log_recovered", session, where, size_bytes
            )
        return OpenLog(path.parent, writer, self._files)

    def _log_path(self, session: SessionId) -> Path:
        return self._folder(session) / f"{EPOCH}.jsonl"

    def _baseline_path(self, session: SessionId) -> Path:
        return self._folder(session) / f"{EPOCH}.baseline.json"

    def _folder(self, session: SessionId) -> Path:
        folder = self._directory / session
        # What bxcore.files does for the last part of a path: a link would lead our writes out of the state directory.
        if folder.is_symlink():
            raise SessionDamaged(f"{session}: a symbolic link in place of its directory; put the directory itself here")
        return folder

    def _changed_at(self, session: SessionId) -> int:
        try:
            return self._log_path(session).stat().st_mtime_ns
        except (OSError, SessionDamaged):
            return 0


def _record(session: SessionId, entry: Entry) -> Record:
    """Return the record of a line. Raises SessionDamaged where it holds none."""
    where = f"{session}/{EPOCH}.jsonl:{entry.number}"
    if entry.fault is not None:
        raise SessionDamaged(f"{where}: {entry.fault}")
    try:
        return sessionrecords.from_value(entry.value)
    except BadMessage as fault:
        raise SessionDamaged(f"{where}: {fault.detail}") from None


def _is_recovery(entry: Entry) -> bool:
    return entry.value is not None and entry.value.get(sessionrecords.TAG) == jsonl.RECOVERY


def _as_id(name: str) -> SessionId | None:
    try:
        return ids.session_id(name)
    except ValueError:
        return None
