"""Looks at a backup with the readers that the programs use, and says what is wrong with which line of which file.

Reads: a backup's directory; changes nothing. Two kinds of finding: `damaged`, the backup is not what was written into
it; otherwise the state itself was so when it was copied, and the role that owns it would say the same.
Memory: the manifest, a line, and the labels of each session that the audit log speaks of. Threads: none.
"""

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import attrs

from bxcore import (
    auditfiles,
    audithead,
    backupmanifest,
    brokerfiles,
    chainreport,
    config,
    grants,
    ids,
    jsonl,
    regularfile,
    sessionrecords,
    tomlfile,
)
from bxcore.auditlog import Ended
from bxcore.backupmanifest import AUDIT, BROKER, ETC, GRANTS, SESSIONS, File, Manifest, NewerBackup
from bxcore.chain import Report, Verifier
from bxcore.errors import BadMessage, ConfigError, StateError
from bxcore.files import StateMissing
from bxcore.grants import GrantFaults
from bxcore.ids import SessionId
from bxcore.jsonl import Recovery
from bxcore.sessionrecords import SessionStart
from bxcore.settings.roles import ROLES
from bxcore.wire.tools import RISING, DataClass

PIECE = 1024 * 1024
_HEAD, _CLOCK = f"{BROKER}/{audithead.FILE}", f"{BROKER}/{brokerfiles.CLOCK}"
_LABELS = f"{BROKER}/{brokerfiles.SESSIONS}"

Progress = Callable[[int], None]


class BackupUnfinished(StateError):
    """There is no manifest, or it has no end: no backup that was finished."""

    code = "backup_unfinished"


