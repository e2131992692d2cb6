"""What a start does about the calls that the last run of brokerd left without an end.

Writes: their end into the audit log, and labels. Nothing is run and nothing is asked again: an open question is
void, an approved call that had not started has ended, and a started one is unknown. Its session is raised as its
result would have raised it, since nobody can say what became of it. Before anything is served.
"""

from collections.abc import Iterator
from pathlib import Path

import attrs

from brokerd import entries, labels, match
from brokerd.audit import AuditLog
from brokerd.call import UNREADABLE, Labels
from brokerd.entries import CameBack, Reply
from brokerd.ledger import Ledger
from brokerd.reading import Reading, Unfit, recorded_call
from bxcore import auditfiles, auditlog, logs
from bxcore.auditfiles import Place
from bxcore.auditlog import Decided, Record, RunEnding
from bxcore.errors import BadMessage, StateError
from bxcore.grants import GrantSet
from bxcore.wire.admin import ApprovalEnding

RECENT_BYTES = 4 * 1024 * 1024
"""So much of the log's end is read to know which calls were taken on: some thousand calls."""

log = logs.get("recovery")


@attrs.frozen(kw_only=True)
class Found:
    """What was left open, by the numbers of the decisions."""

    void: tuple[int, ...]
    not_started: tuple[int, ...]
    unknown: tuple[int, ...]

    def told(self) -> str | None:
        """Return it as a sentence for the owner, or None where there was nothing."""
        parts = [
            f"{what} ({', '.join(map(str, numbers))})"
            for what, numbers in (
                ("open questions became void", self.void),
                ("approved calls were not started", self.not_started),
                ("calls may or may not have taken effect", self.unknown),
            )
            if numbers
        ]
        return f"at the last start: {'; '.join(parts)}" if parts else None


def recover(audit: AuditLog, ledger: Ledger, reading: Reading) -> Found:
    """Give every call an end. Raises StateError where that cannot be recorded: then brokerd must not serve."""
    grants = reading.grants()
    found = Found(
        void=tuple(_void(record, ledger) for record in audit.open_questions()),
        not_started=tuple(_ended(record, ledger, grants, RunEnding.FAILED) for record in audit.not_started()),
        unknown=tuple(_ended(record, ledger, grants, RunEnding.UNKNOWN) for record in audit.unfinished()),
    )
    for number in found.void:
        log.warning("question is void since a restart id=%d", number)
    for number in found.unknown:
        log.error("a call was lost while it ran, its effect is not known seq=%d code=call_unknown", number)
    return found


def _void(record: Decided, ledger: Ledger) -> int:
    with ledger.held() as book:
        session = book.labels_or(record.session, UNREADABLE)
        book.append(entries.answered(record.seq, Reply(ending=ApprovalEnding.VOID), None, session))
    return record.seq


def _ended(record: Decided, ledger: Ledger, grants: GrantSet | Unfit, ending: RunEnding) -> int:
    back = CameBack(ending=ending, labels=_would_be(record, grants))
    with ledger.held() as book:
        session = book.labels_or(record.session, UNREADABLE)
        if ending is RunEnding.UNKNOWN:
            try:
                session = book.raise_to(record.session, back.labels)
            except StateError as error:  # its calls are denied until the state is rebuilt, from this record too
                log.error("labels cannot be raised session=%s code=%s", record.session, error.code)
                session = UNREADABLE
        book.append(entries.ended(record.seq, record.session, back, session))
    return record.seq


def _would_be(record: Decided, grants: GrantSet | Unfit) -> Labels:
    """Return the labels of the call's result: known where the grants are still those of the decision."""
    call = recorded_call(record)
    if call is None or isinstance(grants, Unfit) or grants.digest != record.grants:
        return UNREADABLE
    speaking = match.touching(grants.by_tool.get(call.kind.name, ()), call)
    if not speaking:
        return UNREADABLE
    found = [Labels(data_class=grant.result_class, untrusted=grant.untrusted) for grant in speaking]
    result = found[0]
    for one in found[1:]:
        result = labels.joined(result, one)
    return result


def recent(directory: Path, *, most_bytes: int = RECENT_BYTES) -> Iterator[Record]:
    """Yield the decisions in the last `most_bytes` of the log, oldest first; lines that hold none are left out."""
    for name, start in _tails(directory, most_bytes):
        for line in auditfiles.lines(directory, Place(file=name, bytes=start, lines=0, seq=0)):
            # Where the file is not read from its beginning, the first line is cut and decodes to nothing.
            if line.whole and line.raw.startswith(b'{"event":"decision"'):
                try:
                    yield auditlog.decode(line.raw)
                except BadMessage:
                    continue  # a torn or damaged line: the log's own check speaks of it


def _tails(directory: Path, most_bytes: int) -> list[tuple[str, int]]:
    """Return the newest files with the place from which each is read, oldest first."""
    tails: list[tuple[str, int]] = []
    for name in reversed(auditfiles.names(directory)):
        size = auditfiles.size(directory, name)
        tails.append((name, max(0, size - most_bytes)))
        most_bytes -= size
        if most_bytes <= 0:
            break
    return tails[::-1]
