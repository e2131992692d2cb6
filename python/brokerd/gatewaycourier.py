"""Carries questions to gatewayd, which puts them to the owner in Mattermost, and brings the answer back.

Invariant: a question is answered here only by what gatewayd says on the question's own connection, and what came of
that is said there once it is on disk. Asking and closing return at once, whatever gatewayd does: a question that it
cannot be asked stays open for bxctl, and is carried again until it is over. Threads: one a question, `most` at a
time; shared is who is on the way, under one lock, never held while calling out. Specified in docs/protocol.md.
"""

import os
import select
import threading
from typing import Protocol

from brokerd import approvalposts
from brokerd.approvaltext import Question
from bxcore import logs
from bxcore.client import Connection, PeerUnclear
from bxcore.deadline import Clock, Deadline
from bxcore.errors import BoxmakerError, StateError
from bxcore.settings.brokerd import Gateway
from bxcore.wire.admin import ApprovalAnswer, ApprovalEnding, ApprovalOutcome
from bxcore.wire.approvals import ApprovalClosed, ApprovalNoted, ApprovalOpen, ApprovalPosted, ApprovalReply

FIRST_PAUSE_MS = 500
MOST_PAUSE_MS = 30_000
"""Between two tries to reach gatewayd: the first pause, and what doubling it comes to."""

NOTED_MS = 2_000
"""What gatewayd may take to note how a question ended; it only writes that down."""

ENDING_MS = 2_000
"""How long whoever was faster may take to say what became of the question."""

log = logs.get("gatewaycourier")


class Answering(Protocol):
    """brokerd.approvals.Approvals.answer."""

    def __call__(self, answer: ApprovalAnswer, *, approver: str, post: str | None = None) -> ApprovalOutcome: ...


