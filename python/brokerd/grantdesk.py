"""What the owner asks about grants on admin.sock: checked, tried, explained, suggested. Decides and records nothing.

Reads: the grants, where their paths lead, the audit log, and for a call that might run what it would put into
effect. Threads: any.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import attrs

from brokerd import grantlinks, grantreview
from brokerd.call import Call, Labels
from brokerd.faults import NoRecord
from brokerd.grantpaths import PathReview
from brokerd.ledger import Ledger
from brokerd.reading import GrantSource, Reading, Unfit, recorded_call
from brokerd.runner import Effects
from bxcore.auditlog import Decided
from bxcore.grants import GrantFaults
from bxcore.ids import CallId, SessionId
from bxcore.timestamp import Timestamp
from bxcore.tools import TOOLS
from bxcore.wire.admin import (
    FindingLevel,
    GrantFinding,
    GrantReason,
    GrantsCheckEnd,
    GrantSuggestion,
    GrantsVerdict,
    Verdict,
)
from bxcore.wire.tools import DenyReason, ToolRequest

_NOBODY = SessionId("dry-run")


class GrantPlace(GrantSource, Protocol):
    """Where grants come from, and the directory that the owner writes them to."""

    @property
    def directory(self) -> Path: ...


class GrantDesk:
    """`now` is the clock that grants expire by."""

    def __init__(
        self,
        *,
        files: GrantPlace,
        reading: Reading,
        ledger: Ledger,
        paths: PathReview,
        now: Callable[[], Timestamp],
    ) -> None:
        self._files = files
        self._reading = reading
        self._ledger = ledger
        self._paths = paths
        self._now = now

    def check(self) -> Iterator[GrantFinding | GrantsCheckEnd]:
        """Yield what is to be said about the files, and the end."""
        try:
            grants = self._files.current()
        except GrantFaults as error:
            yield from (_finding(fault.file, fault.line, fault.text) for fault in error.faults)
            yield GrantsCheckEnd(valid=False, grants=0, findings=len(error.faults))
            return
        found = (
            *grantreview.check(grants, self._now()),
            *grantlinks.findings(grants),
            *self._paths.findings(grants),
        )
        findings = sorted(found, key=lambda finding: finding.file)
        yield from findings
        yield GrantsCheckEnd(valid=True, grants=len(grants.grants), findings=len(findings))

    def test(self, tool: str, arguments: str, session: Labels) -> Iterator[GrantReason | GrantsVerdict]:
        """Yield what the grants say of a call that nobody makes."""
        request = ToolRequest(session=_NOBODY, call=CallId(1), tool=tool, arguments=arguments)
        yield from self._weighed(self._reading.call(request), session)

    def explain(self, seq: int) -> Iterator[GrantReason | GrantsVerdict]:
        """Yield what the grants say today of the call of a recorded decision. Raises NoRecord."""
        record = self._decision(seq)
        call: Call | Unfit | None = recorded_call(record)
        if call is None:
            call = Unfit(reason=record.reason or DenyReason.INVALID_ARGUMENTS, detail=record.detail)
        grants = self._reading.grants()
        same = not isinstance(grants, Unfit) and grants.digest == record.grants
        for answer in self._weighed(call, Labels(data_class=record.taint, untrusted=record.untrusted)):
            if isinstance(answer, GrantsVerdict):
                yield attrs.evolve(answer, recorded=_told(record), same_grants=same)
            else:
                yield answer

    def suggest(self, seq: int) -> GrantSuggestion:
        """Return the narrowest grant that would ask for the call of a recorded denial. Raises NoRecord."""
        record = self._decision(seq)
        found = grantreview.suggest(record, TOOLS.get(record.tool), self._now())
        return found if found.toml is None else attrs.evolve(found, file=str(self._files.directory / found.file))

    def _decision(self, seq: int) -> Decided:
        record = self._ledger.find(seq)
        if not isinstance(record, Decided):
            raise NoRecord("the audit log has no decision of this number; `bxctl audit show` lists them")
        return record

    def _weighed(self, call: Call | Unfit, session: Labels) -> Iterator[GrantReason | GrantsVerdict]:
        grants = self._reading.grants()
        if isinstance(grants, Unfit):
            yield _denied(grants)
            return
        if isinstance(call, Unfit):
            yield _denied(call)
            return
        now = self._now()
        yield from grantreview.reasons(grants, call, session, now)
        verdict = grantreview.verdict(grants, call, session, now)
        yield verdict if verdict.verdict is Verdict.DENIED else self._with_effects(verdict, call)

    def _with_effects(self, verdict: GrantsVerdict, call: Call) -> GrantsVerdict:
        """Add what would take effect; a call that the runner would refuse is denied after all.

        What would keep the call from its path although it may run stands there as the detail of a yes.
        """
        effects = self._reading.effects(call)
        if isinstance(effects, Unfit):
            return _denied(effects)
        stopped = self._paths.unreachable(call, effects.mounts)
        return attrs.evolve(verdict, detail=stopped, mounts=_mounts(effects), hosts=effects.hosts)


def _mounts(effects: Effects) -> tuple[str, ...]:
    return tuple(f"{mount.source} ({'read and write' if mount.writable else 'read only'})" for mount in effects.mounts)


def _denied(unfit: Unfit) -> GrantsVerdict:
    return GrantsVerdict(
        verdict=Verdict.DENIED,
        reason=unfit.reason,
        detail=unfit.detail,
        grant=None,
        result_class=None,
        result_untrusted=None,
        mounts=(),
        hosts=(),
        recorded=None,
        same_grants=True,
    )


def _finding(file: str, line: int, text: str) -> GrantFinding:
    return GrantFinding(file=file, line=line, level=FindingLevel.ERROR, text=text)


def _told(record: Decided) -> str:
    """Return what was said then, on one line."""
    by = f" by {record.grant}" if record.grant else ""
    why = f": {record.reason.value}" if record.reason else ""
    detail = f" ({record.detail})" if record.detail else ""
    session = f"session at {record.taint.value}{', untrusted' if record.untrusted else ''}"
    return f"{record.verdict.value}{by}{why}{detail}; {session}"
