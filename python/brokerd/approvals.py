"""Questions to the owner: open until answered, expired or withdrawn, each by exactly one of those who could.

A worker of broker.sock opens a question and waits; the answer comes in on another thread, which decides again
and wakes the worker. Invariant: a yes names the fingerprint that was shown, is used once, and runs only what
the same terms still put into effect (INV-8); how the question ended is on disk before anybody is told. Time
runs on the monotonic clock. Reads: the grants and the call, anew. Writes: the audit log.
"""

import threading
from collections.abc import Callable

import attrs

from brokerd import entries, policy
from brokerd.approvaltext import Question, Terms
from brokerd.call import UNREADABLE, Call
from brokerd.couriers import Couriers
from brokerd.entries import Reply, Said
from brokerd.faults import NoApproval
from brokerd.ledger import Book, Ledger
from brokerd.pendingtable import PendingTable
from brokerd.policy import Ask, Decision, Denial
from brokerd.reading import FAULT, Looked, Reading, Unfit, terms_of
from brokerd.runner import Effects
from bxcore import logs
from bxcore.auditlog import Decided
from bxcore.deadline import Clock, Deadline
from bxcore.errors import StateError
from bxcore.ids import Hash32
from bxcore.settings.brokerd import Approvals as Limits
from bxcore.timestamp import DAY_MS, Timestamp
from bxcore.wire.admin import ApprovalAnswer, ApprovalEnding, ApprovalOutcome, Verdict
from bxcore.wire.tools import DenyReason

LOOK_MS = 500
"""How often a worker that waits looks at the clock, and whether its peer is still there."""

LONGEST_REASON = 300

log = logs.get("approvals")


class Pending:
    """An open question. Settled once, by whoever took it out of the table; `settled` is valid after `over`."""

    def __init__(self, question: Question, ask: Ask, *, grants: Hash32 | None, deadline: Deadline) -> None:
        self.question = question
        self.ask = ask
        self.grants = grants
        self.deadline = deadline
        self.over = threading.Event()
        self.settled: Decision | Denial | None = None
        self.approved: Effects | None = None  # what the yes is a yes to, down to the inodes of that moment

    @property
    def id(self) -> int:
        return self.question.id

    @property
    def call(self) -> Call:
        return self.question.call

    def settle(self, outcome: Decision | Denial) -> None:
        self.settled = outcome
        self.over.set()


@attrs.frozen(kw_only=True)
class _Judged:
    """What a yes or a no came to."""

    ending: ApprovalEnding
    outcome: Decision | Denial
    detail: str = ""
    said: Said | None = None


