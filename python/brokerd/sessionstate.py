"""What each session has seen: its taint and whether it read untrusted text. Both only ever rise (INV-4).

Reads and writes: <directory>/<session>.json, {"v":1,"session":…,"taint":…,"untrusted":…}. No file is a fresh session,
once the directory is known to be whole (`complete`). Invariant: `raise_to` has made the labels durable when it
returns, so whoever releases a result after it can forget nothing; where it raises, the result must not be released.
A state that cannot be read with certainty is StateUnreadable, never a guess, and is mended by `rebuild` alone.
Threads: any; one lock, held while a file is read or written. Format: docs/authority.md.
"""

import threading
from collections.abc import Iterable
from pathlib import Path

from brokerd import labels, ownfile
from brokerd.call import FRESH, Labels
from bxcore import brokerfiles
from bxcore.auditlog import Ended, Record
from bxcore.brokerfiles import COMPLETE, MOST_BYTES, VERSION, NewerFile, SessionFile
from bxcore.errors import BadMessage
from bxcore.files import Files, StateMissing, StateUnreadable
from bxcore.ids import SessionId


class StateNewer(StateUnreadable):
    """The state is of a version that this brokerd does not know. Nothing of it is rewritten, not even by a rebuild."""

    code = "state_unreadable"


class SessionStates:
    """The states of all sessions. `directory` is made where it is missing; what holds it must be there."""

    def __init__(self, directory: Path, files: Files) -> None:
        files.make_dir(directory)
        ownfile.check_directory(directory)
        self._directory = directory
        self._files = files
        self._lock = threading.Lock()
        # What this process has made durable. A file that says it already may be from a brokerd that died between
        # writing and syncing it, or from our own failed attempt: only our own success counts.
        self._durable: dict[SessionId, Labels] = {}

    @property
    def is_whole(self) -> bool:
        """Whether no file of a session is missing. A directory that somebody deleted is made again, and is not."""
        return (self._directory / COMPLETE).is_file()

    def make_whole(self, records: Iterable[Record]) -> int:
        """Raise every session to what the audit log says of it, and return how many there are. Raises StateError.

        The mark that says so is written last: a start that is cut short does it all again.
        """
        found: dict[SessionId, Labels] = {}
        for record in records:
            if isinstance(record, Ended):
                found[record.session] = labels.joined(found.get(record.session, FRESH), of_record(record))
        for session, recorded in found.items():
            self.raise_to(session, recorded)
        self._files.replace(self._directory / COMPLETE, b"every session has its file\n")
        return len(found)

    def labels(self, session: SessionId) -> Labels:
        """Return the labels of a session, FRESH for one that has none. Raises StateUnreadable."""
        with self._lock:
            return self._now(session, self._stored(session))

    def raise_to(self, session: SessionId, result: Labels) -> Labels:
        """Join `result` to a session's labels and return what they are now, durable. Raises StateError."""
        with self._lock:
            stored = self._stored(session)
            return self._keep(session, stored, labels.joined(self._now(session, stored), result))

    def rebuild(self, session: SessionId, records: Iterable[Record], *, floor: Labels = FRESH) -> Labels:
        """Compute a session's labels again from `records` of the audit log, and keep them. Raises StateError.

        Never below `floor`, nor below a state that can be read. One that cannot is replaced, unless it is a newer
        version's.
        """
        recorded = labels.joined(floor, of_records(session, records))
        with self._lock:
            try:
                now = self._now(session, self._stored(session))
            except StateNewer:
                raise
            except StateUnreadable:
                now = self._durable.get(session, FRESH)
            return self._write(session, labels.joined(now, recorded))

    def _now(self, session: SessionId, stored: Labels | None) -> Labels:
        durable = self._durable.get(session)
        if stored is None and durable is not None:
            raise StateUnreadable(f"{self._shown(session)}: gone since it was written")
        return labels.joined(stored or FRESH, durable or FRESH)

    def _keep(self, session: SessionId, stored: Labels | None, after: Labels) -> Labels:
        if stored is None and after == FRESH:
            return after
        if stored == after == self._durable.get(session):
            return after
        return self._write(session, after)

    def _write(self, session: SessionId, after: Labels) -> Labels:
        kept = SessionFile(v=VERSION, session=session, taint=after.data_class, untrusted=after.untrusted)
        self._files.replace(self._path(session), brokerfiles.encode(kept))
        self._durable[session] = after
        return after

    def _stored(self, session: SessionId) -> Labels | None:
        try:
            content = ownfile.read(self._path(session), most=MOST_BYTES)
        except StateMissing:
            # Without the directory every session would look fresh.
            ownfile.check_directory(self._directory)
            return None
        try:
            return _labels(session, content)
        except NewerFile as error:
            raise StateNewer(f"{self._shown(session)}: {error.detail}") from None
        except BadMessage as error:
            raise StateUnreadable(f"{self._shown(session)}: {error.detail}") from None

    def _path(self, session: SessionId) -> Path:
        return self._directory / f"{session}.json"

    def _shown(self, session: SessionId) -> str:
        return f"{self._directory.name}/{session}.json"


def of_records(session: SessionId, records: Iterable[Record]) -> Labels:
    """Return what the audit log says of a session."""
    found = FRESH
    for record in records:
        if isinstance(record, Ended) and record.session == session:
            found = labels.joined(found, of_record(record))
    return found


def of_record(record: Ended) -> Labels:
    """Return what one result on record says of its session."""
    data_class, untrusted = record.least_labels
    return Labels(data_class=data_class, untrusted=untrusted)


def _labels(session: SessionId, content: bytes) -> Labels:
    stored = brokerfiles.read_session(session, content)
    return Labels(data_class=stored.taint, untrusted=stored.untrusted)
