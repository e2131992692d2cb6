"""An event of a turn -> the events that fit into frames. Pure.

A character takes at most six bytes of a frame (an escaped control character), and a frame has an
end. What is said to somebody is split: what streams, and an answer. What only shows the work is cut with a note, since
the session log has the whole. A tool's name is the model's words as well.
"""

from collections.abc import Iterator

import attrs

from bxcore.wire.channel import AnswerPart, ReasoningDelta, TextDelta, ToolCalled, ToolReturned, TurnEnded, TurnSnapshot

MOST_CHARS = 150_000
"""Of all texts of one event together."""
_NAME_CHARS = 256


def pieces(event: object) -> Iterator[object]:
    """Yield what to send for `event`: nearly always itself."""
    match event:
        case TextDelta() | ReasoningDelta():
            for at in range(0, len(event.text), MOST_CHARS):
                yield attrs.evolve(event, text=event.text[at : at + MOST_CHARS])
        case TurnEnded():
            *front, last = [event.text[at : at + MOST_CHARS] for at in range(0, len(event.text), MOST_CHARS)] or [""]
            yield from (AnswerPart(turn=event.turn, text=part) for part in front)
            yield attrs.evolve(event, text=last)
        case ToolReturned():
            yield attrs.evolve(event, name=event.name[:_NAME_CHARS], content=_head(event.content, MOST_CHARS))
        case ToolCalled():
            yield attrs.evolve(event, name=event.name[:_NAME_CHARS], arguments=_head(event.arguments, MOST_CHARS))
        case TurnSnapshot():
            half = MOST_CHARS // 2
            yield attrs.evolve(event, reasoning=_tail(event.reasoning, half), text=_tail(event.text, half))
        case _:
            yield event


def _head(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[cut here: {most} of {len(text)} characters; the session log has the whole]"


def _tail(text: str, most: int) -> str:
    # The end, because the deltas that follow go on from there.
    if len(text) <= most:
        return text
    return f"[{len(text) - most} characters before this are left out]\n{text[-most:]}"
