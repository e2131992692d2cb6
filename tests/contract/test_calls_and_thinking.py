"""Tool calls and reasoning in a stream, and ending the reasoning from outside."""

from tests.contract.peer import Json, Peer, assistant, delta_of, reasoning_of, text_of, usage_of, user
from tests.contract.test_cache import CLOCK, example_of_calls
from tests.fakes.llama_server import Call, Reply

THOUGHTFUL = Reply(reasoning="The user adds six and one, which is seven.", text="7", token_delay=0.02)


def example_of_thinking() -> list[Json]:
    """Rounds that think before they answer: with our template even the small model does as well."""
    messages = [{"role": "system", "content": "Think first, then answer."}]
    for question, thought, answer in (
        ("2+2?", "The user adds two and two, which is four.", "4"),
        ("3+1?", "The user adds three and one, which is four.", "4"),
        ("5+1?", "The user adds five and one, which is six.", "6"),
    ):
        messages += [user(question), assistant(answer, reasoning_content=thought)]
    return [*messages, user("6+1?")]


def call_deltas(events: list[Json]) -> list[Json]:
    return [call for event in events for call in delta_of(event).get("tool_calls", [])]


def test_a_call_begins_with_its_whole_name_and_goes_on_with_arguments(peer: Peer) -> None:
    peer.prepare(Reply(calls=(Call(name="clock"),)))
    events = peer.events(messages=example_of_calls(), tools=[CLOCK], max_tokens=60)
    first, *later = call_deltas(events)
    assert (first["index"], first["type"], first["function"]["name"]) == (0, "function", "clock")
    assert len(first["id"]) == 32
    assert all(set(delta) == {"index", "function"} and set(delta["function"]) == {"arguments"} for delta in later)
    assert "".join(delta["function"]["arguments"] for delta in (first, *later)) == "{}"


def test_a_reply_of_calls_finishes_with_tool_calls(peer: Peer) -> None:
    peer.prepare(Reply(calls=(Call(name="clock"),)))
    events = peer.events(messages=example_of_calls(), tools=[CLOCK], max_tokens=60)
    assert events[-2]["choices"][0] == {"finish_reason": "tool_calls", "index": 0, "delta": {}}


def test_the_tag_of_a_call_is_counted_but_not_shown(peer: Peer) -> None:
    peer.prepare(Reply(calls=(Call(name="clock"),)))
    events = peer.events(messages=example_of_calls(), tools=[CLOCK], max_tokens=60)
    first = next(event for event in events if delta_of(event).get("tool_calls"))
    assert first["timings"]["predicted_n"] > 3
    assert "tool_call>" not in text_of(events)


def test_a_call_cut_by_the_limit_is_left_incomplete(peer: Peer) -> None:
    peer.prepare(Reply(calls=(Call(name="clock"),)))
    # The first argument character is the twelfth token or so; the limit is set right there.
    whole = peer.events(messages=example_of_calls(), tools=[CLOCK], max_tokens=60)
    first = next(event for event in whole if delta_of(event).get("tool_calls"))
    peer.prepare(Reply(calls=(Call(name="clock"),)))
    cut = peer.events(messages=example_of_calls(), tools=[CLOCK], max_tokens=first["timings"]["predicted_n"])
    assert cut[-2]["choices"][0]["finish_reason"] == "length"
    assert "".join(delta["function"]["arguments"] for delta in call_deltas(cut)) == "{"


def test_reasoning_comes_before_the_answer_and_is_counted(peer: Peer) -> None:
    peer.prepare(THOUGHTFUL)
    events = peer.events(messages=example_of_thinking(), max_tokens=60)
    assert reasoning_of(events).startswith("The user adds")
    assert text_of(events)
    thought = [event["timings"]["predicted_n"] for event in events if delta_of(event).get("reasoning_content")]
    answered = [event["timings"]["predicted_n"] for event in events if delta_of(event).get("content")]
    assert max(thought) < min(answered)
    assert not text_of(events).startswith("\n")


def test_reasoning_sent_back_as_received_is_not_read_again(peer: Peer) -> None:
    peer.prepare(THOUGHTFUL, Reply(text="8"))
    events = peer.events(messages=example_of_thinking(), id_slot=0, max_tokens=60)
    prompt, _, generated = usage_of(events)
    received = assistant(text_of(events), reasoning_content=reasoning_of(events))
    following = peer.events(messages=[*example_of_thinking(), received, user("7+1?")], id_slot=0, max_tokens=2)
    assert usage_of(following)[1] == prompt + generated - 1


def test_reasoning_ends_on_order(peer: Peer) -> None:
    peer.prepare(THOUGHTFUL, THOUGHTFUL)
    whole = reasoning_of(peer.events(messages=example_of_thinking(), max_tokens=60))
    # ignore_eos: a small model that was interrupted may otherwise have nothing more to say.
    with peer.begin(messages=example_of_thinking(), max_tokens=60, ignore_eos=True) as opened:
        events: list[Json] = []
        for event in opened.events():
            events.append(event)
            if reasoning_of(events).count(" ") == 2 and delta_of(event).get("reasoning_content"):
                order = {"id": event["id"], "action": "reasoning_end"}
                assert peer.ask("POST", "/v1/chat/completions/control", order) == (200, {"success": True})
    assert len(reasoning_of(events)) < len(whole)
    assert text_of(events)


def test_reasoning_goes_on_where_the_order_was_not_announced(peer: Peer) -> None:
    peer.prepare(THOUGHTFUL)
    with peer.begin(messages=example_of_thinking(), max_tokens=60, reasoning_control=False) as opened:
        first = next(event for event in opened.events() if delta_of(event).get("reasoning_content"))
        order = {"id": first["id"], "action": "reasoning_end"}
        status, answer = peer.ask("POST", "/v1/chat/completions/control", order)
        assert (status, answer["success"]) == (200, False)
        assert answer["message"] == "reasoning control not enabled for this completion"
