"""What a reply means for the turn: run its calls, ask once more, or end. Pure.

Holds the counters that stop a model in a loop: equal calls, empty replies, steps.
"""

import re
from collections import Counter
from enum import Enum, auto

from bxcore.wire.channel import TurnEnding
from loopd.stream import Completion

NUDGE = "Your last reply held no answer. Answer the owner now, in plain words."

NOT_RUN_AGAIN = (
    "not run: this is the same call with the same arguments as before in this turn, and its result is above. "
    "Use that result, or do something else."
)

_LONGEST_PIECE = 200


def loops(text: str, *, chars: int) -> bool:
    """Say whether the last `chars` characters are one piece of at most 200, over and over. 0: never."""
    if not chars or len(text) < chars:
        return False
    tail = text[-chars:]
    return any(tail[period:] == tail[:-period] for period in range(1, min(_LONGEST_PIECE, chars // 4) + 1))


class Next(Enum):
    """What follows a reply."""

    ANSWERED = auto()
    RUN_CALLS = auto()
    NUDGE = auto()
    END = auto()


# Markup that a model sometimes leaves where its answer should be.
_MARKUP_ONLY = re.compile(r"(?:\s|</?think>|</?tool_call>|<\|[a-z_]+\|>)*")


def judge(reply: Completion, *, nudged: bool) -> tuple[Next, TurnEnding]:
    """Return what follows `reply` and, where the turn ends, how. `nudged`: it was already asked again."""
    if reply.calls:
        return Next.RUN_CALLS, TurnEnding.ANSWERED
    has_text = bool(reply.content) and not _MARKUP_ONLY.fullmatch(reply.content or "")
    if has_text:
        return (Next.END, TurnEnding.LENGTH) if reply.finish == "length" else (Next.ANSWERED, TurnEnding.ANSWERED)
    if not nudged:
        return Next.NUDGE, TurnEnding.EMPTY
    return Next.END, TurnEnding.ONLY_THINKING if reply.reasoning else TurnEnding.EMPTY


class Repeats:
    """Counts equal calls of one turn, whatever comes between them, so A-B-A-B is caught like A-A."""

    def __init__(self, *, refuse_at: int, end_at: int) -> None:
        self._refuse_at, self._end_at = refuse_at, end_at
        self._seen: Counter[str] = Counter()

    def count(self, canonical: str) -> tuple[bool, bool]:
        """Count one call; return (it must not be run, the turn must end)."""
        self._seen[canonical] += 1
        times = self._seen[canonical]
        return times >= self._refuse_at, times >= self._end_at
