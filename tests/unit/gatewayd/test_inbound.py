"""From the event stream and from REST into the queue, against a server with the real one's rules."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bxcore.deadline import SystemClock
from bxcore.files import StateUnwritable
from bxcore.ids import MattermostId, SessionId
from bxcore.secrets import Secret
from bxcore.settings import gatewayd as settings_file
from bxcore.timestamp import Timestamp
from gatewayd import eventqueue, mattermost, posts
from gatewayd.condition import Condition, Part
from gatewayd.entries import Incoming, Kind, State, session_of
from gatewayd.inbound import Inbound
from gatewayd.items import ChannelGone, ChannelJoined, Deleted, Edited, Lost, Opened, Posted
from gatewayd.posts import Account, ChannelType, Post
from gatewayd.store import Store
from tests.fakes.mattermost import Mattermost as Server
from tests.fakes.queued import incoming
from tests.fakes.queued import post as a_post

GAP = Opened(resumed=False, version="11.6.0")
HOUR_MS = 3_600_000


class Turns:
    """Notes what is cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[SessionId] = []

    def cancel(self, session: SessionId) -> bool:
        self.cancelled.append(session)
        return True


class Place:
    """A server, its people, and an Inbound over a store of its own; items are put by hand."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server, self.directory = server, directory
        self.owner, self.other = MattermostId(server.add_user("owner")), MattermostId(server.add_user("alice"))
        bot, self.token = server.add_bot("bot")
        self.bot = MattermostId(bot)
        self.direct = MattermostId(server.direct(self.owner, self.bot))
        self.town = MattermostId(server.add_channel("O", [self.owner, self.other, self.bot], name="town"))
        self.clock, self.condition, self.turns = SystemClock(), Condition(SystemClock()), Turns()
        self.users: tuple[str, ...] = (self.owner,)
        self.limits = settings_file.Limits()
        self.woken = threading.Semaphore(0)
        self.store = Store.open(directory, self.clock)
        self.inbound: Inbound | None = None
        self.barriers = 0

    def start(self) -> Inbound:
        self.inbound = Inbound(
            store=self.store,
            api=lambda: mattermost.Mattermost(self.settings.mattermost, Secret("mattermost-token", self.token)),
            settings=self.settings,
            account=Account(id=self.bot, username="bot", is_bot=True, delete_at=Timestamp(0)),
            condition=self.condition,
            clock=self.clock,
            on_accepted=self.woken.release,
            turns=self.turns,
        )
        self.inbound.start()
        return self.inbound

    @property
    def settings(self) -> settings_file.GatewaydSettings:
        return settings_file.GatewaydSettings(
            state=self.directory,
            listen=settings_file.Listen(gateway=self.directory, owner=self.directory),
            mattermost=settings_file.Mattermost(url=self.server.url, retry_most_ms=5),
            loop=settings_file.Loop(socket=self.directory),
            allow=settings_file.Allow(users=self.users, channels=(self.town,)),
            limits=self.limits,
        )

    def stop(self) -> None:
        if self.inbound is not None:
            self.inbound.stop()
            assert self.inbound.join(30_000)
        self.inbound = None

    def close(self) -> None:
        self.stop()
        self.store.close()

    def say(self, text: str = "hello", **more: Any) -> Post:
        """Say something as the owner in the direct channel; the event of it is not put."""
        more.setdefault("user", self.owner)
        more.setdefault("channel", self.direct)
        self.server.advance(1)
        return posts.post(self.server.say(more.pop("user"), more.pop("channel"), text, **more))

    def now(self, id_: str) -> Post:
        return posts.post(self.server.post(id_))

    def put(self, *items: Any) -> None:
        assert self.inbound is not None
        for item in items:
            self.inbound.put(Posted(post=item, channel_type=self.kind(item)) if isinstance(item, Post) else item)

    def kind(self, post: Post) -> ChannelType:
        return ChannelType.DIRECT if post.channel == self.direct else ChannelType.OPEN

    def handled(self) -> None:
        """Return when everything was handled that was put before: the end of a turn comes out behind it."""
        self.barriers += 1
        post = incoming("barrier", self.barriers, kind=Kind.COMMAND)
        self.store.accept([post])
        self.store.asked(post.id, post.session, 1)
        self.put(Deleted(post=a_post("barrier", self.barriers)))
        until(lambda: post.session in self.turns.cancelled)
        self.turns.cancelled.remove(post.session)
        self.store.answered(post.session, 1, [])

    def texts(self) -> list[str]:
        return [post.text for post in self.store.waiting(100_000)]

    def said(self) -> list[str]:
        return [unsent.outgoing.message for unsent in self.store.unsent(1_000)]


def until(true: Callable[[], object]) -> None:
    """Wait for something that another thread does; a test that hangs is ended by pytest-timeout."""
    pause = threading.Event()
    while not true():
        pause.wait(0.002)


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
    place.server.fail("(GET|POST)", path, status=status, times=3, headers={"Retry-After": "0"})
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
    place.server.fail("GET", f"/channels/{place.town}/posts", status=403, times=1)
    place.start()
    place.put(GAP)
    place.handled()
    assert [post.id for post in place.store.waiting()] == [said.id]


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
