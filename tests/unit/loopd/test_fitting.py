import attrs
import pytest

from bxcore import envelope
from bxcore.envelope import Envelope
from bxcore.frame import MAX_FRAME
from bxcore.ids import CallId
from bxcore.wire.channel import (
    AnswerPart,
    ReasoningDelta,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnEnding,
    TurnNotice,
    TurnSnapshot,
    TurnState,
)
from loopd import fitting
from loopd.fitting import MOST_CHARS


def ended(text: str) -> TurnEnded:
    return TurnEnded(
        turn=1,
        ending=TurnEnding.ANSWERED,
        text=text,
        sentence="x" * 300,
        steps=1,
        prompt=2**53 - 1,
        cached=0,
        read=0,
        output=0,
        elapsed_ms=0,
    )


def snapshot(reasoning: str, text: str) -> TurnSnapshot:
    return TurnSnapshot(turn=1, state=TurnState.RUNNING, step=1, reasoning=reasoning, text=text)


def returned(content: str) -> ToolReturned:
    return ToolReturned(turn=1, call=CallId(1), name="x" * 64, ok=True, content=content, truncated=True)


def called(name: str, arguments: str) -> ToolCalled:
    return ToolCalled(turn=1, call=CallId(1), name=name, arguments=arguments)


def test_what_fits_is_sent_as_it_is() -> None:
    for event in (
        TextDelta(turn=1, step=1, text="x" * MOST_CHARS),
        ReasoningDelta(turn=1, step=1, text="x"),
        ended("x" * MOST_CHARS),
        snapshot("x" * (MOST_CHARS // 2), "y" * (MOST_CHARS // 2)),
        returned("x" * MOST_CHARS),
        called("x" * 256, "x" * MOST_CHARS),
        TurnNotice(turn=1, code="cache_loss", text="x"),
    ):
        assert list(fitting.pieces(event)) == [event]


def test_whatever_the_texts_hold_the_frames_are_small_enough() -> None:
    """The worst character is a control character: six bytes."""
    worst = "\x01" * 2_000_000
    for event in (
        TextDelta(turn=1, step=1, text=worst),
        ReasoningDelta(turn=1, step=1, text=worst),
        ended(worst),
        snapshot(worst, worst),
        returned(worst),
        attrs.evolve(returned(worst), name=worst),
        called(worst, worst),
    ):
        for piece in fitting.pieces(event):
            assert len(envelope.encode(Envelope(id=2**53 - 1, final=False, msg=piece))) <= MAX_FRAME


def test_a_long_delta_is_split_and_loses_nothing() -> None:
    text = "".join(map(str, range(100_000)))
    for kind in (TextDelta, ReasoningDelta):
        split = list(fitting.pieces(kind(turn=3, step=2, text=text)))
        assert len(split) > 1
        assert all(type(piece) is kind for piece in split)
        assert "".join(piece.text for piece in split if isinstance(piece, TextDelta | ReasoningDelta)) == text


@pytest.mark.parametrize("size", [0, 1, MOST_CHARS, MOST_CHARS + 1, 200_000, 2 * MOST_CHARS, 2_000_000])
def test_an_answer_goes_out_whole_and_its_front_comes_before_its_end(size: int) -> None:
    text = ("0123456789\N{SAILBOAT}" * (size // 11 + 1))[:size]
    *front, last = fitting.pieces(ended(text))
    assert last == ended(last.text if isinstance(last, TurnEnded) else "")
    assert all(isinstance(part, AnswerPart) and part.turn == 1 for part in front)
    whole = [part.text for part in (*front, last) if isinstance(part, AnswerPart | TurnEnded)]
    assert "".join(whole) == text
    assert max(map(len, whole)) <= MOST_CHARS
    assert len(front) == max(0, -(-size // MOST_CHARS) - 1)


def test_a_long_snapshot_keeps_its_end() -> None:
    (piece,) = fitting.pieces(snapshot("", "a" * 100_000 + "b"))
    assert isinstance(piece, TurnSnapshot)
    assert piece.text.startswith("[25001 characters before this are left out]\na")
    assert piece.text.endswith("ab")
    assert piece.reasoning == ""
