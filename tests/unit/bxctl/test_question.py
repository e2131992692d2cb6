"""What a typed line answers: the question's number is a yes, and almost nothing else is anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxctl.question import Heard, Said, read

LINES = {
    "its number": ("42", Heard(said=Said.YES)),
    "its number with blanks": (" 42 \n", Heard(said=Said.YES)),
    "nothing": ("\n", Heard(said=Said.LATER)),
    "n": ("n", Heard(said=Said.NO)),
    "no": ("No", Heard(said=Said.NO)),
    "no and why": ("n it is the wrong file", Heard(said=Said.NO, reason="it is the wrong file")),
    "deny and why": ("deny 42 wrong file", Heard(said=Said.NO, reason="wrong file")),
    "another number": ("41", Heard(said=Said.UNCLEAR)),
    "y": ("y", Heard(said=Said.UNCLEAR)),
    "yes": ("yes", Heard(said=Said.UNCLEAR)),
    "its number and more": ("42 please", Heard(said=Said.UNCLEAR)),
    "two numbers": ("42 43", Heard(said=Said.UNCLEAR)),
    "a leading zero": ("042", Heard(said=Said.UNCLEAR)),
    "full-width digits": ("４２", Heard(said=Said.UNCLEAR)),
    "approve": ("approve 42", Heard(said=Said.UNCLEAR)),
    "an answer that begins like a no": ("note this", Heard(said=Said.UNCLEAR)),
}


@pytest.mark.parametrize(("line", "heard"), LINES.values(), ids=LINES.keys())
def test_a_line_means(line: str, heard: Heard) -> None:
    assert read(line, 42) == heard


@given(st.text(), st.integers(1, 10**9))
def test_nothing_but_the_number_is_a_yes(line: str, number: int) -> None:
    assert (read(line, number).said is Said.YES) == (line.strip() == str(number))
