"""Events -> deltas -> a message; and everything a server may get wrong in them (M6)."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopd import stream
from loopd.modelfaults import ContextFull, ServerLost, ServerProtocol
from loopd.stream import (
    Assembler,
    CallArguments,
    CallStarted,
    Counters,
    Delta,
    Finished,
    Progress,
    Reasoning,
    ReceivedCall,
    Text,
    deltas,
)

ID = "chatcmpl-1"


def event(
    delta: Any = None, *, finish: Any = None, choices: Any = None, timings: Any = None, **more: Any
) -> dict[str, Any]:
    listed = [{"index": 0, "finish_reason": finish, "delta": delta or {}}] if choices is None else choices
    timed = {} if timings is None else {"timings": timings}
    return {"id": ID, "object": "chat.completion.chunk", "choices": listed, **timed, **more}


def timed(cached: int, read: int, predicted: int) -> dict[str, Any]:
    return {"cache_n": cached, "prompt_n": read, "prompt_ms": 1.25, "predicted_n": predicted, "predicted_ms": 0.5}


def sse(*events: dict[str, Any] | str) -> bytes:
    texts = (said if isinstance(said, str) else json.dumps(said) for said in events)
    return b"".join(f"data: {text}\n\n".encode() for text in texts)


END = event(finish="stop", timings=timed(3, 4, 5))


def read(*events: dict[str, Any] | str) -> list[Delta]:
    return list(deltas([sse(*events)]))


def assemble(found: Iterable[Delta]) -> Assembler:
    assembler = Assembler()
    for delta in found:
        assembler.feed(delta)
    return assembler


# -- events -> deltas -----------------------------------------------------------------------------


def test_a_reply_as_the_server_sends_it() -> None:
    role = {"role": "assistant", "content": None}
    found = read(
        event(role, timings=timed(3, 0, 0), prompt_progress={"total": 7, "cache": 3, "processed": 3, "time_ms": 0}),
        event(role, timings=timed(3, 4, 0), prompt_progress={"total": 7, "cache": 3, "processed": 7, "time_ms": 21}),
        event(role),
        event({"content": "Hi"}, timings=timed(3, 4, 1)),
        event(finish="length"),
        event(choices=[], timings=timed(3, 4, 2), usage={"prompt_tokens": 7, "completion_tokens": 2}),
        "[DONE]",
    )
    assert found == [
        Progress(total=7, cached=3, processed=3),
        Counters(id=ID, prompt=3, cached=3, predicted=0),
        Progress(total=7, cached=3, processed=7),
        Counters(id=ID, prompt=7, cached=3, predicted=0),
        Text(text="Hi"),
        Counters(id=ID, prompt=7, cached=3, predicted=1),
        Counters(id=ID, prompt=7, cached=3, predicted=2),
        Finished(reason="length", prompt=7, cached=3, predicted=2),
    ]


def test_the_id_is_known_with_the_first_event_also_without_timings() -> None:
    assert read(event({"role": "assistant"}), END, "[DONE]")[0] == Counters(id=ID, prompt=0, cached=0, predicted=0)


def test_usage_counts_where_there_are_no_timings() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
    found = read(event({"content": "a"}, finish="stop"), event(choices=[], usage=usage), "[DONE]")
    assert found[-1] == Finished(reason="stop", prompt=9, cached=8, predicted=2)


def test_nothing_is_read_after_the_end() -> None:
    assert isinstance(read(END, "[DONE]", "not JSON")[-1], Finished)


def test_a_call_is_started_once_and_its_arguments_go_on() -> None:
    first = {"index": 0, "id": "abc", "type": "function", "function": {"name": "add", "arguments": "{"}}
    more = {"index": 0, "function": {"arguments": '"a": 1}'}}
    other = {"index": 1, "id": "def", "type": "function", "function": {"name": "clock", "arguments": ""}}
    found = read(event({"tool_calls": [first]}), event({"tool_calls": [more, other]}), END, "[DONE]")
    assert [delta for delta in found if isinstance(delta, CallStarted | CallArguments)] == [
        CallStarted(index=0, id="abc", name="add"),
        CallArguments(index=0, text="{"),
        CallArguments(index=0, text='"a": 1}'),
        CallStarted(index=1, id="def", name="clock"),
    ]


def test_a_call_without_an_id_gets_an_empty_one() -> None:
    found = read(event({"tool_calls": [{"index": 0, "function": {"name": "clock"}}]}), END, "[DONE]")
    assert CallStarted(index=0, id="", name="clock") in found


def test_fields_that_nobody_knows_change_nothing() -> None:
    strange = event({"content": "a", "refusal": None, "audio": {"x": 1.5}}, logprobs=None, service_tier="x")
    assert read(strange, END, "[DONE]")[0] == Text(text="a")


MISSHAPEN: dict[str, dict[str, Any] | str] = {
    "no JSON": "{",
    "no object": "[]",
    "a text": '"x"',
    "nested without end": "[" * 100_000,
    "choices are an object": event(choices={"a": 1}),
    "two choices": event(choices=[{}, {}]),
    "a choice that is no object": event(choices=[7]),
    "delta is a list": event(choices=[{"delta": []}]),
    "content is a number": event({"content": 7}),
    "content is a list of parts": event({"content": [{"type": "text", "text": "a"}]}),
    "reasoning is an object": event({"reasoning_content": {}}),
    "half a surrogate": '{"id":"x","choices":[{"delta":{"content":"\\ud83d"}}]}',
    "half a surrogate in a name": '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"\\udc00"}}]}}]}',
    "finish_reason is a number": event(finish=1),
    "calls are an object": event({"tool_calls": {"index": 0}}),
    "a call that is no object": event({"tool_calls": ["add"]}),
    "a call without an index": event({"tool_calls": [{"function": {"name": "add"}}]}),
    "a call with a negative index": event({"tool_calls": [{"index": -1, "function": {"name": "add"}}]}),
    "a call number true": event({"tool_calls": [{"index": True, "function": {"name": "add"}}]}),
    "call number 5,000": event({"tool_calls": [{"index": 5_000, "function": {"name": "add"}}]}),
    "a call without a name": event({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "{"}}]}),
    "arguments are an object": event({"tool_calls": [{"index": 0, "function": {"name": "a", "arguments": {}}}]}),
    "progress is a number": event(prompt_progress=0.5),
    "progress lacks its total": event(prompt_progress={"cache": 0, "processed": 1}),
    "a fraction of a token": event(timings={"cache_n": 0.5, "prompt_n": 1, "predicted_n": 1}),
    "fewer than no tokens": event(timings=timed(0, -1, 0)),
    "tokens beyond every integer": event(timings=timed(2**60, 1, 1)),
    "more tokens than there can be": event(timings=timed(0, 1_000_000_001, 1)),
    "progress with more cached than there are": event(prompt_progress={"total": 5, "cache": 6, "processed": 6}),
    "timings are a list": event(timings=[]),
    "usage is a text": event(choices=[], usage="much"),
    "the id is a number": event({}) | {"id": 7},
}


@pytest.mark.parametrize("said", MISSHAPEN.values(), ids=MISSHAPEN.keys())
def test_a_misshapen_event_is_the_servers_fault(said: dict[str, Any] | str) -> None:
    with pytest.raises(ServerProtocol):
        read(said, END, "[DONE]")


def a_call(index: int = 0, **function: str) -> dict[str, Any]:
    return event({"tool_calls": [{"index": index, "id": "i" * 1_000, "function": function}]})


MUCH: dict[str, list[dict[str, Any]]] = {
    "text": [event({"content": "x" * 600})],
    "thinking": [event({"reasoning_content": "x" * 600})],
    "arguments": [a_call(0, name="a", arguments="x" * 300), a_call(1, name="b", arguments="x" * 300)],
    "all together": [
        event({"content": "x" * 200}),
        event({"reasoning_content": "x" * 200}),
        a_call(name="a", arguments="x" * 200),
    ],
}


@pytest.mark.parametrize("said", MUCH.values(), ids=MUCH.keys())
def test_m6_a_reply_without_end_is_cut_off_and_what_came_before_is_kept(
    said: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_CHARS", 1_000)
    found: list[Delta] = []
    with pytest.raises(ServerProtocol, match="the reply is longer than 1000 characters"):
        found.extend(deltas([sse(*said, *said, *said)]))
    kept = assemble(found).partial()
    texts = [kept.content or "", kept.reasoning or "", *(call.arguments for call in kept.calls)]
    assert 500 < sum(map(len, texts)) <= 1_000


def test_a_reply_as_long_as_it_may_be_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_CHARS", 1_000)
    assert assemble(read(event({"content": "x" * 1_000}), END, "[DONE]")).finish().content == "x" * 1_000


def test_names_and_ids_that_are_too_long_are_cut() -> None:
    found = read(a_call(name="n" * 5_000), END, "[DONE]")
    assert CallStarted(index=0, id="i" * 128, name="n" * 256) in found


def test_an_id_of_the_reply_that_is_too_long_is_cut() -> None:
    found = read(event({}) | {"id": "x" * 5_000}, END, "[DONE]")
    assert Counters(id="x" * 128, prompt=0, cached=0, predicted=0) in found


def test_broken_utf8_is_the_servers_fault() -> None:
    with pytest.raises(ServerProtocol):
        list(deltas([b'data: {"id":"\xff"}\n\n']))


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_fault_of_the_server(raw: bytes) -> None:
    with pytest.raises((ServerProtocol, ServerLost)):
        list(deltas([b"data: " + raw + b"\n\n"]))


def test_m6_a_stream_that_ends_early_is_lost() -> None:
    whole = sse(event({"content": "Half a sen"}), END, "[DONE]")
    for length in range(len(whole) - 2):  # the last two bytes end the line of [DONE]
        with pytest.raises(ServerLost):
            list(deltas([whole[:length]]))


def test_an_end_without_a_reason_is_the_servers_fault() -> None:
    with pytest.raises(ServerProtocol, match="finish_reason"):
        read(event({"content": "a"}, timings=timed(0, 1, 1)), "[DONE]")


def test_more_cached_than_the_prompt_has_is_the_servers_fault() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 6}}
    with pytest.raises(ServerProtocol, match="cached"):
        read(event({"content": "a"}, finish="stop"), event(choices=[], usage=usage), "[DONE]")


def test_an_end_without_counts_is_the_servers_fault() -> None:
    with pytest.raises(ServerProtocol, match="usage"):
        read(event({"content": "a"}, finish="stop"), "[DONE]")


def test_m6_an_error_in_the_middle_is_raised_after_what_came_before() -> None:
    error = {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}
    found = deltas([sse(event({"content": "a"}), error)])
    assert next(found) == Text(text="a")
    with pytest.raises(ContextFull):
        list(found)


def test_any_other_error_in_the_middle_quotes_the_server() -> None:
    with pytest.raises(ServerLost, match="out of memory"):
        read({"error": {"code": 500, "message": "out of memory", "type": "server_error"}})


# -- deltas -> the message ------------------------------------------------------------------------


def counted(predicted: int) -> Counters:
    return Counters(id=ID, prompt=7, cached=3, predicted=predicted)


def test_a_message_is_put_together() -> None:
    done = assemble(
        [
            Reasoning(text="Let me "),
            Reasoning(text="see."),
            counted(4),
            Text(text="Both: "),
            CallStarted(index=1, id="b", name="clock"),
            CallStarted(index=0, id="a", name="add"),
            CallArguments(index=0, text='{"a": '),
            CallArguments(index=1, text="{}"),
            CallArguments(index=0, text="1}"),
            counted(30),
            Finished(reason="tool_calls", prompt=7, cached=3, predicted=31),
        ]
    ).finish()
    assert (done.content, done.reasoning, done.finish) == ("Both: ", "Let me see.", "tool_calls")
    assert done.calls == (
        ReceivedCall(id="a", name="add", arguments='{"a": 1}'),
        ReceivedCall(id="b", name="clock", arguments="{}"),
    )
    assert (done.prompt, done.cached, done.predicted, done.reasoning_tokens) == (7, 3, 31, 4)


def test_what_never_came_is_none() -> None:
    done = assemble([Finished(reason="stop", prompt=1, cached=0, predicted=1)]).finish()
    assert (done.content, done.reasoning, done.calls) == (None, None, ())


def test_a_partial_message_holds_what_came() -> None:
    half = assemble([counted(0), Text(text="Half"), CallStarted(index=0, id="a", name="add"), counted(9)])
    seen = half.partial()
    assert (seen.content, seen.finish, seen.predicted) == ("Half", "", 9)
    assert seen.calls == (ReceivedCall(id="a", name="add", arguments=""),)
    with pytest.raises(ServerLost):
        half.finish()


def test_thinking_is_counted_with_the_servers_count_until_the_answer_begins() -> None:
    thinking = assemble([Reasoning(text="a"), counted(5), Reasoning(text="b"), counted(9)])
    assert thinking.reasoning_tokens == 9
    thinking.feed(Text(text="c"))
    thinking.feed(counted(20))
    assert thinking.reasoning_tokens == 9


def test_a_call_ends_the_thinking_too() -> None:
    calling = assemble([Reasoning(text="a"), counted(5), CallStarted(index=0, id="", name="x"), counted(40)])
    assert calling.reasoning_tokens == 5


def test_thinking_is_counted_by_its_deltas_where_the_server_counts_nothing() -> None:
    assert assemble([Reasoning(text="a"), Reasoning(text="b")]).reasoning_tokens == 2


def test_tokens_before_a_call_are_no_thinking() -> None:
    assert assemble([counted(1), CallStarted(index=0, id="", name="x"), counted(12)]).reasoning_tokens == 0


@given(st.lists(st.sampled_from(["a", "é", "\n", " ", "😀"]), min_size=1), st.integers(1, 30))
def test_text_is_kept_to_the_last_character(parts: list[str], size: int) -> None:
    raw = sse(*(event({"content": part}) for part in parts), END, "[DONE]")
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert assemble(deltas(pieces)).finish().content == "".join(parts)
