import json
from collections.abc import Mapping
from typing import Any

import pytest

from bxcore.ids import Hash32, SessionId
from bxcore.jsonl import Recovery
from bxcore.sessionrecords import CacheLoss, Nudge, Record, SessionStart, ThinkingCap
from bxcore.wire.channel import TurnEnding
from loopd.prompt import Prompt
from tests.fakes.records import NOW, call, end, result, said, start, usage, user

HEAD = b'{"tools":[],"messages":['


UNREAD: Mapping[str, Record] = {
    "session_start": SessionStart(
        time=NOW, format=1, session=SessionId("s"), epoch=0, slot=0, baseline=Hash32("0" * 64)
    ),
    "usage": usage(),
    "cache_loss": CacheLoss(time=NOW, turn=1, step=1, expected=90, got=2),
    "thinking_cap": ThinkingCap(time=NOW, turn=1, step=1, tokens=4096, ended=True),
    "recovery": Recovery(time=NOW, line=3, bytes=7, sha256=Hash32("0" * 64)),
}


def after(*records: Record) -> Prompt:
    prompt = Prompt("You are Boxmaker.")
    for record in records:
        prompt.add(record)
    return prompt


def messages(prompt: Prompt) -> list[dict[str, Any]]:
    """What a server reads, the system prompt left out."""
    body = json.loads(prompt.body(HEAD))
    assert body["messages"][0] == {"role": "system", "content": "You are Boxmaker."}
    rest: list[dict[str, Any]] = body["messages"][1:]
    return rest


def test_an_accepted_message_waits_until_a_turn_names_it() -> None:
    prompt = after(user("k1", "Hello"))
    assert messages(prompt) == []
    prompt.add(start(1, "k1"))
    assert messages(prompt) == [{"role": "user", "content": "Hello"}]


def test_messages_of_one_turn_become_one_in_the_order_of_its_keys() -> None:
    prompt = after(user("k1", "one"), user("k2", "two"), user("k3", "three"), start(1, "k2", "k1"))
    assert messages(prompt) == [{"role": "user", "content": "two\n\none"}]
    prompt.add(end(sentence="Stopped."))
    prompt.add(start(2, "k3"))
    assert messages(prompt)[-1] == {"role": "user", "content": "three"}


def test_a_reply_is_sent_back_as_it_was_received() -> None:
    text, thought = '  Ünï\u2028code\n</x> "q" \\ \x07', "\nI think… \n"
    prompt = after(user("k", "?"), start(1, "k"), said(text, reasoning=thought))
    assert messages(prompt)[-1] == {"role": "assistant", "content": text, "reasoning_content": thought}


def test_a_reply_without_thinking_has_no_field_for_it() -> None:
    assert "reasoning_content" not in messages(after(user("k", "?"), start(1, "k"), said("Hi")))[-1]


def test_empty_thinking_is_kept_apart_from_none() -> None:
    assert messages(after(user("k", "?"), start(1, "k"), said("Hi", reasoning="")))[-1]["reasoning_content"] == ""


def test_no_content_is_sent_as_empty_text() -> None:
    assert messages(after(user("k", "?"), start(1, "k"), said(None, calls=(call(),))))[-1]["content"] == ""


def test_calls_and_results_keep_their_order_and_their_text() -> None:
    asked = (call("a", "clock", '{ "z":1,  "a":2 }'), call("b", "find_tool", "{}", broken='{"quer'))
    prompt = after(
        user("k", "?"), start(1, "k"), said("Let me see", calls=asked), result("a", "12:00"), result("b", "")
    )
    assert messages(prompt)[1:] == [
        {
            "role": "assistant",
            "content": "Let me see",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "clock", "arguments": '{ "z":1,  "a":2 }'}},
                {"id": "b", "type": "function", "function": {"name": "find_tool", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "12:00"},
        {"role": "tool", "tool_call_id": "b", "content": ""},
    ]


def test_a_nudge_stands_in_the_owners_place() -> None:
    prompt = after(user("k", "?"), start(1, "k"), said(""), Nudge(time=NOW, turn=1, content="Answer now."))
    assert [message["role"] for message in messages(prompt)] == ["user", "assistant", "user"]
    assert messages(prompt)[-1]["content"] == "Answer now."


