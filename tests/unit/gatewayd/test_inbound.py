"""From the event stream and from REST into the queue, against a server with the real one's rules."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bxcore.ids import MattermostId
from bxcore.settings import gatewayd as settings_file
from gatewayd import posts
from gatewayd.condition import Part
from gatewayd.entries import Incoming, Kind, State, session_of
from gatewayd.items import ChannelGone, ChannelJoined, Deleted, Edited, Posted
from gatewayd.posts import ChannelType, Post
from gatewayd.servertime import PRECISION_MS
from gatewayd.store import Store
from tests.fakes.inboundplace import GAP, HOUR_MS, Place, until
from tests.fakes.mattermost import Mattermost as Server


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Server() as server:
        place = Place(server, tmp_path)
        yield place
        place.close()


@pytest.fixture
def here(place: Place) -> Place:
    """The place with an Inbound that has caught up with nothing."""
    place.start()
    place.put(GAP)
    place.handled()
    return place


# -- live events -----------------------------------------------------------------------------------


def test_a_post_is_accepted_and_wakes_whoever_goes_on_with_it(here: Place) -> None:
    while here.woken.acquire(blocking=False):
        pass
    said = here.say("Hello.")
    here.put(said)
    here.woken.acquire()
    assert here.store.waiting() == (
        Incoming(
            id=said.id, channel=here.direct, thread=said.id, user=here.owner, create_at=said.create_at,
            kind=Kind.MESSAGE, direct=True, text="Hello.",
        ),
    )  # fmt: skip


def test_the_same_event_twice_is_one_post(here: Place) -> None:
    said = here.say()
    here.put(said, said)
    here.put(said)
    here.handled()
    assert here.texts() == ["hello"]


@pytest.mark.parametrize("hours", [-9_000, -2, 2, 9_000])
def test_an_event_is_new_whatever_date_its_post_has_and_says_nothing_of_others(here: Place, hours: int) -> None:
    odd = here.say("odd", at=here.server.now() + hours * HOUR_MS)
    here.put(odd, here.say("next"))
    here.put(GAP)
    here.handled()
    assert sorted(here.texts()) == ["next", "odd"]
    assert here.said() == []
    here.stop()
    assert here.store.marks()[here.direct] <= here.server.now() + PRECISION_MS


def test_an_event_that_had_to_wait_too_long_is_listed(here: Place) -> None:
    here.close()
    here.store, here.limits = Store.open(here.directory, here.clock), settings_file.Limits(stale_ms=1)
    here.server.fail("POST", "/users/ids", status=500, times=1)
    here.start()
    here.put(here.say("hello"))
    until(here.said)
    assert here.texts() == []


def test_a_post_that_was_answered_is_not_accepted_again_after_a_restart(here: Place) -> None:
    said = here.say()
    here.put(said)
    until(here.texts)
    here.store.settle(said.id, State.DONE)
    here.close()
    here.store = Store.open(here.directory, here.clock)
    here.start()
    here.put(GAP, said)
    here.handled()
    assert here.texts() == []


def test_what_is_not_for_us_is_not_accepted_and_moves_the_mark(here: Place) -> None:
    noise = here.say("hello all", channel=here.town)
    hook = posts.post(here.server.hook(here.owner, here.direct, "I am a program"))
    here.put(noise, hook, here.say("let me in", user=here.other, channel=here.town))
    here.handled()
    assert here.texts() == []
    here.stop()
    assert here.store.marks()[here.town] >= noise.create_at


def test_in_our_own_thread_a_reply_of_the_same_moment_needs_no_name(here: Place) -> None:
    root = here.say("@bot begin", channel=here.town)
    reply = here.say("and this", channel=here.town, root=root.id)
    other = here.say("@alice, you?", channel=here.town, root=root.id)
    here.put(root, reply, other)
    here.handled()
    assert here.texts() == ["begin", "and this"]


def test_a_thread_of_another_channel_is_not_ours(here: Place) -> None:
    root = here.say("begin")
    here.put(root)
    until(here.texts)
    forged = here.say("and this", channel=here.town)
    here.put(posts.post({**here.server.post(forged.id), "root_id": root.id}))
    here.handled()
    assert here.texts() == ["begin"]


def test_an_event_without_a_type_of_channel_is_looked_up(here: Place) -> None:
    direct, town = here.say("one"), here.say("two", channel=here.town)
    here.put(Posted(post=direct, channel_type=None), Posted(post=town, channel_type=None))
    here.handled()
    assert here.texts() == ["one"]


def test_a_bot_on_the_list_is_not_heard(place: Place) -> None:
    agent, _ = place.server.add_bot("agent")
    place.users = (place.owner, agent)
    place.start()
    place.put(GAP)
    place.handled()
    said = place.say("@bot hello", user=agent, channel=place.town)
    assert said.props["from_bot"] == "true"
    place.put(said, posts.post({**place.server.post(said.id), "props": {}}))
    place.handled()
    assert place.texts() == []


def test_a_post_with_files_alone_is_answered_once(here: Place) -> None:
    said = here.say("", files=2)
    here.put(said, said)
    here.handled()
    assert (here.texts(), len(here.said())) == ([], 1)
    assert "files" in here.said()[0]


def test_a_post_that_cannot_be_decided_upon_is_left_out_and_the_next_one_is_not(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here.inbound is not None
    decide = here.inbound.decide

    def poisoned(post: Post, **more: Any) -> Any:
        if post.message == "poison":
            raise ValueError("a fault of ours")
        return decide(post, **more)

    monkeypatch.setattr(here.inbound, "decide", poisoned)
    here.put(here.say("before"), here.say("poison"), here.say("after"))
    here.handled()
    assert here.texts() == ["before", "after"]


# -- edits and deletions ---------------------------------------------------------------------------


def test_an_edit_is_told_once_and_changes_nothing(here: Place) -> None:
    said = here.say("first")
    here.put(said)
    here.server.edit(said.id, "!approve 1")
    here.put(Edited(post=here.now(said.id)), Edited(post=here.now(said.id)))
    here.server.edit(said.id, "third")
    here.put(Edited(post=here.now(said.id)))
    here.handled()
    assert here.texts() == ["first"]
    [told] = here.said()
    assert "first text" in told
    assert "(UTC)" in told


def test_what_changes_no_text_is_not_told(here: Place) -> None:
    said = here.say("first")
    here.put(said, Edited(post=said))
    here.put(Edited(post=posts.post({**here.server.post(said.id), "edit_at": said.create_at + 5})))
    here.handled()
    assert here.said() == []


def test_an_edit_of_what_was_never_used_is_not_told(here: Place) -> None:
    said = here.say("not for you", channel=here.town)
    here.server.edit(said.id, "@bot hello")
    here.put(said, Edited(post=here.now(said.id)))
    here.handled()
    assert (here.texts(), here.said()) == ([], [])


def test_an_edit_during_a_gap_is_told_when_it_is_seen(here: Place) -> None:
    said = here.say("first")
    here.put(said)
    until(here.texts)
    here.server.edit(said.id, "second")
    here.put(GAP)
    here.handled()
    assert here.texts() == ["first"]
    assert len(here.said()) == 1


def test_a_post_that_was_edited_before_it_was_seen_is_listed(here: Place) -> None:
    said = here.say("first")
    here.server.edit(said.id, "!approve 1")
    here.put(GAP)
    here.handled()
    assert here.texts() == []
    until(here.said)
    assert "edited: \\!approve 1" in here.said()[0]


def test_a_deleted_reply_is_dropped_where_it_was_not_said(here: Place) -> None:
    root = here.say("root")
    reply = here.say("reply", root=root.id)
    here.put(root, reply, Deleted(post=reply))
    here.handled()
    assert here.texts() == ["root"]
    assert here.turns.cancelled == []


def test_a_deleted_root_ends_its_turn(here: Place) -> None:
    root = here.say("root")
    here.put(root)
    until(here.texts)
    here.store.asked(root.id, session_of(root.id), 1)
    here.put(here.say("reply", root=root.id), Deleted(post=root))
    here.handled()
    assert here.turns.cancelled == [session_of(root.id)]
    assert here.texts() == []


# -- channels, starting and stopping ---------------------------------------------------------------


def test_a_channel_that_the_bot_joined_is_caught_up_alone(here: Place) -> None:
    said = here.say("@bot hello", channel=here.town)
    here.say("missed too")
    here.put(ChannelJoined(channel=here.town))
    until(here.texts)
    assert [post.id for post in here.store.waiting()] == [said.id]
    here.put(ChannelJoined(channel=MattermostId("n" * 26)), ChannelGone(channel=here.town))
    here.handled()


def test_a_new_direct_channel_is_heard_from_its_first_post_on(place: Place) -> None:
    place.users = (place.owner, place.other)
    place.start()
    place.put(GAP)
    place.handled()
    channel = MattermostId(place.server.direct(place.other, place.bot))
    said = place.say("hello", user=place.other, channel=channel)
    place.put(ChannelJoined(channel=channel), Posted(post=said, channel_type=ChannelType.DIRECT))
    place.handled()
    assert place.texts() == ["hello"]


def test_stopping_ends_a_request_that_is_under_way(place: Place) -> None:
    held = threading.Event()
    reached = place.server.fail("GET", "/users/me/channels", wait=held)
    place.start()
    place.put(GAP)
    assert reached.wait(60)
    place.stop()
    held.set()


def test_stopping_ends_the_waiting_for_a_server_that_is_away(place: Place) -> None:
    place.server.down()
    place.start()
    place.put(GAP)
    until(lambda: place.condition.worst() is not None)
    place.stop()
    place.server.up()


def test_what_never_started_can_be_stopped(place: Place) -> None:
    inbound = place.start()
    place.stop()
    inbound.stop()
    assert inbound.join(0)
    assert Part.INBOUND not in place.condition._troubles
