"""The one path of a tool call: look, decide, record, ask, record, start, run, raise, record, answer.

Reads: grants, links and labels, anew for each call. Writes: the audit log and the session's labels, under the
ledger. Invariants: nothing runs before its decision and its start are on disk (INV-2); a fault anywhere is
a denial or a failure, never a run (INV-3); a result is released only after its labels and its record are on
disk (INV-4); one decision runs at most once, and a call that brokerd.claims still knows is never decided a
second time. Threads: many workers at once. Specified in docs/authority.md.
"""

import threading
from collections.abc import Callable
from typing import Protocol

import attrs

from brokerd import entries, policy, results
from brokerd.approvals import Approvals
from brokerd.approvaltext import Terms
from brokerd.call import UNREADABLE, Labels
from brokerd.callstate import CallEvent, CallState, Progress
from brokerd.claims import Claims
from brokerd.entries import CameBack, Said
from brokerd.ledger import Book, Ledger
from brokerd.mounts import MountRefused
from brokerd.pace import Pace
from brokerd.policy import Ask, Decision, Denial
from brokerd.reading import FAULT, Looked, Reading, Unfit, terms_of
from brokerd.runner import Effects, Ran, RunnerUnavailable
from brokerd.runnerfaults import NotAsApproved
from brokerd.running import Running
from bxcore import logs, strictjson
from bxcore.auditlog import Decided, Make, RunEnding
from bxcore.errors import StateError
from bxcore.ids import Hash32
from bxcore.server import PeerGone
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import Verdict
from bxcore.wire.tools import DenyReason, ToolDenied, ToolFailed, ToolPending, ToolRequest, ToolResult

REPEATED = "the session sent a call of this number before; no call runs twice"
NO_TIME = "the time that grants are judged by cannot be kept"
NO_ROOM = "too many calls are running"
ASKER_GONE = "whoever asked has left"
WITHHELD = "the call ran, but its result could not be recorded, so it is withheld"
UNKNOWN = "whether the call took effect is not known; do not repeat it without asking"

SEEN = frozenset({RunEnding.DONE, RunEnding.TOOL_ERROR, RunEnding.UNKNOWN})
"""Endings after which the session counts as having seen the result. A failure shows a fixed sentence only."""

Answer = ToolResult | ToolFailed | ToolDenied

log = logs.get("broker")


class Runs(Protocol):
    """What the path asks of brokerd.runner."""

    def run(
        self,
        decision: Decision,
        *,
        seq: int,
        started: Callable[[str, Hash32], None],
        cancelled: Callable[[], bool],
        approved: Effects | None,
    ) -> Ran: ...


@attrs.frozen(kw_only=True)
class Asker:
    """Whoever sent the request. `pending` raises PeerGone; `left` says whether they have gone."""

    pending: Callable[[ToolPending], None]
    left: Callable[[], bool]


@attrs.frozen(kw_only=True)
class _Weighed:
    """What policy said, and for a question what a yes would put into effect."""

    outcome: Decision | Ask | Denial
    terms: Terms | None = None


