"""Stored lines -> what a person reads."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from bxctl import transcript
from bxctl.render import Screen
from tests.fakes import loopd
from tests.fakes.screens import FakeTerminal

SCREEN = Screen(FakeTerminal(), {})


def tail(*records: dict[str, object]) -> list[str]:
    events = [loopd.record(number, json.dumps(record)) for number, record in enumerate(records, 1)]
    return list(transcript.tail(events, SCREEN))


def user(words: str) -> dict[str, object]:
    return {"type": "user", "content": words}


def assistant(words: str | None) -> dict[str, object]:
    return {"type": "assistant", "content": words}


TURN = {"type": "turn_start", "turn": 1}


def test_the_tail_is_the_last_exchange() -> None:
    lines = tail(user("one"), TURN, assistant("1"), user("two"), TURN, assistant(None), assistant("2"))
    assert lines == ["(1 turns before this one)", "you> two", "2"]


def test_messages_of_one_turn_stand_together() -> None:
    assert tail(user("one"), user("two"), TURN, assistant("both")) == ["you> one", "     two", "both"]


def test_a_turn_without_an_answer_shows_its_sentence() -> None:
    end: dict[str, object] = {"type": "turn_end", "sentence": "It was lost."}
    assert tail(user("one"), TURN, end) == ["you> one", "! It was lost."]


def test_a_long_answer_is_cut_and_says_so() -> None:
    lines = tail(user("count"), TURN, assistant("\n".join(map(str, range(100)))))
    assert lines[-1] == "(88 more lines)"
    assert len(lines) == 14


def test_pieces_are_joined_before_they_are_read() -> None:
    events = [loopd.record(1, '{"type":"us', more=True), loopd.record(1, 'er","content":"hi"}')]
    assert list(transcript.tail(events, SCREEN)) == ["you> hi"]


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
    ]
)


@given(kinds, st.dictionaries(names, json_values))
def test_any_record_is_shown_and_none_steers_the_terminal(kind: str, fields: dict[str, object]) -> None:
    event = loopd.record(1, json.dumps({"type": kind, **fields}))
    lines = [line for line, _ in transcript.readable([event], SCREEN)] + list(transcript.tail([event], SCREEN))
    hidden = {c for line in lines for c in line if unicodedata.category(c) in ("Cc", "Cf", "Co", "Zl", "Zp")}
    assert hidden <= {"\t"}


@given(st.text())
def test_any_line_is_shown(stored: str) -> None:
    assert list(transcript.readable([loopd.record(1, stored)], SCREEN)) is not None
