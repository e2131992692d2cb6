"""What was missed, and what goes wrong meanwhile: nothing is lost, nothing is taken twice."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bxcore.deadline import SystemClock
from bxcore.files import StateUnwritable
from bxcore.settings import gatewayd as settings_file
from gatewayd import eventqueue, inbound, sharedbot
from gatewayd.catchup import CatchUp, Read
from gatewayd.entries import Outgoing, Question
from gatewayd.inbound import ATTEMPTS
from gatewayd.items import Deleted, Lost, Opened, Posted
from gatewayd.posts import ChannelType, Post
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


# -- catching up -----------------------------------------------------------------------------------


def test_what_was_missed_is_accepted_in_order_before_what_came_since(here: Place) -> None:
    missed = [here.say(f"missed {number}") for number in range(5)]
    here.put(Lost())
    live = here.say("live")
    here.put(GAP, live)
    here.handled()
    assert here.texts() == [*(f"missed {number}" for number in range(5)), "live"]
    assert here.store.marks()[here.direct] >= missed[-1].create_at


def test_a_resumed_stream_is_not_caught_up(here: Place) -> None:
    here.say("missed")
    here.put(Opened(resumed=True, version=None))
    here.handled()
    assert here.texts() == []


def test_the_first_start_does_not_look_back(tmp_path: Path) -> None:
    with Server() as server:
        owner, (bot, _) = server.add_user("someone"), server.add_bot("early")
        server.say(owner, server.direct(owner, bot), "from before")
        place = Place(server, tmp_path)
        early = place.say("from before", at=place.store.began() - 1)
        place.start()
        place.put(GAP)
        place.handled()
        assert place.store.known(early.id) is None
        place.close()


def test_a_backlog_of_many_channels_is_caught_up_once(place: Place) -> None:
    """N20 and the bench in small: 1,200 posts over 40 channels; some came as events too."""
    people = [place.server.add_user(f"user{number}") for number in range(39)]
    place.users = (place.owner, *people)
    channels = [place.direct, *(place.server.direct(one, place.bot) for one in people)]
    said: list[Post] = []
    for number in range(30):
        for user, channel in zip(place.users, channels, strict=True):
            said.append(place.say(f"post {number}", user=user, channel=channel))
    place.start()
    place.put(GAP)
    for post in said[::7]:
        place.put(Posted(post=post, channel_type=ChannelType.DIRECT))
    place.put(GAP)
    place.handled()
    found = place.store.waiting(10_000)
    assert [post.id for post in found] == [post.id for post in sorted(said, key=lambda post: (post.create_at, post.id))]


def test_a_post_that_is_deleted_while_pages_are_read_hides_no_other(place: Place) -> None:
    said = [place.say(f"post {number}") for number in range(250)]
    held = threading.Event()
    reached = place.server.fail("GET", f"/channels/{place.direct}/posts.*page=1", wait=held)
    place.start()
    place.put(GAP)
    assert reached.wait(60)
    place.server.delete(said[-1].id)
    held.set()
    place.put(Deleted(post=said[-1]))
    place.handled()
    assert [post.id for post in place.store.waiting(1_000)] == [post.id for post in said[:-1]]


def test_old_posts_are_listed_to_their_authors_in_one_post_each(place: Place) -> None:
    place.store.close()
    place.limits = settings_file.Limits(stale_ms=HOUR_MS)
    clock = SystemClock()
    began = clock.now_ms() - 10 * HOUR_MS
    place.store = Store.open(place.directory, clock)
    with place.store._file.writing() as database:
        database.execute("UPDATE kept SET value = ?", (str(began),))
    for number in range(60):
        place.say(f"old {number}", at=began + 1_000 + number)
    place.say("@bot !approve 1", channel=place.town, at=began + 5_000)
    fresh = place.say("fresh")
    place.start()
    place.put(GAP)
    place.handled()
    until(place.said)
    [listed] = place.said()
    assert listed.count("\n- ") == 50
    assert "in town: \\!approve 1" in listed
    assert "and 11 older ones" in listed
    assert place.texts() == [fresh.message]
    assert place.store.counts().listed == 61
    place.put(GAP)
    place.handled()
    assert len(place.said()) == 1


def test_a_list_survives_a_kill_between_taking_and_telling(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    said = place.say("first")
    place.server.edit(said.id, "second")
    place.server.fail("POST", "/channels/direct", status=500, times=1_000)
    place.start()
    place.put(GAP)
    until(place.store.old_authors)
    place.close()
    place.server.clear_faults()
    place.store = Store.open(place.directory, place.clock)
    place.start()
    place.put(GAP)
    until(place.said)
    assert "edited" in place.said()[0]


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/users/me/channels", "/channels/.*/posts", "/users/ids"])
@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_fault_of_the_server_is_waited_out_and_nothing_is_lost(place: Place, path: str, status: int) -> None:
    said = [place.say(f"post {number}") for number in range(3)]
    place.server.fail("*", path, status=status, times=3, headers={"Retry-After": "0"})
    place.start()
    place.put(GAP)
    place.handled()
    assert [post.id for post in place.store.waiting()] == [post.id for post in said]
    until(lambda: place.condition.worst() is None)


def test_a_fault_shows_while_it_lasts(place: Place) -> None:
    place.server.fail("GET", "/users/me/channels", status=401, times=100_000)
    place.start()
    place.put(GAP)
    until(lambda: place.condition.worst() is not None)
    worst = place.condition.worst()
    assert worst is not None
    assert worst.code == "token_refused"
    place.server.clear_faults()
    until(lambda: place.condition.worst() is None)


def test_a_channel_that_may_not_be_read_does_not_hold_up_the_others(place: Place) -> None:
    place.say("@bot hello", channel=place.town)
    said = place.say("hello")
    denied = '{"id": "api.context.permissions.app_error", "status_code": 403}'
    place.server.fail("GET", f"/channels/{place.town}/posts", status=403, body=denied, times=1)
    place.start()
    place.put(GAP)
    place.handled()
    assert [post.id for post in place.store.waiting()] == [said.id]


def test_a_channel_that_a_proxy_refuses_is_read_when_the_server_is_back(place: Place) -> None:
    """Left out, its next event would move the mark past what was missed."""
    missed = place.say("missed")
    place.server.fail("GET", f"/channels/{place.direct}/posts", status=404, body="404 page not found", times=2)
    place.start()
    place.put(GAP, place.say("live"))
    place.handled()
    assert place.texts() == ["missed", "live"]
    assert place.store.known(missed.id) is not None
    assert place.condition.worst() is None


def test_a_server_whose_clock_was_put_back_loses_no_post(here: Place) -> None:
    early = here.say("its clock is ahead", at=here.clock.now_ms() + 600_000)
    here.put(early)
    here.handled()
    here.say("its clock is right")
    here.put(GAP)
    here.handled()
    assert sorted(here.texts()) == ["its clock is ahead", "its clock is right"]


def test_a_catching_up_that_was_left_does_not_shorten_the_next_one(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a fault of ours: the channels that it had finished are read again."""
    here.say("first")
    read, breaks = CatchUp.run, iter(range(ATTEMPTS))

    def broken(self: CatchUp, *arguments: Any) -> Iterator[Read]:
        yield from read(self, *arguments)
        if next(breaks, None) is not None:
            raise ZeroDivisionError

    monkeypatch.setattr(CatchUp, "run", broken)
    monkeypatch.setattr(inbound, "FIRST_PAUSE_MS", 1)
    here.put(GAP)
    here.handled()
    here.say("later")
    here.put(GAP)
    here.handled()
    assert here.texts() == ["first", "later"]


