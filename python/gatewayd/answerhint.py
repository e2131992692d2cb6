"""A plain "yes" where a question is open: it answers nothing and goes to the model, and its author is told so. Pure."""

import re
from collections.abc import Iterable

from gatewayd.entries import Incoming, Outgoing, Question

_LONGEST = 40
_LIKE_ONE = re.compile(
    r"(?:yes|no|y|n|yep|nope|ok|okay|sure|go ahead|do it|approved?|den(?:y|ied))"
    r"(?:,? please)?(?: #?[0-9]{1,16})?[\s.!]*"
)


def like_an_answer(text: str) -> bool:
    """Say whether a message's whole text is what people say to a question."""
    return len(text) <= _LONGEST and _LIKE_ONE.fullmatch(text.strip().casefold()) is not None


def hint(incoming: Incoming, questions: Iterable[Question]) -> tuple[Outgoing, ...]:
    """Return what its author is told where a question waits in its thread, or in the direct channel it stands in."""
    meant = [question.id for question in questions if _is_near(incoming, question)]
    if not meant:
        return ()
    number = meant[-1]
    words = (
        f"Approval {number} is still open: only `!approve {number}` or `!deny {number}`, written in its thread,"
        " answers it. What you wrote is a message to the model."
    )
    return (Outgoing(key=f"hint-{incoming.id}", channel=incoming.channel, root=incoming.thread, message=words),)


def _is_near(incoming: Incoming, question: Question) -> bool:
    in_thread = incoming.thread == (question.root or question.post)
    return in_thread or (incoming.first and incoming.direct and incoming.channel == question.channel)