@pytest.mark.parametrize("record", UNREAD.values(), ids=UNREAD.keys())
def test_what_the_model_does_not_read_changes_no_byte(record: Record) -> None:
    prompt = after(user("k", "?"), start(1, "k"), said("Hi"))
    before = prompt.body(HEAD)
    prompt.add(record)
    assert prompt.body(HEAD) == before


def test_a_turn_without_an_answer_is_closed_by_its_sentence() -> None:
    prompt = after(user("k", "?"), start(1, "k"), end(TurnEnding.SERVER_LOST, sentence="The connection was lost."))
    assert messages(prompt)[-1] == {"role": "assistant", "content": "[The connection was lost.]"}


def test_a_turn_that_ended_after_a_tool_result_is_closed_too() -> None:
    cut = end(TurnEnding.TOO_MANY_STEPS, sentence="Too many steps.")
    prompt = after(user("k", "?"), start(1, "k"), said("", calls=(call(),)), result("a", "x"), cut)
    assert [message["role"] for message in messages(prompt)] == ["user", "assistant", "tool", "assistant"]


def test_a_turn_that_ended_with_part_of_an_answer_gets_no_second_one() -> None:
    cut = end(TurnEnding.CANCELLED, sentence="Stopped.")
    prompt = after(user("k", "?"), start(1, "k"), said("half an ans"), cut)
    assert [message["role"] for message in messages(prompt)] == ["user", "assistant"]


def test_a_closing_sentence_is_never_missing() -> None:
    assert messages(after(user("k", "?"), start(1, "k"), end(sentence=None)))[-1]["content"] == "[No answer was given.]"


def test_a_refused_turn_takes_back_its_messages_and_no_others() -> None:
    prompt = after(user("k1", "one"), start(1, "k1"), said("1"), end())
    before = prompt.body(HEAD)
    refused = end(TurnEnding.CONTEXT_FULL, turn=2, sentence="Too long.", dropped=True)
    for record in (user("k2", "two"), start(2, "k2"), said("", calls=(call(),)), result("a", "x"), refused):
        prompt.add(record)
    assert prompt.body(HEAD) == before


def test_after_a_refused_first_turn_the_owner_speaks_first_again() -> None:
    refused = end(TurnEnding.SERVER_REFUSED, sentence="No.", dropped=True)
    prompt = after(user("k1", "one"), start(1, "k1"), refused, user("k2", "two"), start(2, "k2"))
    assert messages(prompt) == [{"role": "user", "content": "two"}]


def test_a_message_that_waits_survives_the_refusal_of_the_turn_before_it() -> None:
    refused = end(TurnEnding.SERVER_REFUSED, sentence="No.", dropped=True)
    prompt = after(user("k1", "one"), start(1, "k1"), user("k2", "two"), refused, start(2, "k2"))
    assert messages(prompt) == [{"role": "user", "content": "two"}]


def test_text_is_not_escaped_to_ascii() -> None:
    body = after(user("k", "大别山 🦞"), start(1, "k")).body(HEAD)
    assert "大别山 🦞".encode() in body


def test_the_body_is_the_head_the_messages_and_the_end_of_the_object() -> None:
    prompt = after(user("k", "?"), start(1, "k"))
    assert prompt.body(HEAD) == HEAD + b",".join(prompt.messages) + b"]}"
    assert prompt.messages[1] == b'{"role":"user","content":"?"}'


def test_m8_each_request_begins_with_the_one_before() -> None:
    """Fifty turns with a tool call in each third."""
    prompt, before = after(), b""
    for turn in range(1, 51):
        prompt.add(user(f"k{turn}", f"question {turn}"))
        prompt.add(start(turn, f"k{turn}"))
        if turn % 3 == 0:
            prompt.add(said("", reasoning="hm", calls=(call(f"c{turn}"),)))
            prompt.add(result(f"c{turn}", "12:00"))
        body = prompt.body(HEAD)
        assert body.startswith(before.removesuffix(b"]}"))
        before = body
        prompt.add(said(f"answer {turn}"))
        prompt.add(end(turn=turn))
