"""How each ending of a turn is put into words. Pure.

The fixed words go into the session log, and from there into the prompt; the detail, which may hold words of the
server, is for the owner's eyes alone and never becomes part of the conversation.
"""

from collections.abc import Mapping

from bxcore.wire.channel import TurnEnding

LOST_CALL = (
    "lost: the turn ended before there was a result; whether it took effect is not known, and it is not run again"
)

_SENTENCES: Mapping[TurnEnding, str] = {
    TurnEnding.CANCELLED: "Stopped at the owner's request.",
    TurnEnding.LENGTH: "The answer was cut off: it reached the length limit of one reply.",
    TurnEnding.EMPTY: "The model gave an empty reply, and again when asked once more.",
    TurnEnding.ONLY_THINKING: "The model thought, but gave no answer.",
    TurnEnding.REPEATED_CALLS: "The turn was ended because the model kept making the same tool call.",
    TurnEnding.REPEATED_TEXT: "The answer was ended because the model kept repeating the same words.",
    TurnEnding.TOO_MANY_STEPS: "The turn was ended because it took too many steps without an answer.",
    TurnEnding.CONTEXT_FULL: "This is more than fits into the model's context. Please start a new session.",
    TurnEnding.SLOT_BUSY: "The model server was busy with other work for too long. Please try again later.",
    TurnEnding.MODEL_LOADING: "The model server did not finish loading its model in time. Please try again later.",
    TurnEnding.SERVER_SILENT: "The model server sent nothing for too long.",
    TurnEnding.SERVER_AWAY: "The model server could not be reached.",
    TurnEnding.SERVER_LOST: "The connection to the model server was lost before the reply was complete.",
    TurnEnding.SERVER_PROTOCOL: "The model server answered with something that Boxmaker does not understand.",
    TurnEnding.SERVER_REFUSED: "The model server refused the request.",
    TurnEnding.MODEL_CHANGED: "The model server now serves something else than this loopd was started for.",
    TurnEnding.STATE_FAILED: "The conversation could not be written to disk, so the turn was stopped.",
    TurnEnding.INTERRUPTED: "Boxmaker was stopped in the middle of this turn. Please say again what you still want.",
    TurnEnding.INTERNAL: "The turn was stopped by a fault in Boxmaker. The log of loopd has the details.",
}

_LEFT_OUT = "The model server refused to read this turn, so it was left out of the conversation."

_EXPLAINED = frozenset(
    {
        TurnEnding.SERVER_REFUSED,
        TurnEnding.SERVER_PROTOCOL,
        TurnEnding.MODEL_CHANGED,
        TurnEnding.CONTEXT_FULL,
        TurnEnding.STATE_FAILED,
    }
)
"""Endings whose detail helps the owner: the server's own words or numbers, the name of a file."""


def sentence(ending: TurnEnding, *, dropped: bool = False) -> str | None:
    """Return the fixed words; None for an ordinary answer. `dropped`: the turn left the prompt again."""
    if dropped and ending is TurnEnding.SERVER_REFUSED:
        return _LEFT_OUT
    return _SENTENCES.get(ending)


def detail(ending: TurnEnding, said: str) -> str | None:
    """Return what is worth keeping of a fault's own words."""
    return said if said and ending in _EXPLAINED else None


def told(words: str | None, more: str | None) -> str | None:
    """Return what the owner is told: the sentence, and the detail in brackets."""
    return f"{words} ({more})" if words and more else words