def test_it_is_not_connected_while_what_was_missed_is_read(here: Place) -> None:
    here.say("missed")
    here.condition.connection(up=True)
    assert here.condition.connected
    go = threading.Event()
    held = here.server.fail("GET", f"/channels/{here.direct}/posts", wait=go)
    here.put(GAP)
    held.wait()
    assert here.condition.catching_up
    go.set()
    here.handled()
    assert here.condition.connected


def test_a_full_disk_is_waited_out_and_nothing_is_lost(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    take, failures = here.store.take, iter([True, True, True])

    def full(*arguments: Any) -> Any:
        if threading.current_thread().name == "inbound" and next(failures, False):
            raise StateUnwritable("the queue could not be written: database or disk is full")
        return take(*arguments)

    monkeypatch.setattr(here.store, "take", full)
    here.put(here.say("one"), here.say("two"))
    here.handled()
    assert here.texts() == ["one", "two"]
    assert here.condition.worst() is None


def test_too_many_events_are_dropped_and_read_again(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventqueue, "ITEMS_MOST", 10)
    held = threading.Event()
    reached = here.server.fail("GET", "/users/me/channels", wait=held)
    here.put(GAP)
    assert reached.wait(60)
    said = [here.say(f"post {number}") for number in range(50)]
    here.put(*said)
    held.set()
    until(lambda: len(here.texts()) == 50)
    here.handled()
    assert [post.id for post in here.store.waiting()] == [post.id for post in said]


def test_many_characters_are_too_many_events(monkeypatch: pytest.MonkeyPatch, here: Place) -> None:
    queue = eventqueue.EventQueue()
    said = Posted(post=here.say("x" * 16_000), channel_type=None)
    for _ in range(263):
        queue.put(said)
    assert queue.take(0) == (True, ())
    assert queue.take(0) == (False, ())


def test_items_come_in_order_and_posts_together(here: Place) -> None:
    queue = eventqueue.EventQueue()
    one, two = (Posted(post=here.say(text), channel_type=None) for text in ("one", "two"))
    for item in (one, two, GAP, one, Deleted(post=two.post), two):
        queue.put(item)
    assert [queue.take(0)[1] for _ in range(6)] == [(one, two), (GAP,), (one,), (Deleted(post=two.post),), (two,), ()]


# -- the bot's own posts ---------------------------------------------------------------------------


def trouble(place: Place) -> str | None:
    worst = place.condition.worst()
    return worst.code if worst else None


@pytest.mark.parametrize("live", [True, False], ids=["live", "caught up"])
def test_posts_that_another_boxmaker_made_with_our_bot_are_told(
    here: Place, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    monkeypatch.setattr(sharedbot, "BEGUN_MS", -HOUR_MS)
    props = {"boxmaker": "mm-root:1:1"}
    ours = here.say("an answer", user=here.bot, props=props)
    here.store.add([Outgoing(key="mm-root:1:1", channel=here.direct, root=None, message="an answer")])
    here.store.sent(here.store.unsent()[0].number, ours.id)
    here.put(*([ours] if live else [GAP]))
    here.handled()
    assert trouble(here) is None
    theirs = here.say("the same answer", user=here.bot, props=props)
    here.put(*([theirs] if live else [GAP]))
    here.handled()
    assert trouble(here) == "bot_shared"
    assert here.texts() == []


def test_what_the_bot_said_before_this_queue_began_is_nobodys(place: Place) -> None:
    place.say("an answer of a queue that was lost", user=place.bot, props={"boxmaker": "mm-root:1:1"})
    place.start()
    place.put(GAP)
    place.handled()
    assert trouble(place) is None


# -- plain words where a question is open ------------------------------------------------------------


def test_a_plain_yes_in_the_thread_of_a_question_is_a_message_and_told_that_it_answers_nothing(here: Place) -> None:
    root = here.say("do it")
    asked = here.say("May it?", user=here.bot, root=root.id)
    here.store.question_posted(Question(post=asked.id, id=17, channel=here.direct, root=root.id, message="May it?"))
    here.put(here.say("Yes.", root=root.id), here.say("and then?", root=root.id))
    here.handled()
    assert here.texts() == ["Yes.", "and then?"]
    [hint] = here.said()
    assert "`!approve 17`" in hint


def test_a_plain_yes_where_no_question_is_open_is_a_message_alone(here: Place) -> None:
    here.put(here.say("yes"))
    here.handled()
    assert (here.texts(), here.said()) == (["yes"], [])
