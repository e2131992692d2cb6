"""One request to the model: send it, show what comes, cap the thinking, return the whole reply.

Threads: all of it runs in its turn's thread.
"""

from contextlib import closing

from bxcore import logs
from bxcore.deadline import Deadline
from bxcore.errors import UpstreamError
from bxcore.wire.channel import PromptProgress, ReasoningDelta, TextDelta, TurnNotice, TurnWaiting, WaitReason
from loopd import runaway
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled
from loopd.pace import Pace
from loopd.parts import Parts, Tell
from loopd.stream import Assembler, Cap, Completion, Delta, Progress, Reasoning, Text

_LOOK_EVERY_CHARS = 500
_MAY_COME_BACK_CHANGED = frozenset({WaitReason.SERVER_AWAY, WaitReason.MODEL_LOADING})

log = logs.get("reply")


class ThinkingTooLong(Exception):
    """The model went on thinking past the cap and its slack, although told to stop."""


class TextLoops(Exception):
    """The answer only repeats itself."""


class Reply:
    """The reply to one request while it comes in."""

    def __init__(self, parts: Parts, *, turn: int, step: int, slot: int, cancel: CancelToken, tell: Tell) -> None:
        self._parts, self._turn, self._step, self._slot = parts, turn, step, slot
        self._cancel, self._tell = cancel, tell
        self._assembler = Assembler()
        self._pace = Pace(parts.clock)
        self._tail: list[str] = []
        self._unseen_chars = 0
        self.cap: Cap | None = None

    def receive(self, body: bytes) -> Completion:
        """Send `body` when the slot is free; return the complete reply.

        Raises ThinkingTooLong, TextLoops, Cancelled, and the UpstreamErrors of loopd.llama.
        """
        limits = self._parts.settings.limits
        with self._parts.gate.held(
            self._slot,
            cancel=self._cancel,
            deadline=Deadline.after(self._parts.clock, milliseconds=limits.gate_wait_ms),
            on_wait=lambda waited: self._wait(WaitReason.OTHER_TURN, waited, limits.gate_wait_ms),
        ):
            self._confirm()
            # Closed by name: whatever ends the loop, the server must see at once that we left.
            with closing(self._parts.server.stream(body, cancel=self._cancel, on_wait=self._wait_to_send)) as deltas:
                for delta in deltas:
                    self._assembler.feed(delta)
                    self._show(delta)
        self._parts.watch.heard()
        return self._assembler.finish()

    def so_far(self) -> Completion:
        """Whatever has come."""
        return self._assembler.partial()

    def _wait(self, reason: WaitReason, waited_ms: int, limit_ms: int) -> None:
        self._tell(TurnWaiting(turn=self._turn, reason=reason, waited_ms=waited_ms, limit_ms=limit_ms))

    def _wait_to_send(self, reason: WaitReason, waited_ms: int, limit_ms: int) -> None:
        self._wait(reason, waited_ms, limit_ms)
        if reason in _MAY_COME_BACK_CHANGED:
            # The request is sent again after this, and must not meet a server that nobody has tested.
            self._parts.watch.doubt()
            self._confirm()

    def _confirm(self) -> None:
        if self._parts.watch.confirm(cancel=self._cancel, on_wait=self._wait):
            text = "the model server has changed since the last request, and passed the self-test"
            self._tell(TurnNotice(turn=self._turn, code="model_changed", text=text))

    def _show(self, delta: Delta) -> None:
        match delta:
            case Text():
                self._tell(TextDelta(turn=self._turn, step=self._step, text=delta.text))
                self._end_loop(delta.text)
                self._pace.after_text()
            case Reasoning():
                self._tell(ReasoningDelta(turn=self._turn, step=self._step, text=delta.text))
                self._cap_thinking()
                self._pace.after_text()
            case Progress():
                self._tell(
                    PromptProgress(
                        turn=self._turn,
                        step=self._step,
                        total=delta.total,
                        cached=delta.cached,
                        processed=delta.processed,
                    )
                )
            case _:
                pass

    def _end_loop(self, text: str) -> None:
        """Look every now and then whether the answer has come to only repeat itself."""
        self._tail.append(text)
        self._unseen_chars += len(text)
        if self._unseen_chars < _LOOK_EVERY_CHARS:
            return
        chars = self._parts.settings.limits.loop_chars
        tail = "".join(self._tail)[-max(chars, 1) :]
        self._tail, self._unseen_chars = [tail], 0
        if runaway.loops(tail, chars=chars):
            raise TextLoops

    def _cap_thinking(self) -> None:
        limits, thought = self._parts.settings.limits, self._assembler.reasoning_tokens
        if thought < limits.thinking_tokens:
            return
        if self.cap is None:
            self.cap = Cap(tokens=thought, ended=self._told_to_end())
            text = f"the model thought for {thought} tokens and was told to answer now"
            self._tell(TurnNotice(turn=self._turn, code="thinking_cap", text=text))
        elif thought > self.cap.tokens + limits.thinking_slack_tokens:
            raise ThinkingTooLong

    def _told_to_end(self) -> bool:
        try:
            return self._parts.server.end_reasoning(self._assembler.completion_id, cancel=self._cancel)
        except Cancelled:
            raise
        except UpstreamError as fault:
            # An older server knows no such order. If it is gone, the reply itself will say so.
            log.warning("the server did not take the order to end thinking code=%s", fault.code)
            return False
