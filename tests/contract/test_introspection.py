"""What can be asked beside a completion: properties, tokens, the rendered prompt."""

import json
from itertools import pairwise

import pytest

from tests.contract.peer import STREAM, Json, Peer, UpstreamPeer, assistant, fresh, usage_of, user
from tests.contract.test_cache import CLOCK, example_of_calls
from tests.contract.test_calls_and_thinking import example_of_thinking
from tests.fakes.llama import text
from tests.fakes.llama_server import Reply


def every_role() -> list[Json]:
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "Europe/Berlin"}'}}
    other = {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    return [
        {"role": "system", "content": "You are a test."},
        user("What time is it, é?"),
        assistant("I will look.", tool_calls=[call]),
        {"role": "tool", "tool_call_id": "c1", "content": 'Noon.\n{"and": "more"}'},
        assistant("It is noon.", reasoning_content="The tool said noon.\n"),
        user("And in both zones?"),
        assistant("", tool_calls=[call, other]),
        {"role": "tool", "tool_call_id": "c1", "content": "Noon."},
        {"role": "tool", "tool_call_id": "c2", "content": "Ten."},
        assistant("Noon and ten."),
        user("Thanks."),
    ]


CONVERSATIONS = {
    "every role": every_role(),
    "thinking": example_of_thinking(),
    "calls": example_of_calls(),
    "no system prompt": [user("Hello."), assistant("Hello!"), user("Bye.")],
}

# Never sent by loopd; a server takes the last message for the beginning of its own.
ENDING_IN_A_REPLY = {"a reply at the end": [user("Hello."), assistant("Hel")]}


def rendered(peer: Peer, messages: list[Json], **more: object) -> str:
    status, answer = peer.ask("POST", "/apply-template", {**STREAM, "messages": messages, **more})
    assert status == 200, answer
    prompt: str = answer["prompt"]
    return prompt


@pytest.mark.parametrize("tools", [[], [CLOCK]], ids=["no tools", "tools"])
@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_a_longer_conversation_begins_with_the_text_of_a_shorter_one(
    peer: Peer, messages: list[Json], tools: list[Json]
) -> None:
    """For every cut at which the model was asked. What is cached then serves whatever comes later."""
    asked = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    texts = [rendered(peer, messages[:length], tools=tools) for length in (*asked, len(messages))]
    assert len(texts) > 1
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)
        assert len(longer) > len(shorter)


@pytest.mark.parametrize("tools", [[], [CLOCK]], ids=["no tools", "tools"])
@pytest.mark.parametrize(
    "messages", (CONVERSATIONS | ENDING_IN_A_REPLY).values(), ids=(CONVERSATIONS | ENDING_IN_A_REPLY).keys()
)
def test_the_fake_renders_what_our_template_renders(peer: Peer, messages: list[Json], tools: list[Json]) -> None:
    if isinstance(peer, UpstreamPeer):
        pytest.skip("another server has another template")
    assert rendered(peer, messages, tools=tools) == text.render(messages, tools)


def test_the_rendered_prompt_has_as_many_tokens_as_the_completion_counts(peer: Peer) -> None:
    peer.prepare(Reply(text="Fine."))
    request = {**STREAM, "messages": example_of_calls(), "tools": [CLOCK], "max_tokens": 1}
    counted = peer.client().count_prompt(json.dumps(request).encode())
    assert counted == usage_of(peer.events(**request))[0]


def test_properties_name_context_slots_template_and_model(peer: Peer) -> None:
    _, found = peer.ask("GET", "/props")
    assert found["default_generation_settings"]["n_ctx"] > 0
    assert found["total_slots"] >= 2
    assert isinstance(found["chat_template"], str)
    assert found["model_alias"] or found["model_path"]
    assert {"temperature", "top_p", "top_k"} <= set(found["default_generation_settings"]["params"])


def test_slots_are_listed_with_context_and_state(peer: Peer) -> None:
    status, slots = peer.ask("GET", "/slots")
    n_ctx = peer.client().props().n_ctx
    assert status == 200
    assert [slot["id"] for slot in slots] == list(range(len(slots)))
    assert all(slot["n_ctx"] == n_ctx and slot["is_processing"] in (True, False) for slot in slots)


def test_health_is_ok(peer: Peer) -> None:
    assert peer.ask("GET", "/health") == (200, {"status": "ok"})


def test_a_special_token_is_one_token_unless_it_is_told_to_be_text(peer: Peer) -> None:
    client = peer.client()
    assert len(client.tokenize("<|im_end|>", parse_special=True)) == 1
    assert len(client.tokenize("<|im_end|>", parse_special=False)) > 1
    assert client.tokenize("no markup", parse_special=True) == client.tokenize("no markup", parse_special=False)


def test_a_conversation_may_begin_without_a_system_prompt(peer: Peer) -> None:
    peer.prepare(Reply(text="Fine."))
    assert usage_of(peer.events(messages=fresh()[1:], max_tokens=1))[0] > 0
