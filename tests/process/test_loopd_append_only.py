"""What the model server is sent over fifty turns: each request is the one before, and more (INV-5).

Two sessions take turns on the slot. In the middle loopd is restarted, a day later, with other settings of
sampling. The second half is asked by a loopd that has read everything back from disk.
"""

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from bxcore.wire.channel import StepUsage, TurnEnded, TurnEnding
from tests.fakes.llama_server import Call, Reply
from tests.process.loopd_stack import CLOCK, Stack, faults, of

BROKEN = "tests.process.broken_loopd"
TURNS = 50
MAIN, BACKGROUND = 0, 1
SESSIONS = ("first", "second")


def replies(number: int) -> list[Reply]:
    """Return what the model does in one turn: thinks, calls, calls badly, answers in every kind of letter."""
    dice = random.Random(number)
    text = json.dumps({"text": "".join(chr(dice.choice([0x61, 0x20, 0xE9, 0x5927, 0x1F99E])) for _ in range(20))})
    calls = {
        0: (),
        1: (Call(name="clock"),),
        2: (Call(name="call_tool", arguments=f'{{ "name": "echo",  "arguments": {text} }}'), Call(name="clock")),
        3: (Call(name="find_tool", arguments='{"query": "echo'),),  # cut off: stored repaired, or later turns fail
        4: (Call(name="no_such_tool", arguments="[1.0]"),),
    }[number % 5]
    thought = f"Thinking about {number}." if number % 3 == 0 else ""
    asks = [Reply(reasoning=thought, calls=calls)] if calls else []
    return [*asks, Reply(reasoning=thought, text=f"Answer {number} <|im_start|> </think>.")]


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, list[TurnEnded], list[StepUsage]]]:
    ends, usages = [], []
    with Stack(tmp_path_factory.mktemp("append")) as stack:
        stack.start()
        for number in range(TURNS):
            if number == TURNS // 2:
                stack.kill("loopd")
                stack.settings = {
                    "sampling": {"temperature": 1.25, "top_p": 0.5, "top_k": 7, "max_tokens": 99},
                    "": {"time_zone": "Asia/Tokyo"},
                    "limits": {"steps": 7, "result_chars": 1_000},
                }
                (stack.home.etc / "days").write_text("1")
                stack.start_again("loopd", BROKEN)
            session = SESSIONS[number % 2]
            stack.replies.extend(replies(number))
            talk = stack.say(f"{session} {number} <|im_end|>", session=session, new=number < len(SESSIONS))
            ends.append(talk.ended())
            usages += talk.of(StepUsage)
        yield stack, ends, usages


Conversation = tuple[Stack, list[TurnEnded], list[StepUsage]]


def requests(stack: Stack, session: str) -> list[bytes]:
    return stack.bodies(f'"content":"{session} ')


def test_every_turn_was_answered(conversation: Conversation) -> None:
    stack, ends, _ = conversation
    assert [end.ending for end in ends] == [TurnEnding.ANSWERED] * TURNS
    assert not stack.replies
    assert [faults(stack.records(session)) for session in SESSIONS] == [[], []]


@pytest.mark.parametrize("session", SESSIONS)
def test_each_request_begins_with_the_bytes_of_the_one_before(conversation: Conversation, session: str) -> None:
    sent = requests(conversation[0], session)
    assert len(sent) == sum(len(replies(number)) for number in range(TURNS) if SESSIONS[number % 2] == session)
    for before, after in itertools.pairwise(sent):
        assert before.endswith(b"]}")
        assert after.startswith(before.removesuffix(b"]}") + b",")


@pytest.mark.parametrize("session", SESSIONS)
def test_what_the_model_wrote_is_sent_back_as_it_came(conversation: Conversation, session: str) -> None:
    last: dict[str, Any] = json.loads(requests(conversation[0], session)[-1])
    texts = [message["content"] for message in last["messages"] if message["role"] == "assistant"]
    turns = [number for number in range(TURNS) if SESSIONS[number % 2] == session][:-1]
    assert [text for text in texts if text] == [f"Answer {number} <|im_start|> </think>." for number in turns]
    asked = [message["content"] for message in last["messages"] if message["role"] == "user"]
    assert not [text for text in asked if "<|im_end|>" in text]  # from outside: broken up before it was first sent
    arguments = [call["function"]["arguments"] for m in last["messages"] for call in m.get("tool_calls", [])]
    assert any(text.startswith('{ "name": "echo",  "arguments":') for text in arguments)
    assert all(type(json.loads(text)) is dict for text in arguments)


def test_the_day_that_the_clock_tells_changes_and_nothing_before_it(conversation: Conversation) -> None:
    stack, _, _ = conversation
    days = [record["content"][:10] for record in of(stack.records("first"), "tool_result") if record["name"] == "clock"]
    assert len(set(days)) > 1


def test_settings_of_sampling_belong_to_the_session_and_outlive_a_change(conversation: Conversation) -> None:
    stack, _, _ = conversation
    fields = [json.loads(body) for session in SESSIONS for body in requests(stack, session)]
    assert {(body["temperature"], body["top_k"], body["max_tokens"]) for body in fields} == {(0.6, 20, 8_192)}
    stack.say("third", session="third", new=True).ended()
    new = json.loads(stack.bodies('"content":"third"')[-1])
    assert (new["temperature"], new["top_k"], new["max_tokens"]) == (1.25, 7, 99)


def test_nobody_but_the_turns_asks_the_model_on_the_main_slot(conversation: Conversation) -> None:
    stack, ends, _ = conversation
    on_main = [body for body in stack.llama.completions if json.loads(body)["id_slot"] == MAIN]
    of_turns = [body for session in (*SESSIONS, "third") for body in stack.bodies(f'"content":"{session}')]
    assert sorted(on_main) == sorted(of_turns)
    assert sum(end.steps for end in ends) == sum(len(requests(stack, session)) for session in SESSIONS)
    others = [json.loads(body)["id_slot"] for body in stack.llama.completions if b"Self-test" in body]
    assert set(others) == {BACKGROUND}


def test_a_session_alone_on_its_slot_is_read_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Stack(tmp_path_factory.mktemp("alone")) as stack:
        stack.start()
        usages: list[StepUsage] = []
        for number in range(10):
            if number == 5:
                stack.kill("loopd")
                stack.start_again("loopd")
            # Calls as the template writes them: what it renders otherwise is read again, whoever the client is.
            stack.replies.extend([CLOCK, Reply(text=f"Answer {number}.")])
            talk = stack.say(f"turn {number}", new=number == 0)
            assert talk.ended().ending is TurnEnding.ANSWERED
            usages += talk.of(StepUsage)
        assert [usage.reread for usage in usages] == [0] * len(usages)
        for before, after in itertools.pairwise(usages):
            assert after.cached >= before.prompt
