"""What a message of the event stream means, whatever it is."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatewayd import items, posts
from gatewayd.items import ChannelGone, ChannelJoined, Deleted, Edited, Event, Posted, Reply
from gatewayd.posts import NotOurs

ME, OTHER, CHANNEL = "m" * 26, "o" * 26, "c" * 26

POST: dict[str, Any] = {
    "id": "p" * 26,
    "user_id": OTHER,
    "channel_id": CHANNEL,
    "message": "hello",
    "create_at": 1_767_225_600_000,
    "metadata": {"weight": 0.5},
}


def event(name: str, data: object = None, broadcast: object = None, seq: int = 1) -> Event:
    raw = json.dumps({"event": name, "data": data, "broadcast": broadcast, "seq": seq})
    found = items.frame(raw)
    assert isinstance(found, Event)
    return found


def posted(**changed: object) -> dict[str, object]:
    return {"post": json.dumps(POST | changed), "channel_type": "D", "mentions": '["x"]'}


def test_a_post_is_decoded_twice() -> None:
    item = items.item(event("posted", posted()), ME)
    assert isinstance(item, Posted)
    assert item.post.message == "hello"


@pytest.mark.parametrize(("name", "kind"), [("posted", Posted), ("post_edited", Edited), ("post_deleted", Deleted)])
def test_three_events_carry_posts(name: str, kind: type) -> None:
    assert type(items.item(event(name, posted()), ME)) is kind


BAD_POSTS: dict[str, object] = {
    "no data": None,
    "no post": {},
    "a post that is an object": {"post": POST},
    "no JSON inside": {"post": "{"},
    "a list inside": {"post": "[]"},
    "no author": posted(user_id=None),
    "an odd id": posted(id="../../etc"),
    "a time of words": posted(create_at="noon"),
    "a time without end": {"post": json.dumps(POST)[:-1] + ',"create_at":' + "9" * 6_000 + "}"},
    "a number that is none": {"post": json.dumps(POST | {"create_at": float("nan")})},
    "far too deep": {"post": "[" * 100_000},
}


@pytest.mark.parametrize("data", BAD_POSTS.values(), ids=BAD_POSTS.keys())
def test_a_malformed_post_is_not_ours(data: object) -> None:
    with pytest.raises(NotOurs):
        items.item(event("posted", data), ME)


def test_of_a_posts_props_only_what_is_read_is_kept() -> None:
    """Thousands of events may wait, and anybody may send a quarter of a megabyte in each."""
    props = {"huge": "x" * 250_000, "from_webhook": ["x" * 250_000], "boxmaker": "mm-root:1:1", "unsafe_links": "true"}
    found = posts.post({**POST, "props": props})
    assert found.props == {"from_webhook": "", "boxmaker": "mm-root:1:1"}


def test_an_unknown_channel_type_is_none() -> None:
    item = items.item(event("posted", posted() | {"channel_type": "Q"}), ME)
    assert isinstance(item, Posted)
    assert item.channel_type is None


CHANNELS: dict[str, tuple[Event, object]] = {
    "removed, to who stays": (
        event("user_removed", {"user_id": OTHER, "remover_id": OTHER}, {"channel_id": CHANNEL}),
        None,
    ),
    "removed, to who had to go": (
        event("user_removed", {"channel_id": CHANNEL, "remover_id": OTHER}, {"user_id": ME}),
        ChannelGone(channel=CHANNEL),  # type: ignore[arg-type]
    ),
    "archived": (event("channel_deleted", {"channel_id": CHANNEL}), ChannelGone(channel=CHANNEL)),  # type: ignore[arg-type]
    "the bot was added": (
        event("user_added", {"user_id": ME}, {"channel_id": CHANNEL}),
        ChannelJoined(channel=CHANNEL),  # type: ignore[arg-type]
    ),
    "somebody else was added": (event("user_added", {"user_id": OTHER}, {"channel_id": CHANNEL}), None),
    "direct": (event("direct_added", {}, {"channel_id": CHANNEL}), ChannelJoined(channel=CHANNEL)),  # type: ignore[arg-type]
    "group": (event("group_added", {}, {"channel_id": CHANNEL}), ChannelJoined(channel=CHANNEL)),  # type: ignore[arg-type]
    "created": (event("channel_created", {"channel_id": CHANNEL}), ChannelJoined(channel=CHANNEL)),  # type: ignore[arg-type]
    "restored": (event("channel_restored", {"channel_id": CHANNEL}), ChannelJoined(channel=CHANNEL)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("said", "meant"), CHANNELS.values(), ids=CHANNELS.keys())
def test_channels_that_come_and_go(said: Event, meant: object) -> None:
    assert items.item(said, ME) == meant


def test_anybody_who_is_added_may_be_the_bot_as_long_as_it_does_not_know_itself() -> None:
    assert items.item(CHANNELS["somebody else was added"][0], None) is not None


@pytest.mark.parametrize("name", ["typing", "status_change", "reaction_added", "a_name_of_next_year", "", "hello"])
def test_whatever_else_happens_means_nothing(name: str) -> None:
    assert items.item(event(name, {"post": 7, "channel_id": []}), ME) is None


def test_a_reply_is_judged_by_its_status() -> None:
    assert items.frame('{"status":"OK","seq_reply":7,"data":{"text":"pong"}}') == Reply(ok=True, number=7)
    assert items.frame('{"status":"FAIL","seq_reply":7,"error":{"id":"x","status_code":401}}') == Reply(
        ok=False, number=7
    )
    assert items.frame('{"status":"FAIL"}') == Reply(ok=False, number=0)


BAD_FRAMES = {
    "no JSON": "hello",
    "nothing": "",
    "a list": "[]",
    "neither": "{}",
    "no number": '{"event":"posted","data":{}}',
    "a truth for a number": '{"event":"posted","seq":true}',
    "below zero": '{"event":"posted","seq":-1}',
    "no name": '{"event":7,"seq":1}',
    "no status": '{"status":7,"seq_reply":1}',
    "an odd reply": '{"status":"OK","seq_reply":"1"}',
}


@pytest.mark.parametrize("raw", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_what_is_no_frame_is_not_ours(raw: str) -> None:
    with pytest.raises(NotOurs):
        items.frame(raw)


def test_hello_says_what_can_be_resumed() -> None:
    said = event("hello", {"connection_id": "k" * 26, "server_version": "11.6.0.dev.abc.false"}, {"user_id": ME})
    assert items.hello(said) == items.Hello(connection="k" * 26, version="11.6.0", user=ME)


@pytest.mark.parametrize("value", [None, 7, "", "a b&sequence_number=9", "x" * 1_000, {}])
def test_a_hello_without_what_we_need_is_a_hello_all_the_same(value: object) -> None:
    said = event("hello", {"connection_id": value, "server_version": value}, {"user_id": [value]})
    assert items.hello(said) == items.Hello(connection=None, version=None, user=None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
NAMES = st.sampled_from(["posted", "post_edited", "hello", "user_removed", "user_added", "channel_deleted", "other"])
FIELDS = st.sampled_from(["post", "channel_id", "user_id", "channel_type", "connection_id", "server_version"])


@given(st.text() | JSON.map(json.dumps))
def test_any_text_is_a_frame_or_not_ours(text: str) -> None:
    with contextlib.suppress(NotOurs):
        items.frame(text)


@given(NAMES, st.dictionaries(FIELDS, JSON | JSON.map(json.dumps)), st.dictionaries(FIELDS, JSON))
def test_any_event_is_an_item_nothing_or_not_ours(name: str, data: dict[str, Any], broadcast: dict[str, Any]) -> None:
    said = Event(name=name, data=data, broadcast=broadcast, seq=1)
    items.hello(said)
    with contextlib.suppress(NotOurs):
        items.item(said, ME)