class Broker:
    """The path. `now` is the clock that grants expire by."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        reading: Reading,
        approvals: Approvals,
        claims: Claims,
        runner: Runs,
        running: Running,
        pace: Pace,
        now: Callable[[], Timestamp],
    ) -> None:
        self._ledger = ledger
        self._reading = reading
        self._approvals = approvals
        self._claims = claims
        self._runner = runner
        self._running = running
        self._pace = pace
        self._now = now
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Withdraw the open questions and stop what runs, now and later. Not from a signal handler."""
        self._stopping.set()
        self._approvals.stop()

    def handle(self, request: ToolRequest, asker: Asker) -> Answer:
        """Carry one request to its end. The answer to a denied one waits where very many are denied."""
        answer = self._answer(request, asker)
        if isinstance(answer, ToolDenied):
            # Also where the asker has left: who asks without listening to the answer must not be the faster for it.
            self._stopping.wait(self._pace.take(len(strictjson.dumps(request.arguments))) / 1000)
        return answer

    def _answer(self, request: ToolRequest, asker: Asker) -> Answer:
        if self._ledger.broken:
            return _denied(DenyReason.AUDIT_UNAVAILABLE)
        try:
            weighed, record = self._decide(request)
        except StateError as error:
            log.error("denied unrecorded session=%s call=%d code=%s", request.session, request.call, error.code)
            return _denied(DenyReason.AUDIT_UNAVAILABLE)
        outcome = weighed.outcome
        progress = Progress()
        progress.recorded(record)
        approved: Effects | None = None
        if isinstance(outcome, Ask):
            outcome, approved = self._ask(record, outcome, weighed.terms, asker)
            progress.move(CallEvent.APPROVE if isinstance(outcome, Decision) else CallEvent.REFUSE)
        if isinstance(outcome, Denial):
            return _denied(outcome.reason, outcome.detail)
        return self._carry_out(record, outcome, approved, progress, lambda: self._stopping.is_set() or asker.left())

    # -- deciding -------------------------------------------------------------------------------

    def _decide(self, request: ToolRequest) -> tuple[_Weighed, Decided]:
        """Decide and record. Raises StateError: then nothing was decided."""
        first = self._claims.take(request.session, request.call)
        looked = self._reading.look(request)
        decided = self._attempt(request, looked, first=first)
        if decided is None:
            # It may run. What it would do there is looked at without the ledger, and then all is weighed again.
            decided = self._attempt(request, self._reading.look_on(looked), first=first)
        if decided is None:
            raise RuntimeError("a call was weighed without its effects")
        weighed, record = decided
        reason = "-" if record.reason is None else record.reason.value
        log.info(
            "decided seq=%d session=%s call=%d verdict=%s reason=%s",
            record.seq,
            record.session,
            record.call,
            record.verdict.value,
            reason,
        )
        return weighed, record

    def _attempt(self, request: ToolRequest, looked: Looked, *, first: bool) -> tuple[_Weighed, Decided] | None:
        """Decide by the labels of this moment and record it; None, and nothing recorded, where effects are missing."""
        with self._ledger.held() as book:
            session = _labels(book, request)
            weighed = self._weigh(request, looked, session, first=first)
            if looked.effects is None and not isinstance(weighed.outcome, Denial):
                return None
            try:
                return weighed, book.append(_decision(request, looked, session, weighed.outcome))
            except BaseException:
                if isinstance(weighed.outcome, Ask):
                    self._approvals.give_back()
                raise

    def _weigh(self, request: ToolRequest, looked: Looked, session: Labels | Unfit, *, first: bool) -> _Weighed:
        """Decide; an exception meanwhile is a denial like another."""
        try:
            return self._outcome(request, looked, session, first=first)
        except StateError as error:
            log.error("denied, the time cannot be kept call=%d code=%s", request.call, error.code)
            return _Weighed(outcome=policy.refuse(request, DenyReason.STATE_UNREADABLE, NO_TIME))
        except Exception:
            log.exception("denied by a fault session=%s call=%d code=internal", request.session, request.call)
            return _Weighed(outcome=policy.refuse(request, DenyReason.NO_GRANT, FAULT))

    def _outcome(self, request: ToolRequest, looked: Looked, session: Labels | Unfit, *, first: bool) -> _Weighed:
        grants, call, effects = looked.grants, looked.call, looked.effects
        if isinstance(grants, Unfit):
            return _unfit(request, grants)
        if isinstance(session, Unfit):
            return _unfit(request, session)
        if isinstance(call, Unfit):
            return _unfit(request, call)
        if not first:
            return _Weighed(outcome=policy.refuse(request, DenyReason.INVALID_ARGUMENTS, REPEATED))
        outcome = policy.decide(grants, call, session, self._now())
        if isinstance(outcome, Denial) or effects is None:
            return _Weighed(outcome=outcome)
        if isinstance(effects, Unfit):
            return _unfit(request, effects)
        if isinstance(outcome, Decision):
            return _Weighed(outcome=outcome)
        terms = terms_of(effects, session=session, result=outcome.labels)
        if why_not := self._approvals.admit(outcome, grants.digest):
            return _Weighed(outcome=policy.refuse(request, DenyReason.APPROVAL_REFUSED, why_not))
        return _Weighed(outcome=outcome, terms=terms)

    # -- asking ---------------------------------------------------------------------------------

    def _ask(
        self, record: Decided, ask: Ask, terms: Terms | None, asker: Asker
    ) -> tuple[Decision | Denial, Effects | None]:
        """Put the question, tell the asker that it is open, and wait for what it comes to, and what a yes was to."""
        if terms is None:
            raise RuntimeError("a question without terms")
        pending = self._approvals.open(record, ask, terms)
        left = asker.left
        try:
            asker.pending(ToolPending(approval=pending.id, expires=pending.question.expires))
        except PeerGone:
            left = _gone
        return self._approvals.wait(pending, left=left), pending.approved

    # -- running --------------------------------------------------------------------------------

    def _carry_out(
        self,
        record: Decided,
        decision: Decision,
        approved: Effects | None,
        progress: Progress,
        given_up: Callable[[], bool],
    ) -> Answer:
        if given_up():
            log.info("not run seq=%d why=%s", record.seq, ASKER_GONE)
            return self._not_run(record, decision, DenyReason.RUNNER_UNAVAILABLE, ASKER_GONE)
        with self._running.place(given_up=given_up) as placed:
            if not placed:
                log.warning("not run, no room seq=%d code=runner_busy", record.seq)
                return self._not_run(record, decision, DenyReason.RUNNER_UNAVAILABLE, NO_ROOM)
            try:
                ran = self._run(record, decision, approved, progress, given_up)
            except StateError as error:
                log.error("not run, its start is not recorded seq=%d code=%s", record.seq, error.code)
                return _denied(DenyReason.AUDIT_UNAVAILABLE)
            except RunnerUnavailable as error:
                if progress.state is CallState.APPROVED:
                    log.warning("not run seq=%d code=%s why=%s", record.seq, error.code, error.detail)
                    return self._not_run(record, decision, _reason(error), error.detail)
                log.error("lost a running call seq=%d code=%s", record.seq, error.code)
            except Exception:
                log.exception("a run failed seq=%d code=internal", record.seq)
                if progress.state is CallState.APPROVED:
                    return self._not_run(record, decision, DenyReason.RUNNER_UNAVAILABLE, FAULT)
            else:
                answer, back = results.of(ran, decision.labels)
                return self._finish(record, answer, back)
        back = CameBack(ending=RunEnding.UNKNOWN, labels=decision.labels)
        return self._finish(record, ToolFailed(message=UNKNOWN), back)

    def _run(
        self,
        record: Decided,
        decision: Decision,
        approved: Effects | None,
        progress: Progress,
        given_up: Callable[[], bool],
    ) -> Ran:
        def started(image: str, plan: Hash32) -> None:
            with self._ledger.held() as book:
                progress.recorded(book.append(entries.started(record.seq, image, plan)))

        return self._runner.run(decision, seq=record.seq, started=started, cancelled=given_up, approved=approved)

    def _not_run(self, record: Decided, decision: Decision, reason: DenyReason, detail: str) -> Answer:
        """What may run did not start: it has ended too, and the log says so."""
        back = CameBack(ending=RunEnding.FAILED, labels=decision.labels)
        self._finish(record, ToolFailed(message=detail), back)
        return _denied(reason, detail)

    def _finish(self, record: Decided, answer: Answer, back: CameBack) -> Answer:
        """Raise the session's labels, record the result, and only then let it out."""
        try:
            with self._ledger.held() as book:
                answer, back, session = _raised(book, record, answer, back)
                book.append(entries.ended(record.seq, record.session, back, session))
        except StateError as error:
            log.error("a result is not recorded seq=%d code=%s", record.seq, error.code)
            return ToolFailed(message=WITHHELD)
        log.info("ended seq=%d ending=%s bytes=%d", record.seq, back.ending.value, back.size)
        return answer