class Approvals:
    """All questions of this brokerd. `now` is the clock that grants expire by."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        reading: Reading,
        couriers: Couriers,
        limits: Limits,
        clock: Clock,
        now: Callable[[], Timestamp],
        look_ms: int = LOOK_MS,
    ) -> None:
        self._ledger = ledger
        self._reading = reading
        self._couriers = couriers
        self._ttl_ms = min(limits.ttl_ms, DAY_MS)
        self._clock = clock
        self._now = now
        self._look_ms = look_ms
        self._table = PendingTable[Pending](limits, clock)
        self._stopping = threading.Event()

    # -- asking ---------------------------------------------------------------------------------

    def admit(self, ask: Ask, grants: Hash32) -> str | None:
        """Keep a place for a question; where it may not be asked, return why not."""
        return self._table.admit(ask.call.fingerprint, grants)

    def give_back(self) -> None:
        """The question that was admitted is not asked after all."""
        self._table.give_back()

    def open(self, record: Decided, ask: Ask, terms: Terms) -> Pending:
        """Open the question of a decision that is on disk, in the place kept by `admit`."""
        question = Question(
            id=record.seq,
            call=ask.call,
            grant=str(ask.grant),
            terms=terms,
            opened=record.time,
            expires=Timestamp(record.time + self._ttl_ms),
        )
        deadline = Deadline.after(self._clock, milliseconds=self._ttl_ms)
        pending = Pending(question, ask, grants=record.grants, deadline=deadline)
        self._table.put(pending)
        self._couriers.ask(question)
        return pending

    def wait(self, pending: Pending, *, left: Callable[[], bool]) -> Decision | Denial:
        """Wait until the question is over and return what it came to. `left`: whoever asked has gone."""
        # Past its end a question is still open only while somebody works on an answer: no reason to look more often.
        while not pending.over.wait(min(self._look_ms, pending.deadline.remaining_ms() or self._look_ms) / 1000):
            if self._stopping.is_set() or left():
                self._end(pending, ApprovalEnding.VOID)
            elif pending.deadline.passed():
                self._end(pending, ApprovalEnding.EXPIRED)
        if pending.settled is None:
            raise RuntimeError("a question is over and nobody has answered it")
        return pending.settled

    def stop(self) -> None:
        """Withdraw all questions, now and later. Not from a signal handler."""
        self._stopping.set()

    def _end(self, pending: Pending, ending: ApprovalEnding) -> None:
        """End a question without an answer, unless somebody else has it: then that one ends it, very soon."""
        if not self._table.take(pending):
            return
        detail = None if ending is ApprovalEnding.EXPIRED else "the question was withdrawn before it was answered"
        outcome = policy.refuse(pending.call.request, DenyReason.APPROVAL_EXPIRED, detail)
        try:
            with self._ledger.held() as book:
                session = book.labels_or(pending.call.request.session, UNREADABLE)
                book.append(entries.answered(pending.id, Reply(ending=ending), None, session))
        except StateError as error:
            log.error("the end of a question is not recorded id=%d code=%s", pending.id, error.code)
            outcome = policy.refuse(pending.call.request, DenyReason.AUDIT_UNAVAILABLE, None)
        finally:
            pending.settle(outcome)
            self._couriers.close(pending.question, ending)

    # -- looking --------------------------------------------------------------------------------

    def questions(self) -> list[Question]:
        """Return the open questions, oldest first."""
        return [pending.question for pending in self._table.entries()]

    def question(self, number: int) -> Question:
        """Return an open question. Raises NoApproval."""
        pending = self._table.find(number)
        if pending is None:
            raise NoApproval("no question of this number is open: it was answered, it lapsed, or there never was one")
        return pending.question

    # -- answering ------------------------------------------------------------------------------

    def answer(self, answer: ApprovalAnswer, *, approver: str, post: str | None = None) -> ApprovalOutcome:
        """End a question as the owner says. Raises StateError where that could not be recorded: then nothing runs."""
        pending, why_not = self._taken(answer)
        if pending is None:
            return ApprovalOutcome(id=answer.id, ending=ApprovalEnding.NOT_PENDING, detail=why_not)
        judged = _failed(pending)
        try:
            reason = _one_line(answer.reason)
            looked = self._look(pending) if answer.approve else None
            with self._ledger.held() as book:
                judged = self._judged(pending, looked, book, reason)
                session = book.labels_or(pending.call.request.session, UNREADABLE)
                reply = Reply(ending=judged.ending, approver=approver, post=post, reason=reason)
                book.append(entries.answered(pending.id, reply, judged.said, session))
        except StateError:
            judged = attrs.evolve(_failed(pending), outcome=_unrecorded(pending))
            raise
        except BaseException:
            judged = _failed(pending)
            raise
        finally:
            pending.settle(judged.outcome)
            self._couriers.close(pending.question, judged.ending)
        return ApprovalOutcome(id=answer.id, ending=judged.ending, detail=judged.detail)

    def _look(self, pending: Pending) -> Looked:
        return self._reading.look_on(self._reading.look(pending.call.request))

    def _taken(self, answer: ApprovalAnswer) -> tuple[Pending | None, str]:
        pending = self._table.find(answer.id)
        if pending is None:
            return None, "it was answered, has expired or was never asked"
        named = answer.canonical
        # What was not shown cannot be approved; a no needs no proof, but one for another call is a mistake.
        if named != pending.call.fingerprint and (answer.approve or named is not None):
            return None, "the answer names another call than the one that asks; look at it again, it is still open"
        if not self._table.take(pending):
            return None, "it was answered or has expired a moment ago"
        return pending, ""

    def _judged(self, pending: Pending, looked: Looked | None, book: Book, reason: str | None) -> _Judged:
        if pending.deadline.passed():
            outcome = policy.refuse(pending.call.request, DenyReason.APPROVAL_EXPIRED, None)
            return _Judged(ending=ApprovalEnding.EXPIRED, outcome=outcome)
        if looked is None:
            self._table.refuse(pending.call.fingerprint, pending.grants)
            outcome = policy.refuse(pending.call.request, DenyReason.APPROVAL_REFUSED, reason)
            return _Judged(ending=ApprovalEnding.REFUSED, outcome=outcome)
        try:
            return self._yes(pending, looked, book)
        except Exception:
            log.exception("a yes came to nothing id=%d code=internal", pending.id)
            return _failed(pending)

    def _yes(self, pending: Pending, looked: Looked, book: Book) -> _Judged:
        """Decide again, by the grants, the labels and the call of this moment."""
        request, call = pending.call.request, looked.call
        if isinstance(looked.grants, Unfit):
            return _denied(_refused(pending, looked.grants))
        try:
            session = book.labels(request.session)
        except StateError:
            return _denied(policy.refuse(request, DenyReason.STATE_UNREADABLE, None))
        if isinstance(call, Unfit) or call.fingerprint != pending.call.fingerprint:
            return _changed(pending, "the path leads elsewhere now")
        effects = looked.effects
        if effects is None or isinstance(effects, Unfit):
            return _failed(pending) if effects is None else _denied(_refused(pending, effects))
        outcome = policy.redecide(pending.ask, looked.grants, call, session, self._now())
        if isinstance(outcome, Denial):
            return _denied(outcome)
        now = terms_of(effects, session=session, result=outcome.labels)
        if now != pending.question.terms:
            return _changed(pending, f"not as shown any more: {', '.join(_differing(pending.question.terms, now))}")
        pending.approved = effects
        said = Said(verdict=Verdict.ALLOWED, grant=outcome.grant, grant_hash=outcome.grant_hash)
        return _Judged(ending=ApprovalEnding.APPROVED, outcome=outcome, said=said)


def _refused(pending: Pending, unfit: Unfit) -> Denial:
    return policy.refuse(pending.call.request, unfit.reason, unfit.detail)


def _denied(denial: Denial) -> _Judged:
    said = Said(
        verdict=Verdict.DENIED,
        grant=denial.grant,
        grant_hash=denial.grant_hash,
        reason=denial.reason,
        detail=denial.detail,
    )
    detail = f"{denial.reason.value}: {denial.detail}" if denial.detail else denial.reason.value
    return _Judged(ending=ApprovalEnding.DENIED_NOW, outcome=denial, detail=detail, said=said)


def _changed(pending: Pending, what: str) -> _Judged:
    detail = "what the call would do changed while it was being asked about"
    outcome = policy.refuse(pending.call.request, DenyReason.APPROVAL_REFUSED, detail)
    return _Judged(ending=ApprovalEnding.CHANGED, outcome=outcome, detail=what)


def _failed(pending: Pending) -> _Judged:
    outcome = policy.refuse(pending.call.request, DenyReason.APPROVAL_REFUSED, FAULT)
    return _Judged(ending=ApprovalEnding.DENIED_NOW, outcome=outcome, detail=FAULT)


def _unrecorded(pending: Pending) -> Denial:
    return policy.refuse(pending.call.request, DenyReason.AUDIT_UNAVAILABLE, None)


def _differing(then: Terms, now: Terms) -> list[str]:
    return [field.name for field in attrs.fields(Terms) if getattr(then, field.name) != getattr(now, field.name)]


def _one_line(reason: str | None) -> str | None:
    """Return the owner's words on one line that the log and the model can hold."""
    words = " ".join((reason or "").split())
    return words[:LONGEST_REASON] or None
