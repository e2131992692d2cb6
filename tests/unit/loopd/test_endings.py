"""What is said of a turn's end."""

from bxcore.wire.channel import TurnEnding
from loopd import endings


def test_every_end_but_an_ordinary_answer_has_a_sentence() -> None:
    assert {ending for ending in TurnEnding if endings.sentence(ending) is None} == {TurnEnding.ANSWERED}


def test_a_turn_that_was_interrupted_says_what_to_do() -> None:
    sentence = endings.sentence(TurnEnding.INTERRUPTED)
    assert sentence is not None
    assert sentence.endswith("Please say again what you still want.")
