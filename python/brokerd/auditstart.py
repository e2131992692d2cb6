"""Looks at the audit log before brokerd goes on with it: whether it is ours alone, whole, and how it ends.

Reads everything, changes nothing. Closed days are compared with their seals, everything else is verified line
by line; with `whole` all of it is. Raises StateError. Threads: none but those of auditseals.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from brokerd import auditseals, ownfile
from brokerd.auditseals import Checked, Seal
from bxcore import auditfiles, audithead, files
from bxcore.auditfiles import Place
from bxcore.auditlog import Fault
from bxcore.chain import Break, Finding, Head, Kept, Report, Unsettled, Verifier
from bxcore.errors import StateError
from bxcore.ids import Hash32


class AuditExposed(StateError):
    """Somebody beside brokerd may read or change the audit log."""

    code = "audit_exposed"


@attrs.define(kw_only=True)
class Progress:
    """How far the file that is being read has come; kept up by the writer afterwards."""

    file: str
    before: Head
    size_bytes: int = 0
    sealed_bytes: int = 0
    digest: "hashlib._Hash" = attrs.field(factory=hashlib.sha256)

    def add(self, piece: bytes) -> None:
        self.size_bytes += len(piece)
        self.digest.update(piece)

    def seal(self, verifier: Verifier) -> Seal:
        """Return a seal of the file as far as it has come. Only where it ends with a whole line."""
        open_now = verifier.unsettled
        return Seal(
            file=self.file,
            bytes=self.size_bytes,
            lines=verifier.lines,
            sha256=Hash32(self.digest.hexdigest()),
            before_seq=self.before.seq,
            before_hash=self.before.hash,
            seq=verifier.head.seq,
            hash=verifier.head.hash,
            log_lines=verifier.log_lines,
            sound=verifier.sound,
            asked=open_now.asked,
            allowed=open_now.allowed,
            started=open_now.started,
        )


@attrs.frozen(kw_only=True)
class Examined:
    """The log as it was found. `seals` are those of closed files that had none that was of use.

    `broken` is what a BreakAccepted must say, with `findings` for people; None where the log is whole.
    `places` are where lines can be looked up from, in order.
    """

    verifier: Verifier
    report: Report
    current: Progress
    seals: tuple[Seal, ...]
    places: tuple[Place, ...]
    broken: Break | None
    findings: tuple[Finding, ...]


def require_private(directory: Path) -> None:
    """Raise AuditExposed unless `directory` and the log in it are this user's alone."""
    _require(directory, stat.S_ISDIR, "a directory")
    for name in auditfiles.names(directory):
        _require(directory / name, stat.S_ISREG, "a file")


def require_unshared(state: Path) -> None:
    """Raise AuditExposed where others may write what is kept beside the log: it vouches for the log."""
    for path in (state / audithead.FILE, state / auditseals.FILE):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise files.unreadable(path, error) from None
        why = ownfile.strange(found, user=os.geteuid())
        if stat.S_ISREG(found.st_mode) and why is not None:
            raise AuditExposed(f"{path}: {why}, mode {stat.S_IMODE(found.st_mode):04o}; it must be brokerd's alone")


def _require(path: Path, is_kind: Callable[[int], bool], word: str) -> None:
    try:
        found = path.lstat()
    except OSError as error:
        raise files.unreadable(path, error) from None
    if not is_kind(found.st_mode):
        raise AuditExposed(f"{path}: expected {word}, found something else")
    if found.st_uid != os.geteuid():
        raise AuditExposed(f"{path}: belongs to user {found.st_uid}, not to brokerd's")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AuditExposed(
            f"{path}: open to others, mode {stat.S_IMODE(found.st_mode):04o}; it must be brokerd's alone"
        )