class BackupNewer(StateError):
    """A newer Boxmaker wrote the backup."""

    code = "backup_newer"


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that is wrong at `line` of `path`, or with all of it where that is 0."""

    path: str
    line: int
    text: str
    damaged: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


def manifest(directory: Path) -> Manifest:
    """Read the manifest. Raises BackupUnfinished, BackupNewer, StateError."""
    path, reader = directory / backupmanifest.NAME, backupmanifest.Reader()
    number = 0
    try:
        for line in jsonl.read_lines(path):
            number = line.number
            if not line.complete or line.size > backupmanifest.MAX_LINE:
                raise BackupUnfinished(f"{path}:{number}: the line does not end: the backup was never finished, or cut")
            reader.take(line.raw)
        return reader.finish()
    except StateMissing:
        raise BackupUnfinished(f"{directory}: holds no {backupmanifest.NAME}, so it is no finished backup") from None
    except NewerBackup as error:
        raise BackupNewer(f"{path}: {error.detail}; restore it with that one") from None
    except BadMessage as error:
        raise BackupUnfinished(f"{path}:{number}: {error.detail}") from None


# -- damage -----------------------------------------------------------------------------------------


def damage(directory: Path, listed: Manifest, *, progress: Progress | None = None) -> Iterator[Finding]:
    """Compare every file with the manifest, and look for what is not in it."""
    for file in listed.files.values():
        text = _differs(directory / file.path, file, progress)
        if text is not None:
            yield Finding(path=file.path, line=0, text=text, damaged=True)
    yield from _strangers(directory, "", listed)


def _differs(path: Path, file: File, progress: Progress | None) -> str | None:
    digest, size_bytes = sha256(), 0
    try:
        with os.fdopen(regularfile.descriptor(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as content:
            while piece := content.read(PIECE):
                digest.update(piece)
                size_bytes += len(piece)
                if progress is not None:
                    progress(len(piece))
    except FileNotFoundError:
        return "is not there"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if size_bytes != file.bytes:
        return f"has {size_bytes} bytes, {file.bytes} were written"
    return None if digest.hexdigest() == file.sha256 else "was changed after it was written: another SHA-256"


def _strangers(directory: Path, folder: str, listed: Manifest) -> Iterator[Finding]:
    for entry in sorted(os.scandir(directory / folder), key=lambda entry: entry.name):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
            if backupmanifest.may_hold(path):
                yield from _strangers(directory, path, listed)
            else:
                yield Finding(path=path, line=0, text="a directory that is no part of the backup", damaged=True)
        elif path not in listed.files and path != backupmanifest.NAME:
            yield Finding(path=path, line=0, text="is not in the manifest", damaged=True)


# -- the readers ------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Labels:
    rank: int = 0
    untrusted: bool = False


class Readers:
    """The readers of the programs on the files of one backup.

    `report`, and `lower`, whether labels were found that are lower than the log, are there once `findings` has run.
    """

    def __init__(self, directory: Path, listed: Manifest, *, progress: Progress | None = None) -> None:
        self._directory, self._listed, self._progress = directory, listed, progress
        self.report: Report | None = None
        self.lower = False

    def findings(self) -> Iterator[Finding]:
        """Yield what the programs would find."""
        yield from self._audit()
        yield from self._labels()
        yield from self._small(_CLOCK, brokerfiles.read_clock)
        for session in self._sessions():
            yield from self._session(session)
        for path in self._paths(f"{ETC}/{GRANTS}"):
            yield from self._grant(path)
        for path in self._paths(ETC):
            yield from self._settings(path)

    def _paths(self, folder: str) -> list[str]:
        return sorted(path for path in self._listed.files if path.rpartition("/")[0] == folder)

    # -- the audit log ----------------------------------------------------------------------------

    def _audit(self) -> Iterator[Finding]:
        names = [path.rpartition("/")[2] for path in self._paths(AUDIT)]
        verifier = Verifier(kept=self._kept())
        try:
            for name in names:
                auditfiles.feed(verifier, self._directory / AUDIT, name, progress=self._progress)
        except StateError as error:
            yield Finding(path=AUDIT, line=0, text=error.detail, damaged=False)
            return
        self.report = verifier.finish()
        for found in self.report.findings:
            text = f"{found.detail} ({found.fault.value})"
            yield Finding(path=f"{AUDIT}/{found.file}", line=found.line, text=text, damaged=False)
        head = self._listed.begin.head
        if self.report.broken is None and head is not None and str(self.report.head) != head:
            yield Finding(path=AUDIT, line=0, text="ends with another record than the manifest says", damaged=True)

    def _kept(self) -> chainreport.Head | None:
        if _HEAD not in self._listed.files:
            return None
        try:
            return audithead.read(regularfile.content(self._directory / _HEAD, most=2 * audithead.LENGTH))
        except OSError:
            return None  # that it cannot be read is told as damage

    # -- labels -----------------------------------------------------------------------------------

    def _labels(self) -> Iterator[Finding]:
        """Each session's labels are at least what the audit log says that they became."""
        mark = f"{_LABELS}/{brokerfiles.COMPLETE}"
        found: dict[SessionId, _Labels] = {}
        unread: set[SessionId] = set()
        for path in self._paths(_LABELS):
            if path != mark:
                session = ids.session_id(path.rpartition("/")[2].removesuffix(".json"))
                for fault in self._small(path, partial(_keep, found, session)):
                    unread.add(session)
                    yield fault
        if mark not in self._listed.files:
            return  # brokerd computes them from the audit log when it starts
        for session, least in self._recorded().items():
            if session in unread:
                continue  # brokerd denies each of its calls
            has = found.get(session, _Labels(rank=RISING.index(DataClass.PRIVATE)))
            if has.rank < least.rank or has.untrusted < least.untrusted:
                self.lower = True
                text = "lower than the audit log says that they became; bxctl broker session ID --rebuild mends it"
                yield Finding(path=f"{_LABELS}/{session}.json", line=0, text=text, damaged=False)

    def _recorded(self) -> dict[SessionId, _Labels]:
        least: dict[SessionId, _Labels] = {}
        names = [path.rpartition("/")[2] for path in self._paths(AUDIT)]
        try:
            for entry in auditfiles.entries(self._directory / AUDIT, names):
                if not entry.line.raw.startswith(_RESULT):
                    continue
                record = entry.record
                if isinstance(record, Ended):
                    has, (taint, untrusted) = least.get(record.session, _Labels()), record.least_labels
                    rank = max(has.rank, RISING.index(taint))
                    least[record.session] = _Labels(rank=rank, untrusted=has.untrusted or untrusted)
        except StateError:
            pass  # told when the log itself was read
        return least

    def _small(self, path: str, read: Callable[[bytes], object]) -> Iterator[Finding]:
        if path not in self._listed.files:
            return
        try:
            content = regularfile.content(self._directory / path, most=brokerfiles.MOST_BYTES)
            if len(content) > brokerfiles.MOST_BYTES:
                raise BadMessage("longer than anything that brokerd writes there")
            read(content)
        except OSError:
            return  # told as damage
        except BadMessage as error:
            yield Finding(path=path, line=1, text=error.detail, damaged=False)

    # -- sessions ---------------------------------------------------------------------------------

    def _sessions(self) -> list[str]:
        """Return the paths of all session logs."""
        return sorted(
            path
            for path in self._listed.files
            if path.startswith(f"{SESSIONS}/") and backupmanifest.is_session_log(path.rpartition("/")[2])
        )

    def _session(self, path: str) -> Iterator[Finding]:
        start: SessionStart | None = None
        try:
            for entry in jsonl.read_entries(self._directory / path):
                if entry.torn:
                    continue
                fault, record = entry.fault, None
                if fault is None:
                    try:
                        record = sessionrecords.from_value(entry.value)
                    except BadMessage as error:
                        fault = error.detail
                if fault is not None:
                    yield Finding(path=path, line=entry.number, text=fault, damaged=False)
                    return
                if start is None and not isinstance(record, Recovery):
                    if not isinstance(record, SessionStart):
                        yield Finding(path=path, line=entry.number, text="expected a session_start", damaged=False)
                        return
                    start = record
        except StateError as error:
            yield Finding(path=path, line=0, text=error.detail, damaged=False)
            return
        if start is not None:
            yield from self._start(path, start)

    def _start(self, path: str, start: SessionStart) -> Iterator[Finding]:
        if start.format > sessionrecords.FORMAT:
            text = f"written by a newer version (format {start.format})"
            yield Finding(path=path, line=1, text=text, damaged=False)
        if start.session != path.split("/")[1]:
            yield Finding(path=path, line=1, text="is the log of another session", damaged=False)
        baseline = f"{path.removesuffix('.jsonl')}.baseline.json"
        listed = self._listed.files.get(baseline)
        if listed is None:
            yield Finding(path=baseline, line=0, text="is not there, and the session began with it", damaged=False)
        elif listed.sha256 != start.baseline:
            text = "is another one than the session began with"
            yield Finding(path=baseline, line=0, text=text, damaged=False)

    # -- what the owner wrote -----------------------------------------------------------------------

    def _grant(self, path: str) -> Iterator[Finding]:
        try:
            content = regularfile.content(self._directory / path, most=tomlfile.MAX_BYTES)
            grants.parse(path.rpartition("/")[2], content)
        except OSError:
            return  # told as damage
        except GrantFaults as error:
            yield from (Finding(path=path, line=fault.line, text=fault.text, damaged=False) for fault in error.faults)

    def _settings(self, path: str) -> Iterator[Finding]:
        role = path.rpartition("/")[2].removesuffix(".toml")
        if role not in ROLES or path not in self._listed.files:
            return
        try:
            config.load(self._directory / path, ROLES[role])
        except ConfigError as error:
            text = error.detail.replace(f"{self._directory}/", "")
            yield Finding(path=path, line=0, text=text, damaged=False)


_RESULT = b'{"event":"result"'


def _keep(found: dict[SessionId, _Labels], session: SessionId, content: bytes) -> None:
    stored = brokerfiles.read_session(session, content)
    found[session] = _Labels(rank=RISING.index(stored.taint), untrusted=stored.untrusted)
