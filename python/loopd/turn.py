"""One turn: ask the model, run what it calls, ask again, until there is an answer or an honest ending.

Every record is on disk before the request that contains it is sent, and before the event that
acknowledges it is told. Threads: a turn runs in its own thread; it outlives the client that began it.
Invariants: INV-5 (see prompt.py), INV-6.
"""

from collections.abc import Mapping

import attrs

from bxcore import logs
from bxcore.errors import StateError, UpstreamError
from bxcore.sessionrecords import CacheLoss, Nudge, ThinkingCap, ToolCall, TurnEnd, Usage
from bxcore.timestamp import Timestamp
from bxcore.wire.channel import StepUsage, TurnEnded, TurnEnding, TurnNotice
from loopd import endings, modelfaults, replyrecords, runaway
from loopd.calls import CallRunner, TurnMustEnd
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled
from loopd.parts import Conversation, Parts, Tell
from loopd.reply import Reply, TextLoops, ThinkingTooLong
from loopd.runaway import Next
from loopd.slots import GateTimeout
from loopd.stream import Completion

log = logs.get("turn")


_ENDING_OF: Mapping[type[Exception], TurnEnding] = {
    Cancelled: TurnEnding.CANCELLED,
    ThinkingTooLong: TurnEnding.ONLY_THINKING,
    TextLoops: TurnEnding.REPEATED_TEXT,
    GateTimeout: TurnEnding.SLOT_BUSY,
    modelfaults.ModelChanged: TurnEnding.MODEL_CHANGED,
    modelfaults.SlotBusy: TurnEnding.SLOT_BUSY,
    modelfaults.ModelLoading: TurnEnding.MODEL_LOADING,
    modelfaults.ServerSilent: TurnEnding.SERVER_SILENT,
    modelfaults.ServerAway: TurnEnding.SERVER_AWAY,
    modelfaults.ServerLost: TurnEnding.SERVER_LOST,
    modelfaults.ServerProtocol: TurnEnding.SERVER_PROTOCOL,
    modelfaults.ServerRefused: TurnEnding.SERVER_REFUSED,
    modelfaults.RequestRefused: TurnEnding.SERVER_REFUSED,
    modelfaults.ContextFull: TurnEnding.CONTEXT_FULL,
}

_DROPPING = frozenset({modelfaults.ContextFull, modelfaults.RequestRefused})
"""Faults after which the turn's messages leave the prompt: the server would refuse them for ever."""


class _Ended(Exception):
    def __init__(self, ending: TurnEnding, *, detail: str = "", dropped: bool = False) -> None:
        super().__init__(ending.value)
        self.ending, self.dropped = ending, dropped
        self.words = endings.sentence(ending, dropped=dropped), endings.detail(ending, detail)


@attrs.define
class _Totals:
    steps: int = 0
    prompt: int = 0
    cached: int = 0
    read: int = 0
    output: int = 0