def examine(directory: Path, *, seals: Mapping[str, Seal], kept: Head | None, whole: bool, first_file: str) -> Examined:
    """Look at all of the log. `first_file` is the name that it begins with where there is none yet."""
    there = auditfiles.names(directory)
    checked = auditseals.check(directory, there, seals)
    wrong = [f"{name} was changed after it was verified and sealed" for name in checked.changed]
    wrong += [f"{name} is not there, and was verified and sealed" for name in sorted(set(seals) - set(there))]
    if whole:
        checked = Checked(seals=(), digest=hashlib.sha256(), changed=checked.changed)
    reading = _Reading(directory, checked, kept)
    for name in (there or [first_file])[len(checked.seals) :]:
        reading.read(name)
    return reading.result(wrong)


class _Reading:
    """One pass over what the seals do not cover."""

    def __init__(self, directory: Path, checked: Checked, kept: Head | None) -> None:
        self._directory, self._kept = directory, kept
        self._checked_kept = kept is None or _kept_below(directory, checked.seals, kept)
        unsettled = checked.seals[-1].unsettled if checked.seals else Unsettled()
        self.verifier = Verifier(after=checked.head, unsettled=unsettled, kept=kept)
        self._seals: list[Seal] = []
        self._places = [
            Place(file=seal.file, bytes=0, lines=0, seq=seal.log_lines - seal.lines) for seal in checked.seals
        ]
        self._current: Progress | None = None
        if checked.seals:
            self._go_on_behind(checked.seals[-1], checked)

    def _go_on_behind(self, seal: Seal, checked: Checked) -> None:
        """The last sealed file may have grown since."""
        self._current = Progress(
            file=seal.file,
            before=seal.before,
            size_bytes=seal.bytes,
            sealed_bytes=seal.bytes,
            digest=checked.digest,
        )
        self._places.append(seal.end)
        self.verifier.begin(seal.file, line=seal.lines)
        self._feed(self._current, start=seal.bytes)

    def read(self, name: str) -> None:
        if self._current is not None and self._current.size_bytes > self._current.sealed_bytes:
            self._seals.append(self._current.seal(self.verifier))
        self._places.append(Place(file=name, bytes=0, lines=0, seq=self.verifier.log_lines))
        self._current = Progress(file=name, before=self.verifier.head)
        self.verifier.begin(name)
        if (self._directory / name).exists():
            self._feed(self._current, start=0)

    def _feed(self, current: Progress, *, start: int) -> None:
        for piece in auditfiles.pieces(self._directory / current.file, start=start):
            self.verifier.feed(piece)
            current.add(piece)
        self.verifier.end()

    def result(self, wrong: Sequence[str]) -> Examined:
        report = self.verifier.finish()
        broken, findings = report.broken, list(report.findings)
        if not self._checked_kept and report.kept is Kept.NOT_REACHED:
            broken = broken or self.verifier.break_at_end(Fault.OTHER_END)
            findings.append(self._finding(Fault.OTHER_END, "the head that was kept is no record of this log"))
        for detail in wrong:
            broken = broken or self.verifier.break_at_end(Fault.OTHER_BYTES)
            findings.append(self._finding(Fault.OTHER_BYTES, detail))
        if self._current is None:
            raise ValueError("nothing was read")
        return Examined(
            verifier=self.verifier,
            report=report,
            current=self._current,
            seals=tuple(self._seals),
            places=tuple(self._places),
            broken=broken,
            findings=tuple(findings),
        )

    def _finding(self, fault: Fault, detail: str) -> Finding:
        file = "" if self._current is None else self._current.file
        return Finding(file=file, line=self.verifier.lines + 1, fault=fault, detail=detail)


def _kept_below(directory: Path, seals: Sequence[Seal], kept: Head) -> bool:
    """Say whether a kept head that lies in the sealed part is a line of it. True where it lies behind that part."""
    for seal in seals:
        if seal.log_lines - seal.lines < kept.seq <= seal.log_lines:
            start = Place(file=seal.file, bytes=0, lines=0, seq=seal.log_lines - seal.lines)
            entry = auditfiles.find(directory, start, kept.seq)
            return entry is not None and hashlib.sha256(entry.line.raw).hexdigest() == kept.hash
    return True
