"""What a reply means for the turn: run its calls, ask once more, or end, and in which words. Pure.

Holds the counters that stop a model in a loop: equal calls, empty replies, steps.
"""

import re
from collections import Counter
from collections.abc import Mapping
from enum import Enum, auto

from bxcore.wire.channel import TurnEnding
from loopd.stream import Completion

NUDGE = "Your last reply held no answer. Answer the owner now, in plain words."

NOT_RUN_AGAIN = (
    "not run: this is the same call with the same arguments as before in this turn, and its result is above. "
    "Use that result, or do something else."
)

SENTENCES: Mapping[TurnEnding, str] = {
    TurnEnding.CANCELLED: "Stopped at the owner's request.",
    TurnEnding.LENGTH: "The answer was cut off: it reached the length limit of one reply.",
    TurnEnding.EMPTY: "The model gave an empty reply, and again when asked once more.",
    TurnEnding.ONLY_THINKING: "The model thought, but gave no answer, and again when asked once more.",
    TurnEnding.REPEATED_CALLS: "The turn was ended because the model kept making the same tool call.",
    TurnEnding.REPEATED_TEXT: "The answer was ended because the model kept repeating the same words.",
    TurnEnding.TOO_MANY_STEPS: "The turn was ended because it took too many steps without an answer.",
    TurnEnding.CONTEXT_FULL: "This is more than fits into the model's context. Please start a new session.",
    TurnEnding.SLOT_BUSY: "The model server was busy with other work for too long. Please try again later.",
    TurnEnding.MODEL_LOADING: "The model server did not finish loading its model in time. Please try again later.",
    TurnEnding.SERVER_SILENT: "The model server stopped sending in the middle of the reply.",
    TurnEnding.SERVER_LOST: "The connection to the model server was lost before the reply was complete.",
    TurnEnding.SERVER_REFUSED: "The model server refused the request, so the message was left out of the conversation.",
    TurnEnding.MODEL_CHANGED: "The model server now serves something else than this loopd was started for.",
    TurnEnding.STATE_FAILED: "The conversation could not be written to disk, so the turn was stopped.",
    TurnEnding.INTERRUPTED: "Boxmaker was stopped in the middle of this turn.",
    TurnEnding.INTERNAL: "The turn was stopped by a fault in Boxmaker. The log of loopd has the details.",
}


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
