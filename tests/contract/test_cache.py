"""What is read again. The rule for all: a slot keeps what it computed, up to the first token that differs."""

from typing import Any

from tests.contract.peer import STREAM, Json, Peer, assistant, fresh, text_of, usage_of, user
from tests.fakes.llama_server import Call, Reply

SHORT = Reply(text="A short reply.")
CLOCK: Json = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tell the current date and time.",
        "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    },
}


def turn(peer: Peer, messages: list[Json], *, slot: int = 0, **more: Any) -> tuple[str, int, int, int]:
    """Return (text, prompt, cached, generated)."""
    events = peer.events(messages=messages, id_slot=slot, **{"max_tokens": 6, **more})
    return text_of(events), *usage_of(events)


def prompt_tokens(peer: Peer, messages: list[Json], *, more: str = "") -> list[int]:
    """The tokens of the rendered prompt, and of `more` behind it."""
    _, rendered = peer.ask("POST", "/apply-template", {**STREAM, "messages": messages})
    _, answer = peer.ask("POST", "/tokenize", {"content": rendered["prompt"] + more, "add_special": True})
    tokens: list[int] = answer["tokens"]
    return tokens


def common(left: list[int], right: list[int]) -> int:
    return next(
        (at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), min(len(left), len(right))
    )


def test_the_next_turn_reads_nothing_again_but_one_token(peer: Peer) -> None:
    peer.prepare(SHORT, SHORT)
    conversation = fresh()
    text, prompt, _, generated = turn(peer, conversation, max_tokens=40)
    again, total, cached, _ = turn(peer, [*conversation, assistant(text), user("And more?")])
    assert again
    assert cached == prompt + generated - 1
    assert total > cached


def test_the_same_prompt_is_read_to_its_last_token(peer: Peer) -> None:
    peer.prepare(SHORT, SHORT)
    conversation = fresh()
    turn(peer, conversation)
    _, prompt, cached, _ = turn(peer, conversation)
    assert cached == prompt - 1


def test_an_edit_is_read_from_the_first_token_that_differs(peer: Peer) -> None:
    peer.prepare(SHORT, SHORT)
    before = fresh("Tell me about the sea and the sky.")
    after = [before[0], user("Tell me about the sea and the land.")]
    text, *_ = turn(peer, before)
    _, _, cached, _ = turn(peer, after)
    assert cached == common(prompt_tokens(peer, before, more=text), prompt_tokens(peer, after))


def test_each_slot_has_a_cache_of_its_own(peer: Peer) -> None:
    peer.prepare(*[SHORT] * 4)
    ours, theirs = fresh(), fresh()
    turn(peer, ours, slot=0)
    turn(peer, theirs, slot=1)
    for conversation, slot in ((ours, 0), (theirs, 1)):
        _, prompt, cached, _ = turn(peer, conversation, slot=slot)
        assert cached == prompt - 1


def test_a_request_may_leave_the_cache_alone(peer: Peer) -> None:
    peer.prepare(SHORT, SHORT)
    conversation = fresh()
    turn(peer, conversation)
    assert turn(peer, conversation, cache_prompt=False)[2] == 0


def test_what_was_generated_before_the_client_left_stays_cached(peer: Peer) -> None:
    peer.prepare(Reply(text="word " * 400, token_delay=0.01), SHORT)
    conversation, partial = fresh(), ""
    with peer.begin(messages=conversation, id_slot=0, max_tokens=400, ignore_eos=True) as opened:
        for event in opened.events():
            partial += text_of([event])
            if event.get("timings", {}).get("predicted_n", 0) >= 12:
                break
    peer.until(lambda: not peer.busy(0))
    _, _, cached, _ = turn(peer, [*conversation, assistant(partial), user("Go on.")])
    kept = len(prompt_tokens(peer, conversation, more=partial))
    # The last token of the text may join another when it is read as a prompt.
    assert cached >= kept - 2


def test_a_tool_call_sent_back_as_received_is_not_read_again(peer: Peer) -> None:
    peer.prepare(Reply(calls=(Call(name="clock"),)), SHORT)
    conversation = example_of_calls()
    events = peer.events(messages=conversation, tools=[CLOCK], id_slot=0, max_tokens=60)
    prompt, _, generated = usage_of(events)
    calls = [
        call for event in events for call in event["choices"] and event["choices"][0]["delta"].get("tool_calls", [])
    ]
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    received = {"id": calls[0]["id"], "type": "function"}
    received["function"] = {"name": calls[0]["function"]["name"], "arguments": arguments}
    following = [*conversation, assistant("", tool_calls=[received]), result(received["id"])]
    _, _, cached, _ = turn(peer, following, tools=[CLOCK])
    assert cached == prompt + generated - 1


def test_spacing_in_a_stored_call_is_lost_and_read_again(peer: Peer) -> None:
    """Arguments are parsed and written anew by the template: no client can keep a compact call cached."""
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": '{"a":1,"b":[2,3]}'}}
    _, rendered = peer.ask(
        "POST", "/apply-template", {"messages": [user("x"), assistant("", tool_calls=[call]), result("c1")]}
    )
    assert '"arguments": {"a": 1, "b": [2, 3]}' in rendered["prompt"]


def example_of_calls() -> list[Json]:
    """Two rounds of calling clock, which a small model follows reliably, and the question for a third."""
    messages = [{"role": "system", "content": "Answer every question about the time by calling clock."}]
    for number in (1, 2):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
        messages += [
            user("Call clock."),
            assistant("", tool_calls=[call]),
            result(f"c{number}"),
            assistant(f"Done {number}."),
        ]
    return [*messages, user("Call clock.")]


def result(call_id: str) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": "2026-01-01T00:03:00Z"}