class _Errand:
    """One question on its way. `ended` is set once, by whoever ended it; the descriptor is readable from then on."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.ended: ApprovalEnding | None = None
        self.posted = False
        self._lock = threading.Lock()
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def end(self, ending: ApprovalEnding) -> None:
        with self._lock:
            self.ended = self.ended or ending
        self.wake()

    def wake(self) -> None:
        with self._lock:
            if self._woken >= 0:
                os.eventfd_write(self._woken, 1)

    def woken(self, milliseconds: int) -> bool:
        """Wait so long to be woken; say whether that happened."""
        return bool(_readable([self._woken], milliseconds))

    def hears(self, connection: Connection) -> bool:
        """Wait until something comes in, or to be woken; say whether something came in."""
        return connection.fileno() in _readable([connection.fileno(), self._woken], None)

    def close(self) -> None:
        with self._lock:
            os.close(self._woken)
            self._woken = -1


def _readable(descriptors: list[int], milliseconds: int | None) -> set[int]:
    # Not select(): it knows no descriptor above 1023.
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(milliseconds)}


class GatewayCourier:
    """The chat. Made once; `answer` is where an approver's word goes."""

    name = "mattermost"

    def __init__(self, settings: Gateway, *, answer: Answering, clock: Clock, most: int) -> None:
        if settings.socket is None:
            raise ValueError("a courier without a socket")
        self._socket = settings.socket
        self._limit = settings.post_characters
        self._answer = answer
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._errands: dict[int, tuple[_Errand, threading.Thread]] = {}
        self._stopping = threading.Event()

    def ask(self, question: Question) -> None:
        """Carry a question, in a thread of its own, until it is over."""
        with self._lock:
            fits = len(self._errands) < self._most and not self._stopping.is_set()
            if fits:
                errand = _Errand(question)
                thread = threading.Thread(
                    target=self._carry, args=(errand,), name=f"question-{question.id}", daemon=True
                )
                self._errands[question.id] = (errand, thread)
        if not fits:
            log.warning("not carried, too many are on the way id=%d code=courier_failed", question.id)
            return
        try:
            thread.start()
        except RuntimeError:
            self._forget(errand)
            log.error("not carried id=%d code=threads_exhausted", question.id)

    def close(self, question: Question, ending: ApprovalEnding) -> None:
        """A question is over; where it was answered through us, we are the one who is told."""
        with self._lock:
            found = self._errands.get(question.id)
        if found is not None:
            found[0].end(ending)

    def stop(self) -> None:
        """Let go of what is on the way: gatewayd withdraws it."""
        self._stopping.set()
        with self._lock:
            errands = [errand for errand, _ in self._errands.values()]
        for errand in errands:
            errand.wake()

    def join(self, milliseconds: int) -> bool:
        """Wait for the threads to end; say whether they have."""
        deadline = Deadline.after(self._clock, milliseconds=milliseconds)
        with self._lock:
            threads = [thread for _, thread in self._errands.values() if thread.ident is not None]
        for thread in threads:
            thread.join(deadline.remaining_ms() / 1000)
        return not any(thread.is_alive() for thread in threads)

    # -- one question ---------------------------------------------------------------------------

    def _carry(self, errand: _Errand) -> None:
        try:
            self._carry_until_over(errand)
        except Exception:
            log.exception("a question was dropped on the way id=%d code=courier_failed", errand.question.id)
        finally:
            self._forget(errand)

    def _forget(self, errand: _Errand) -> None:
        with self._lock:
            del self._errands[errand.question.id]
        errand.close()

    def _carry_until_over(self, errand: _Errand) -> None:
        message = self._message(errand.question)
        pause_ms, said = FIRST_PAUSE_MS, ""
        while not self._over(errand):
            try:
                self._once(errand, message)
                return
            except BoxmakerError as error:
                if errand.posted:  # it was there a moment ago: begin anew, it may only have been restarted
                    errand.posted, pause_ms, said = False, FIRST_PAUSE_MS, ""
                if error.code != said:
                    log.warning("cannot ask gatewayd id=%d code=%s", errand.question.id, error.code)
                said = error.code
            errand.woken(pause_ms)
            pause_ms = min(2 * pause_ms, MOST_PAUSE_MS)

    def _over(self, errand: _Errand) -> bool:
        return errand.ended is not None or self._stopping.is_set()

    def _message(self, question: Question) -> ApprovalOpen:
        parts, answerable = approvalposts.parts(question, limit=self._limit)
        return ApprovalOpen(
            id=question.id,
            session=question.call.request.session,
            opened=question.opened,
            expires=question.expires,
            parts=parts,
            answerable=answerable,
        )

    def _once(self, errand: _Errand, message: ApprovalOpen) -> None:
        """Ask gatewayd, wait for how it ends, and return; raises where gatewayd is to be asked again."""
        with Connection(self._socket, clock=self._clock) as connection:
            answers = connection.request(message)
            while errand.hears(connection):
                said = next(answers).msg
                if isinstance(said, ApprovalReply):
                    closed = self._closed_by(errand, said)
                    # The last frame was read; reading on ends the request, so that another may follow.
                    next(answers, None)
                    self._tell(connection, closed)
                    return
                if not isinstance(said, ApprovalPosted) or errand.posted:
                    raise PeerUnclear("gatewayd answered a question with something else")
                errand.posted = True
                log.info("question posted id=%d post=%s", message.id, said.post)
            # Before the connection closes, which alone would read as if nobody knew.
            if errand.ended is not None:
                self._tell_anew(_elsewhere(message.id, errand.ended))

    # -- what it came to ------------------------------------------------------------------------

    def _closed_by(self, errand: _Errand, reply: ApprovalReply) -> ApprovalClosed:
        """Answer as the approver did, and return what came of it."""
        question = errand.question
        answer = ApprovalAnswer(
            id=question.id, approve=reply.approve, canonical=question.call.fingerprint, reason=reply.reason
        )
        log.info("question answered id=%d approve=%s approver=%s", question.id, reply.approve, reply.approver)
        try:
            outcome = self._answer(answer, approver=f"{self.name}:{reply.approver}", post=reply.post)
        except StateError as error:
            log.error("an answer is not recorded id=%d code=%s", question.id, error.code)
            detail = "the answer could not be recorded, so nothing runs"
            return ApprovalClosed(id=question.id, ending=ApprovalEnding.DENIED_NOW, detail=detail)
        except Exception:
            log.exception("an answer came to nothing id=%d code=internal", question.id)
            detail = "a fault of brokerd's own; its log says more"
            return ApprovalClosed(id=question.id, ending=ApprovalEnding.DENIED_NOW, detail=detail)
        if outcome.ending is ApprovalEnding.NOT_PENDING:
            return _too_late(errand, outcome.detail)
        return ApprovalClosed(id=question.id, ending=outcome.ending, detail=outcome.detail)

    def _tell(self, connection: Connection, closed: ApprovalClosed) -> None:
        try:
            _say(connection, closed)
        except BoxmakerError as error:
            log.warning("the end of a question is not told id=%d code=%s", closed.id, error.code)
            self._tell_anew(closed)

    def _tell_anew(self, closed: ApprovalClosed) -> None:
        """Say it on a connection of its own. A gatewayd that is not there says at its start that it was restarted."""
        try:
            with Connection(self._socket, clock=self._clock, connect_ms=NOTED_MS) as connection:
                _say(connection, closed)
        except BoxmakerError as error:
            log.warning("the end of a question is not told id=%d code=%s", closed.id, error.code)


def _say(connection: Connection, closed: ApprovalClosed) -> None:
    for answer in connection.request(closed, idle_ms=NOTED_MS):
        if not isinstance(answer.msg, ApprovalNoted):
            raise PeerUnclear("gatewayd answered the end of a question with something else")


def _elsewhere(number: int, ending: ApprovalEnding) -> ApprovalClosed:
    nobody = ending in {ApprovalEnding.EXPIRED, ApprovalEnding.VOID}
    return ApprovalClosed(id=number, ending=ending, detail="" if nobody else "answered with bxctl")


def _too_late(errand: _Errand, why: str) -> ApprovalClosed:
    """Whoever was faster has it on disk by now, and says so in a moment."""
    errand.woken(ENDING_MS)
    detail = why if errand.ended is None else f"it had ended as {errand.ended.value}"
    return ApprovalClosed(id=errand.question.id, ending=ApprovalEnding.NOT_PENDING, detail=detail)