def _reason(error: RunnerUnavailable) -> DenyReason:
    """Return why a call that may run did not."""
    if isinstance(error, NotAsApproved):
        return DenyReason.APPROVAL_REFUSED
    return DenyReason.INVALID_ARGUMENTS if isinstance(error, MountRefused) else DenyReason.RUNNER_UNAVAILABLE


def _raised(book: Book, record: Decided, answer: Answer, back: CameBack) -> tuple[Answer, CameBack, Labels]:
    """Join the result's labels to the session's. Where that fails the session has not seen it, nor will it."""
    if back.ending not in SEEN:
        return answer, back, book.labels_or(record.session, UNREADABLE)
    try:
        return answer, back, book.raise_to(record.session, back.labels)
    except StateError as error:
        log.error("a result is withheld seq=%d code=%s", record.seq, error.code)
        withheld = back if back.ending is RunEnding.UNKNOWN else attrs.evolve(back, ending=RunEnding.FAILED)
        return ToolFailed(message=WITHHELD), withheld, UNREADABLE


def _labels(book: Book, request: ToolRequest) -> Labels | Unfit:
    try:
        return book.labels(request.session)
    except StateError as error:
        log.error("denied, the labels cannot be read session=%s code=%s", request.session, error.code)
    except Exception:
        log.exception("denied, the labels cannot be read session=%s code=internal", request.session)
    return Unfit(reason=DenyReason.STATE_UNREADABLE, detail=None)


def _decision(
    request: ToolRequest, looked: Looked, session: Labels | Unfit, outcome: Decision | Ask | Denial
) -> Make[Decided]:
    return entries.decided(
        request,
        None if isinstance(looked.call, Unfit) else looked.call,
        said(outcome),
        UNREADABLE if isinstance(session, Unfit) else session,
        None if isinstance(looked.grants, Unfit) else looked.grants.digest,
    )


def said(outcome: Decision | Ask | Denial) -> Said:
    """Return what may be recorded of an outcome."""
    if isinstance(outcome, Denial):
        verdict, reason, detail = Verdict.DENIED, outcome.reason, outcome.detail
    else:
        verdict, reason, detail = (Verdict.ASK if isinstance(outcome, Ask) else Verdict.ALLOWED), None, None
    return Said(verdict=verdict, grant=outcome.grant, grant_hash=outcome.grant_hash, reason=reason, detail=detail)


def _unfit(request: ToolRequest, unfit: Unfit) -> _Weighed:
    return _Weighed(outcome=policy.refuse(request, unfit.reason, unfit.detail))


def _denied(reason: DenyReason, detail: str | None = None) -> ToolDenied:
    return ToolDenied(reason=reason, detail=detail)


def _gone() -> bool:
    return True