class Turn:
    """One turn of one session, run once."""

    def __init__(self, parts: Parts, session: Conversation, *, number: int, cancel: CancelToken, tell: Tell) -> None:
        self._parts, self._session, self._number = parts, session, number
        self._cancel, self._tell = cancel, tell
        self._calls = CallRunner(parts, session, turn=number, cancel=cancel, tell=tell)
        self._totals = _Totals()
        self.interrupted = False
        """Set before cancelling where loopd itself is stopping: the ending then says so."""

    def run(self) -> TurnEnded:
        """Take the turn to its end; return the event that says how it ended, not yet told."""
        began_ms = self._parts.clock.monotonic_ms()
        end = self._record_end(self._reach_end())
        return TurnEnded(
            turn=self._number,
            ending=end.ending,
            text=self._session.history.last_text,
            sentence=endings.told(*end.words),
            elapsed_ms=self._parts.clock.monotonic_ms() - began_ms,
            **attrs.asdict(self._totals),
        )

    def _reach_end(self) -> _Ended:
        try:
            self._steps()
            return _Ended(TurnEnding.ANSWERED)
        except _Ended as reached:
            if reached.ending is TurnEnding.CANCELLED and self.interrupted:
                return _Ended(TurnEnding.INTERRUPTED)
            return reached
        except TurnMustEnd as reached:
            return _Ended(TurnEnding.INTERRUPTED if self.interrupted else reached.ending)
        except StateError as fault:
            log.error("session log cannot be written session=%s code=%s", self._session.id, fault.code)
            return _Ended(TurnEnding.STATE_FAILED, detail=fault.detail)
        except Exception:
            log.exception("turn failed session=%s turn=%d", self._session.id, self._number)
            return _Ended(TurnEnding.INTERNAL)

    def _steps(self) -> None:
        nudged = False
        for step in range(1, self._parts.settings.limits.steps + 1):
            self._totals.steps = step
            received, reply = self._ask(step)
            calls = replyrecords.stored_calls(received)
            self._record_reply(step, received, reply, calls)
            follows, ending = runaway.judge(received, nudged=nudged)
            if follows is Next.ANSWERED:
                return
            if follows is Next.END:
                raise _Ended(self._length_or_full(ending, received))
            if follows is Next.NUDGE:
                nudged = True
                self._session.write(Nudge(time=self._now(), turn=self._number, content=runaway.NUDGE))
            else:
                self._calls.run(calls)
        raise _Ended(TurnEnding.TOO_MANY_STEPS)

    def _ask(self, step: int) -> tuple[Completion, Reply]:
        reply = Reply(
            self._parts, turn=self._number, step=step, slot=self._session.slot, cancel=self._cancel, tell=self._tell
        )
        try:
            return reply.receive(self._session.request()), reply
        except (ThinkingTooLong, TextLoops, UpstreamError) as fault:
            self._record_partial(step, reply)
            if not isinstance(fault, Cancelled):
                self._parts.watch.doubt()
            ending = _ENDING_OF.get(type(fault), TurnEnding.SERVER_LOST)
            detail = fault.detail if isinstance(fault, UpstreamError) else ""
            raise _Ended(ending, detail=detail, dropped=type(fault) in _DROPPING) from fault

    def _length_or_full(self, ending: TurnEnding, received: Completion) -> TurnEnding:
        full = received.prompt + received.predicted >= self._parts.watch.n_ctx
        return TurnEnding.CONTEXT_FULL if ending is TurnEnding.LENGTH and full else ending

    def _record_reply(self, step: int, received: Completion, reply: Reply, calls: tuple[ToolCall, ...]) -> None:
        at = replyrecords.Place(time=self._now(), turn=self._number, step=step)
        usage, loss = replyrecords.usage(at, received, self._session.history)
        self._session.write(
            replyrecords.assistant(at, received, calls), usage, *_present(loss, replyrecords.cap(at, reply.cap))
        )
        self._tell_usage(usage, loss)

    def _record_partial(self, step: int, reply: Reply) -> None:
        """Keep what the owner has already seen; a call that never became whole is no call."""
        seen = reply.so_far()
        if seen.content or seen.reasoning:
            self._record_reply(step, seen, reply, ())

    def _tell_usage(self, usage: Usage, loss: CacheLoss | None) -> None:
        totals = self._totals
        totals.prompt += usage.prompt
        totals.cached += usage.cached
        totals.read += usage.read
        totals.output += usage.output
        if loss:
            self._parts.watch.doubt()
            text = f"the model server read {usage.reread} tokens again that it had read before"
            self._tell(TurnNotice(turn=self._number, code="cache_loss", text=text))
        self._tell(StepUsage(**attrs.asdict(usage, filter=lambda field, _: field.name not in ("time", "finish"))))

    def _record_end(self, end: _Ended) -> _Ended:
        now, turn = self._now(), self._number
        words, detail = end.words
        record = TurnEnd(time=now, turn=turn, ending=end.ending, sentence=words, detail=detail, dropped=end.dropped)
        lost = replyrecords.lost_results(self._session.history, time=now, turn=turn, why=endings.LOST_CALL)
        try:
            self._session.write(*lost, record)
        except StateError as fault:
            return _Ended(TurnEnding.STATE_FAILED, detail=fault.detail)
        return end

    def _now(self) -> Timestamp:
        return self._parts.clock.now_ms()


def _present(*records: CacheLoss | ThinkingCap | None) -> list[CacheLoss | ThinkingCap]:
    return [record for record in records if record is not None]
