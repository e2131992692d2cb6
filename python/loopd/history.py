"""What a session's records add up to: the prompt, the turn numbers, what is open. Pure.

The same fold runs over a log when it is opened and over each record as it is written, so a
session that was reopened cannot differ from one that was never closed.
"""

from collections.abc import Iterator

from bxcore.ids import CallId, MessageKey
from bxcore.sessionrecords import Assistant, Record, ToolResult, TurnEnd, TurnStart, Usage, User
from loopd.prompt import Prompt

REREAD_OVERLAP = 1
"""Tokens that a server reads again on every strict extension: the last one it had."""

_LOSS_SHARE_PERCENT = 80
_LOSS_SLACK = 16
"""Tokens of a generation prompt that a template may render otherwise in the next turn."""


class History:
    """Counters and open ends of one session. Not thread-safe: its session guards it."""

    def __init__(self, system: str) -> None:
        self.prompt = Prompt(system)
        self.turn = 0
        self.open_turn: int | None = None
        self.waiting: list[MessageKey] = []
        self.last_call = 0
        self.last_end: TurnEnd | None = None
        self._turn_of: dict[MessageKey, int] = {}
        self._unanswered: list[tuple[str, str]] = []
        self._last_text = ""
        self._context = self._context_before = 0
        self._turn_prompts = (0, 0)
        # Prompt of the first request of the turn before this one, and of this one. Turns that ended before the
        # server had counted anything are no turns here.

    def add(self, record: Record) -> None:
        """Take one record in."""
        self.prompt.add(record)
        match record:
            case User():
                self.waiting.append(record.key)
                self._turn_of[record.key] = self.turn + 1
            case TurnStart():
                self._start(record)
            case Assistant():
                self._last_text = record.content or ""
                self._unanswered = [(call.id, call.name) for call in record.tool_calls]
            case ToolResult():
                self.last_call = max(self.last_call, record.call)
                self._answer(record.tool_call_id)
            case Usage():
                self._use(record)
            case TurnEnd():
                self._end(record)
            case _:
                pass

    def turn_of(self, key: MessageKey) -> int | None:
        """The turn that a message belongs or will belong to; None for a key never seen."""
        return self._turn_of.get(key)

    @property
    def last_text(self) -> str:
        """The text of the newest assistant record of the newest turn."""
        return self._last_text

    def unanswered_calls(self) -> Iterator[tuple[str, str]]:
        """(id, name) of each call of the newest assistant record that has no result yet."""
        yield from self._unanswered

    def next_call(self) -> CallId:
        """The number that the next call will get."""
        return CallId(self.last_call + 1)

    def reread(self, *, prompt: int, cached: int) -> int:
        """Tokens of a request that were read again although the request before it held them."""
        known = min(self._context, prompt)
        return max(0, known - REREAD_OVERLAP - cached) if known else 0

    def lost(self, *, cached: int) -> int | None:
        """The number of tokens that should have been cached, where far fewer were; else None.

        A template that drops old thinking makes every server read the last turn again; that is
        its ordinary price. So a loss is only what reaches further back than the last turn.
        """
        before_last_turn = self._turn_prompts[0] or self._turn_prompts[1]
        far_below = cached * 100 < self._context * _LOSS_SHARE_PERCENT
        return self._context if far_below and cached < before_last_turn - _LOSS_SLACK else None

    def _start(self, record: TurnStart) -> None:
        self.turn = record.turn
        self.open_turn = record.turn
        self._last_text = ""
        self._unanswered = []
        self.waiting = [key for key in self.waiting if key not in record.keys]
        self._turn_of.update(dict.fromkeys(record.keys, record.turn))
        if self._turn_prompts[1]:
            self._turn_prompts = (self._turn_prompts[1], 0)
        self._context_before = self._context

    def _answer(self, identity: str) -> None:
        # The first of that id and no other: a server may give two calls the same one.
        place = next((place for place, call in enumerate(self._unanswered) if call[0] == identity), None)
        if place is not None:
            del self._unanswered[place]

    def _end(self, record: TurnEnd) -> None:
        self.open_turn = None
        self.last_end = record
        if record.dropped:
            self._context = self._context_before  # what follows stands where the turn stood, and is new

    def _use(self, record: Usage) -> None:
        if not record.prompt:
            return  # a reply that was stopped before the server had counted anything
        self._context = record.prompt + record.output
        if not self._turn_prompts[1]:
            self._turn_prompts = (self._turn_prompts[0], record.prompt)
