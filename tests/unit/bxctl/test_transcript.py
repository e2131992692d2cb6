"""Stored lines -> what a person reads."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from bxctl import transcript
from bxctl.render import Ink, Screen
from tests.fakes import loopd
from tests.fakes.screens import FakeTerminal

SCREEN = Screen(FakeTerminal(), {})


def tail(*records: dict[str, object]) -> list[str]:
    events = [loopd.record(number, json.dumps(record)) for number, record in enumerate(records, 1)]
    return [line for line, _ in transcript.tail(events, SCREEN)]


def user(words: str) -> dict[str, object]:
    return {"type": "user", "content": words}


def assistant(words: str | None) -> dict[str, object]:
    return {"type": "assistant", "content": words}


TURN = {"type": "turn_start", "turn": 1}
DONE: dict[str, object] = {"type": "turn_end", "ending": "answered", "sentence": None, "detail": None}


def test_the_tail_is_the_last_exchange() -> None:
    first = (user("one"), TURN, assistant("1"), DONE)
    lines = tail(*first, user("two"), TURN, assistant(None), assistant("\n\n2"), DONE)
    assert lines == ["last time: (1 turn before it)", "you> two", "2"]


def test_the_heading_of_the_tail_is_dim_and_the_ending_is_a_warning() -> None:
    events = [loopd.record(number, json.dumps(record)) for number, record in enumerate((user("one"), TURN), 1)]
    assert [ink for _, ink in transcript.tail(events, SCREEN)] == [Ink.DIM, None, Ink.WARN]


def test_an_answer_belongs_to_its_question_although_another_was_said_meanwhile() -> None:
    lines = tail(user("one"), TURN, user("two"), assistant("1"), DONE, TURN, assistant("2"), DONE)
    assert lines[1:] == ["you> two", "2"]


def test_a_message_that_no_turn_has_taken_stands_alone() -> None:
    assert tail(user("one"), TURN, assistant("1"), DONE, user("two"))[1:] == ["you> two"]


def test_a_session_in_which_nothing_was_said_has_no_tail() -> None:
    assert tail({"type": "session_start", "session": "s", "epoch": 1}) == []


def test_messages_of_one_turn_stand_together() -> None:
    lines = tail(user("one"), user("two"), TURN, assistant("both"), DONE)
    assert lines == ["last time:", "you> one", "     two", "both"]


def end(ending: str, sentence: str, detail: str | None = None) -> dict[str, object]:
    return {"type": "turn_end", "ending": ending, "sentence": sentence, "detail": detail}


def test_a_turn_without_an_answer_shows_its_sentence() -> None:
    lines = tail(user("one"), TURN, end("server_refused", "It said no.", "HTTP 400"))
    assert lines[1:] == ["you> one", "! It said no. (HTTP 400) [server_refused]"]


def test_half_an_answer_shows_how_it_ended_too() -> None:
    lines = tail(user("one"), TURN, assistant("Half"), end("interrupted", "It was stopped."))
    assert lines[1:] == ["you> one", "Half", "! It was stopped. [interrupted]"]


def test_a_turn_whose_end_is_not_written_says_so() -> None:
    assert tail(user("one"), TURN, assistant("Half"))[-1].endswith("[interrupted]")


def test_a_long_answer_is_cut_and_says_so() -> None:
    lines = tail(user("count"), TURN, assistant("\n".join(map(str, range(100)))), DONE)
    assert lines[-1] == "(88 more lines)"
    assert len(lines) == 15


def test_pieces_are_joined_before_they_are_read() -> None:
    events = [loopd.record(1, '{"type":"us', more=True), loopd.record(1, 'er","content":"hi"}')]
    assert [line for line, _ in transcript.tail(events, SCREEN)] == ["last time:", "you> hi"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from([*transcript.SHOW, "of a later version"])
names = st.sampled_from(
    [
        "time",
        "session",
        "epoch",
        "content",
        "reasoning_content",
        "tool_calls",
        "name",
        "ok",
        "read",
        "sentence",
        "ending",
        "detail",
    ]
)


@given(kinds, st.dictionaries(names, json_values))
def test_any_record_is_shown_and_none_steers_the_terminal(kind: str, fields: dict[str, object]) -> None:
    event = loopd.record(1, json.dumps({"type": kind, **fields}))
    lines = [line for line, _ in (*transcript.readable([event], SCREEN), *transcript.tail([event], SCREEN))]
    hidden = {c for line in lines for c in line if unicodedata.category(c) in ("Cc", "Cf", "Co", "Zl", "Zp")}
    assert hidden <= {"\t"}


@given(st.text())
def test_any_line_is_shown(stored: str) -> None:
    assert list(transcript.readable([loopd.record(1, stored)], SCREEN)) is not None
