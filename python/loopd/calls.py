"""The tool calls of one reply: check each, run it or say why not, record the result.

Every call gets exactly one result, whatever happens: history with an unanswered call is refused by servers.
Threads: runs in its turn's thread.
"""

from bxcore import logs
from bxcore.errors import UpstreamError
from bxcore.ids import CallId
from bxcore.sessionrecords import ToolCall, ToolResult
from bxcore.wire.channel import ApprovalPending, ToolCalled, ToolReturned, TurnEnding
from bxcore.wire.tools import ToolPending
from loopd import runaway
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled
from loopd.parts import Conversation, Parts, Tell
from loopd.toolbox import CheckedCall, Outcome, RefusedCall

log = logs.get("calls")


class TurnMustEnd(Exception):
    """After these calls the turn does not go on."""

    def __init__(self, ending: TurnEnding) -> None:
        super().__init__(ending.value)
        self.ending = ending


class CallRunner:
    """Runs the calls of one turn, step after step, and counts the repeated ones."""

    def __init__(self, parts: Parts, session: Conversation, *, turn: int, cancel: CancelToken, tell: Tell) -> None:
        self._parts, self._session, self._turn = parts, session, turn
        self._cancel, self._tell = cancel, tell
        limits = parts.settings.limits
        self._repeats = runaway.Repeats(refuse_at=limits.repeats_refused, end_at=limits.repeats_end)

    def run(self, calls: tuple[ToolCall, ...]) -> None:
        """Answer each call. Raises TurnMustEnd after the last result, and StateError."""
        must_end: TurnEnding | None = None
        for place, call in enumerate(calls, 1):
            checked = self._parts.toolbox.check(call)
            number = self._session.history.next_call()
            shown = call.arguments if call.broken is None else call.broken
            self._tell(ToolCalled(turn=self._turn, call=number, name=checked.name, arguments=shown))
            if must_end is not None:
                outcome = Outcome(ok=False, content="not run: the turn ended before this call")
            elif place > self._parts.settings.limits.calls_per_step:
                outcome = Outcome(ok=False, content="not run: too many calls in one reply; make fewer at a time")
            else:
                outcome, must_end = self._run_one(checked, number)
            self._record(call, checked.name, number, outcome)
        if must_end is not None:
            raise TurnMustEnd(must_end)

    def _run_one(self, checked: CheckedCall | RefusedCall, number: CallId) -> tuple[Outcome, TurnEnding | None]:
        refused, must_end = self._repeats.count(checked.canonical)
        if refused or must_end:
            ending = TurnEnding.REPEATED_CALLS if must_end else None
            return Outcome(ok=False, content=runaway.NOT_RUN_AGAIN), ending
        if isinstance(checked, RefusedCall):
            return Outcome(ok=False, content=checked.reason), None
        if self._cancel.cancelled:
            return Outcome(ok=False, content="not run: the owner stopped the turn"), TurnEnding.CANCELLED
        return self._carry_out(checked, number)

    def _carry_out(self, checked: CheckedCall, number: CallId) -> tuple[Outcome, TurnEnding | None]:
        question: int | None = None

        def put(pending: ToolPending) -> None:
            nonlocal question
            question = pending.approval
            self._tell_pending(checked.name, number, pending)

        try:
            outcome = self._parts.toolbox.run(
                checked,
                session=self._session.id,
                number=number,
                cancel=self._cancel,
                on_pending=put,
            )
        except Cancelled:
            return Outcome(ok=False, content=_stopped(question)), TurnEnding.CANCELLED
        except UpstreamError as fault:
            log.warning("tool call failed session=%s call=%d code=%s", self._session.id, number, fault.code)
            return Outcome(ok=False, content="the broker could not be reached; the call was not carried out"), None
        return outcome, None

    def _tell_pending(self, name: str, number: CallId, pending: ToolPending) -> None:
        approval, expires = pending.approval, pending.expires
        self._tell(ApprovalPending(turn=self._turn, call=number, name=name, approval=approval, expires=expires))

    def _record(self, call: ToolCall, name: str, number: CallId, outcome: Outcome) -> None:
        content, truncated = self._capped(number, outcome)
        self._session.write(
            ToolResult(
                time=self._parts.clock.now_ms(),
                turn=self._turn,
                call=number,
                tool_call_id=call.id,
                name=name,
                ok=outcome.ok,
                content=content,
                data_class=outcome.data_class,
                untrusted=outcome.untrusted,
                truncated=truncated,
            )
        )
        self._tell(
            ToolReturned(turn=self._turn, call=number, name=name, ok=outcome.ok, content=content, truncated=truncated)
        )

    def _capped(self, number: CallId, outcome: Outcome) -> tuple[str, bool]:
        """Cut when first logged, never later: what a request once held stays as it was."""
        limit = self._parts.settings.limits.result_chars
        if len(outcome.content) <= limit:
            return self._parts.watch.neutralise(outcome.content), outcome.truncated
        self._session.keep_result(number, outcome.content)
        kept = f"[cut here: {limit} of {len(outcome.content)} characters shown; the whole is kept as result {number}]"
        return f"{self._parts.watch.neutralise(outcome.content[:limit])}\n{kept}", True


def _stopped(question: int | None) -> str:
    """Return what is known of a call that the owner stopped. The broker tells nothing of a yes but its result."""
    if question is None:
        return "stopped by the owner; whether it took effect is not known"
    return (
        f"stopped by the owner: not run, unless question {question} had already been approved; "
        "in that case whether it took effect is not known"
    )
