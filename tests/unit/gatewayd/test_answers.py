"""What is posted at a turn's end: the answer in order, one honest sentence where it is none, under its own keys."""

import pytest

from bxcore.wire.control import ErrorCode
from gatewayd import answers
from gatewayd.answers import answer_of
from gatewayd.entries import Outgoing
from tests.fakes.gatequeue import CHANNEL, post, session, turn
from tests.fakes.postbox import an_id

LIMIT = 16_383


def posts(text: str, sentence: str | None = None, limit: int = LIMIT) -> tuple[Outgoing, ...]:
    return answers.posts(turn("root", 7), text, sentence, limit=limit, hosts=())


def messages(text: str, sentence: str | None = None, limit: int = LIMIT) -> list[str]:
    return [one.message for one in posts(text, sentence, limit)]


def test_an_answer_is_posted_in_its_thread_under_the_key_of_its_turn() -> None:
    (one,) = posts("Good morning.")
    assert one == Outgoing(key=f"{session('root')}:7:1", channel=CHANNEL, root=an_id("root"), message="Good morning.")


def test_a_long_answer_has_a_key_for_each_part_in_order() -> None:
    """C7."""
    text = "\n".join(f"line {number}" for number in range(20_000))
    found = posts(text)
    assert len(found) > 1
    assert [one.key for one in found] == [f"{session('root')}:7:{number}" for number in range(1, len(found) + 1)]
    assert max(len(one.message) for one in found) <= LIMIT
    assert "\n".join(one.message for one in found).split() == text.split()


def test_a_turn_that_was_not_answered_says_why_after_what_it_has() -> None:
    assert messages("As far as I got", "Stopped at the owner's request.") == [
        "As far as I got\n\n*Stopped at the owner's request.*"
    ]


@pytest.mark.parametrize("text", ["", " \n\t "])
def test_where_there_is_no_text_the_sentence_stands_alone(text: str) -> None:
    assert messages(text, "The model thought, but gave no answer.") == ["*The model thought, but gave no answer.*"]


def test_an_answer_of_nothing_is_said_to_be_one() -> None:
    assert messages("  ") == ["*The turn ended without an answer.*"]


def test_a_sentence_for_which_the_last_part_has_no_room_is_a_part_of_its_own() -> None:
    found = messages("x" * 3_995, "The server could not be reached.", limit=4_000)
    assert found[-1] == "*The server could not be reached.*"
    assert max(map(len, found)) <= 4_000


def test_what_a_server_wrote_into_a_sentence_is_harmless_and_one_line() -> None:
    (message,) = messages("", "The model server refused the request. (![x](http://evil.example.com/) @all\n# big)")
    assert "![x](" not in message
    assert "@all" not in message
    assert "\n" not in message


def test_a_server_that_has_much_to_say_does_not_make_a_post_too_long() -> None:
    (message,) = messages("", f"The model server refused the request. ({'<' * 20_000})", limit=4_000)
    assert len(message) <= 4_000


def test_a_sentence_stands_outside_of_a_code_block_that_the_answer_left_open() -> None:
    (message,) = messages("```\nls", "The answer was cut off.")
    before, _, _ = message.partition("*The answer")
    assert sum(line.startswith("```") for line in before.splitlines()) % 2 == 0


KEYS = {
    "an answer": (f"{session('root')}:7:12", (session("root"), f"{session('root')}:7:")),
    "a part that was split again": (f"{session('root')}:7:1.2", (session("root"), f"{session('root')}:7:")),
    "a note": (f"unsaid:{an_id('root')}", None),
    "a command's": (f"command:{an_id('root')}", None),
    "no turn": (f"{session('root')}:x:1", None),
    "cut": (f"{session('root')}:7", None),
}


@pytest.mark.parametrize(("key", "found"), KEYS.values(), ids=KEYS.keys())
def test_the_answer_of_a_key_is_found_again(key: str, found: object) -> None:
    assert answer_of(key) == found


def test_an_answer_does_not_take_another_turns_parts_for_its_own() -> None:
    assert not f"{session('root')}:11:1".startswith(answers.prefix(session("root"), 1))


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.value)
def test_whatever_loopd_says_instead_there_is_one_sentence(code: ErrorCode) -> None:
    words = (answers.lost(code.value), answers.not_said(post("root"), code.value).message)
    assert all(one and "{" not in one and "\n" not in one for one in words)
