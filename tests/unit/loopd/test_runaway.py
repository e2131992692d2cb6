import pytest

from bxcore.wire.channel import TurnEnding
from loopd import endings, runaway
from loopd.runaway import Next, Repeats
from loopd.stream import Completion, ReceivedCall


def reply(
    content: str | None = None, *, reasoning: str | None = None, calls: int = 0, finish: str = "stop"
) -> Completion:
    return Completion(
        content=content,
        reasoning=reasoning,
        calls=tuple(ReceivedCall(id=str(number), name="clock", arguments="{}") for number in range(calls)),
        finish=finish,
        prompt=10,
        cached=0,
        predicted=5,
        reasoning_tokens=0,
    )


def test_text_is_an_answer() -> None:
    assert runaway.judge(reply("Hello"), nudged=False) == (Next.ANSWERED, TurnEnding.ANSWERED)


def test_calls_are_run_whatever_was_said_beside_them() -> None:
    for content in (None, "", "Let me look."):
        assert runaway.judge(reply(content, calls=1), nudged=False)[0] is Next.RUN_CALLS
        assert runaway.judge(reply(content, calls=2, finish="length"), nudged=True)[0] is Next.RUN_CALLS


EMPTY = {
    "nothing": None,
    "empty": "",
    "white space": " \n\t\u00a0\u2003",
    "a closing tag": "</think>",
    "tags and space": "<think>\n\n</think>\n",
    "the opening of a call": "<tool_call>",
    "a special token": "<|im_end|>\n",
}


@pytest.mark.parametrize("content", EMPTY.values(), ids=EMPTY.keys())
def test_m3_a_reply_without_a_word_is_asked_for_once_more_and_then_ends(content: str | None) -> None:
    assert runaway.judge(reply(content), nudged=False)[0] is Next.NUDGE
    assert runaway.judge(reply(content), nudged=True) == (Next.END, TurnEnding.EMPTY)


@pytest.mark.parametrize("content", EMPTY.values(), ids=EMPTY.keys())
def test_m3_thinking_without_an_answer_ends_as_such(content: str | None) -> None:
    assert runaway.judge(reply(content, reasoning="hm"), nudged=False)[0] is Next.NUDGE
    assert runaway.judge(reply(content, reasoning="hm"), nudged=True) == (Next.END, TurnEnding.ONLY_THINKING)


def test_m3_the_length_limit_inside_thinking_is_asked_once_more() -> None:
    assert runaway.judge(reply(None, reasoning="hm", finish="length"), nudged=False)[0] is Next.NUDGE


def test_an_answer_that_was_cut_off_says_so() -> None:
    for nudged in (False, True):
        assert runaway.judge(reply("Once upon", finish="length"), nudged=nudged) == (Next.END, TurnEnding.LENGTH)


@pytest.mark.parametrize("content", ["<b>", "a </think>", "<tool_call>{}</tool_call>", "<|", "0"])
def test_markup_beside_anything_else_is_an_answer(content: str) -> None:
    assert runaway.judge(reply(content), nudged=False)[0] is Next.ANSWERED


LOOPS = {
    "one letter": "a" * 400,
    "one sentence": "I am sorry, I cannot do that. " * 20,
    "a long sentence": ("x" * 99 + "y") * 4,
    "cut in its middle": ("I am sorry. " * 60)[5:-3],
    "four-byte letters": "\U0001f99e\U0001f98a" * 200,
    "after a good beginning": "Once upon a time there was " + "no, " * 100,
}


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS.keys())
def test_an_answer_that_only_repeats_itself_is_seen(text: str) -> None:
    assert runaway.loops(text, chars=400)
    assert not runaway.loops(text, chars=0)


NO_LOOPS = {
    "too short to tell": "a" * 399,
    "a count": " ".join(map(str, range(1_000))),
    "one letter off": "a" * 300 + "b" + "a" * 99,
    "a good end": "no, " * 200 + "yes.",
    "a piece too long to be sure of": ("x" * 200 + "y") * 9,
}


@pytest.mark.parametrize("text", NO_LOOPS.values(), ids=NO_LOOPS.keys())
def test_anything_else_is_let_through(text: str) -> None:
    assert not runaway.loops(text, chars=400)


def test_a_long_run_of_markup_is_judged_in_linear_time() -> None:
    """A backtracking expression would need longer than the age of the universe."""
    assert runaway.judge(reply("<think> " * 20_000 + "x"), nudged=False)[0] is Next.ANSWERED
    assert runaway.judge(reply("<|" * 20_000), nudged=False)[0] is Next.ANSWERED


def test_s32_every_ending_but_an_answer_has_a_sentence() -> None:
    """Statement 32."""
    assert endings.sentence(TurnEnding.ANSWERED) is None
    for ending in set(TurnEnding) - {TurnEnding.ANSWERED}:
        sentence = endings.sentence(ending)
        assert sentence is not None
        assert sentence.endswith(".")
        assert sentence[0].isupper()


# -- repeated calls -----------------------------------------------------------------------------------


def counts(*calls: str) -> list[tuple[bool, bool]]:
    repeats = Repeats(refuse_at=3, end_at=5)
    return [repeats.count(call) for call in calls]


RUN, REFUSED, ENDS = (False, False), (True, False), (True, True)


def test_m2_the_third_equal_call_is_not_run_and_the_fifth_ends_the_turn() -> None:
    assert counts(*"AAAAAA") == [RUN, RUN, REFUSED, REFUSED, ENDS, ENDS]


def test_m2_two_calls_that_take_turns_are_caught_like_one() -> None:
    assert counts(*"ABABABABA") == [RUN, RUN, RUN, RUN, REFUSED, REFUSED, REFUSED, REFUSED, ENDS]


def test_calls_that_differ_are_run() -> None:
    assert counts(*"ABCDEFGH") == [RUN] * 8
