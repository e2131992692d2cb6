"""Who says yes in plain words is told how to say it so that it counts."""

import pytest

from gatewayd import answerhint
from gatewayd.entries import Incoming, Question
from tests.fakes.queued import DIRECT, TOWN, an_id, incoming

LIKE = [
    "yes",
    "Yes.",
    "YES!!",
    " ok ",
    "y",
    "no",
    "approve",
    "Approve 17",
    "deny #3",
    "okay, please",
    "go ahead",
    "denied",
]
UNLIKE = ["", "yesterday", "yes, but only the first", "no idea", "approve of it", "ok" * 40, "what?", "17", "y n"]


def question(number: int = 17, *, root: str | None = "root", channel: object = DIRECT) -> Question:
    where = TOWN if channel is TOWN else DIRECT
    return Question(
        post=an_id("question", number), id=number, channel=where, root=an_id(root) if root else None, message="May it?"
    )


@pytest.mark.parametrize("text", LIKE)
def test_what_people_say_to_a_question_is_like_an_answer(text: str) -> None:
    assert answerhint.like_an_answer(text)


@pytest.mark.parametrize("text", UNLIKE)
def test_whatever_says_more_is_a_message(text: str) -> None:
    assert not answerhint.like_an_answer(text)


def test_the_hint_names_the_latest_question_of_the_thread_and_stands_below_the_post() -> None:
    said = incoming("yes", thread=an_id("root"))
    (hint,) = answerhint.hint(said, [question(3), question(17), question(20, root="elsewhere")])
    assert (hint.channel, hint.root, hint.key) == (DIRECT, an_id("root"), f"hint-{said.id}")
    assert "`!approve 17` or `!deny 17`" in hint.message


NEAR = {
    "in the thread that the question began": (
        incoming("yes", thread=an_id("question", 17)),
        question(root=None),
    ),
    "at the top level of the direct channel": (incoming("yes"), question(root=None)),
}
FAR = {
    "in another thread": (incoming("yes", thread=an_id("other")), question()),
    "at the top level of a channel": (incoming("yes", channel=TOWN, direct=False), question(channel=TOWN)),
    "in another direct channel": (incoming("yes", channel=an_id("direct2")), question()),
}


@pytest.mark.parametrize(("said", "asked"), NEAR.values(), ids=NEAR.keys())
def test_a_question_nearby_is_meant(said: Incoming, asked: Question) -> None:
    assert answerhint.hint(said, [asked])


@pytest.mark.parametrize(("said", "asked"), FAR.values(), ids=FAR.keys())
def test_a_question_elsewhere_is_not(said: Incoming, asked: Question) -> None:
    assert answerhint.hint(said, [asked]) == ()
