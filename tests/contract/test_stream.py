"""What a streamed completion looks like, byte order and counters included."""

import json
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.contract.peer import Json, Peer, delta_of, fresh, text_of, usage_of
from tests.fakes.llama_server import Reply

SHORT = Reply(text="Here is something short to say to you.")
MANY_TOKENS = "word " * 540


def kind(event: Json) -> str:
    if "prompt_progress" in event:
        return "progress"
    if not event["choices"]:
        return "usage"
    if event["choices"][0]["finish_reason"] is not None:
        return "finish"
    return "role" if "role" in delta_of(event) else "text"


def shape(events: list[Json]) -> list[str]:
    """The kinds in order, equal neighbours once."""
    kinds = [kind(event) for event in events]
    return [one for before, one in zip([None, *kinds], kinds, strict=False) if one != before]


def test_the_answer_is_a_chunked_event_stream(peer: Peer) -> None:
    peer.prepare(SHORT)
    with peer.begin(messages=fresh(), max_tokens=4) as opened:
        assert opened.status == 200
        assert opened.answer.headers["Content-Type"].startswith("text/event-stream")
        assert opened.answer.headers["Transfer-Encoding"] == "chunked"
        list(opened.events())


def test_events_come_in_this_order(peer: Peer) -> None:
    peer.prepare(SHORT)
    events = peer.events(messages=fresh(), max_tokens=4)
    assert shape(events) == ["progress", "role", "text", "finish", "usage"]


def test_the_first_progress_is_what_is_cached_and_the_last_is_all(peer: Peer) -> None:
    peer.prepare(SHORT)
    events = peer.events(messages=fresh(MANY_TOKENS), max_tokens=1)
    steps = [event["prompt_progress"] for event in events if kind(event) == "progress"]
    assert steps[0]["processed"] == steps[0]["cache"]
    assert steps[-1]["processed"] == steps[-1]["total"]
    assert len(steps) > 2
    read = [after["processed"] - before["processed"] for before, after in pairwise(steps)]
    assert all(0 < tokens <= peer.n_batch for tokens in read)


def test_progress_comes_only_when_asked_for(peer: Peer) -> None:
    peer.prepare(SHORT)
    events = peer.events(messages=fresh(), max_tokens=2, return_progress=False)
    assert shape(events) == ["role", "text", "finish", "usage"]


def test_every_event_carries_the_same_id(peer: Peer) -> None:
    peer.prepare(SHORT)
    identities = {event["id"] for event in peer.events(messages=fresh(), max_tokens=3)}
    assert len(identities) == 1
    assert identities.pop().startswith("chatcmpl-")


def test_a_role_delta_repeats_with_null_content(peer: Peer) -> None:
    peer.prepare(SHORT)
    events = peer.events(messages=fresh(), max_tokens=2)
    repeated = [delta_of(event) for event in events if "role" in delta_of(event)]
    assert len(repeated) > 1
    assert all(delta == {"role": "assistant", "content": None} for delta in repeated)


def test_text_events_count_the_generated_tokens(peer: Peer) -> None:
    peer.prepare(SHORT)
    events = peer.events(messages=fresh(), max_tokens=4)
    counted = [event["timings"]["predicted_n"] for event in events if kind(event) == "text"]
    assert counted == sorted(set(counted))
    assert counted[-1] == 4


def test_without_timings_per_token_only_the_last_event_has_them(peer: Peer) -> None:
    peer.prepare(SHORT)
    events = peer.events(messages=fresh(), max_tokens=3, timings_per_token=False, return_progress=False)
    assert [kind(event) for event in events if "timings" in event] == ["usage"]


def test_without_usage_the_finish_event_has_the_timings(peer: Peer) -> None:
    peer.prepare(SHORT)
    asked: dict[str, Any] = {"timings_per_token": False, "return_progress": False, "stream_options": None}
    events = peer.events(messages=fresh(), max_tokens=3, **asked)
    assert shape(events)[-1] == "finish"
    assert [kind(event) for event in events if "timings" in event] == ["finish"]


def test_usage_and_timings_count_the_same(peer: Peer) -> None:
    peer.prepare(SHORT)
    last = peer.events(messages=fresh(), max_tokens=4)[-1]
    prompt, cached, generated = usage_of([last])
    timings = last["timings"]
    assert (timings["cache_n"] + timings["prompt_n"], timings["cache_n"]) == (prompt, cached)
    assert timings["predicted_n"] == generated == 4


def test_the_length_limit_is_a_finish_reason(peer: Peer) -> None:
    peer.prepare(SHORT)
    events = peer.events(messages=fresh(), max_tokens=3)
    assert [event["choices"][0]["finish_reason"] for event in events if kind(event) == "finish"] == ["length"]


def test_a_limit_of_nothing_still_gives_one_token(peer: Peer) -> None:
    peer.prepare(SHORT)
    assert usage_of(peer.events(messages=fresh(), max_tokens=0))[2] == 1


def test_unknown_fields_and_models_are_ignored(peer: Peer) -> None:
    peer.prepare(SHORT)
    events = peer.events(messages=fresh(), max_tokens=2, model="of no such name", no_such_field=[1])
    assert text_of(events)


@pytest.mark.parametrize("slot", [9, -1, None, "0"], ids=repr)
def test_a_slot_that_does_not_exist_is_any_slot(peer: Peer, slot: Any) -> None:
    peer.prepare(SHORT)
    assert text_of(peer.events(messages=fresh(), max_tokens=2, id_slot=slot))


def test_silence_is_broken_by_pings(peer: Peer) -> None:
    """A comment line after each second without an event: what tells a slow server from a dead one."""
    peer.prepare(Reply(text="Fine.", batch_delay=1.3))
    quiet = {"return_progress": False, "sse_ping_interval": 1}
    began = time.monotonic()
    with peer.begin(messages=fresh("word " * 1_400), max_tokens=1, **quiet) as opened:
        raw = opened.rest()
    # On a machine that reads the prompt within a second there is no silence to break.
    assert b"\n:\n" in b"\n" + raw or time.monotonic() - began < 2


def test_text_comes_as_utf8_and_not_escaped(peer: Peer) -> None:
    peer.prepare(Reply(text="é" * 4))
    with peer.begin(messages=fresh("Repeat: é é é é é é é é"), max_tokens=24) as opened:
        raw = opened.rest()
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
    if not text_of(events).isascii():  # a small model may say anything
        assert b"\\u00" not in raw
