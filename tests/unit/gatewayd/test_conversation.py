"""A real loopd behind the queue: each post becomes part of one turn and each turn one answer, whatever is killed."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from bxcore.deadline import SystemClock
from gatewayd import following
from gatewayd.answers import PostSize
from gatewayd.conversation import Conversation
from gatewayd.doing import Doing
from gatewayd.entries import Incoming
from gatewayd.outbound import Poster
from tests.fakes.gatequeue import Queue, command, post, session, settings
from tests.fakes.inboundplace import until
from tests.fakes.loop import Loop
from tests.fakes.postbox import BOT, Postbox, an_id
from tests.fakes.scripted_model import answer
from tests.fakes.served import Hold, Served

PATIENCE_MS = 30_000


class Killed(BaseException):
    """The process ended here."""


class NoQuestions:
    """brokerd asks nothing."""

    def answer(self, incoming: Incoming, command: Any) -> str | None:
        raise AssertionError

    def open_count(self) -> int:
        return 0


@attrs.define(kw_only=True)
class Scene:
    """loopd on its socket, and a gatewayd that can be killed and started again."""

    home: Path
    served: Served
    queue: Queue
    postbox: Postbox
    parts: list[Conversation | Poster | Doing] = attrs.Factory(list)
    commanded: threading.Event = attrs.Factory(threading.Event)
    conversation: Conversation = attrs.field(init=False)
    doing: Doing = attrs.field(init=False)
    poster: Poster = attrs.field(init=False)

    def build(self) -> None:
        """Make what a new process has."""
        chosen = settings(self.home)
        chosen = attrs.evolve(chosen, loop=attrs.evolve(chosen.loop, socket=self.served.path))
        store, condition, clock, size = self.queue.store, self.queue.condition, SystemClock(), PostSize(4_000)
        self.poster = poster = Poster(
            store=store,
            api=self.postbox.api,
            settings=chosen,
            bot=BOT.id,
            condition=condition,
            clock=clock,
            size=size,
            first_pause_ms=1,
        )
        self.conversation = Conversation(
            store=store,
            settings=chosen,
            condition=condition,
            clock=clock,
            size=size,
            on_answered=poster.wake,
            on_turns=lambda: None,
            first_pause_ms=1,
        )
        self.doing = Doing(
            store=store,
            condition=condition,
            turns=self.conversation,
            questions=NoQuestions(),
            attempts=3,
            on_outgoing=self.commanded.set,
        )
        self.parts = [self.conversation, self.doing, self.poster]

    def start(self) -> None:
        self.build()
        for part in self.parts:
            part.start()

    def stop(self) -> None:
        for part in self.parts:
            part.stop()
        for part in self.parts:
            assert part.join(PATIENCE_MS)
        self.parts = []

    def again(self) -> None:
        """End gatewayd and open its queue anew."""
        self.stop()
        self.queue.again()

    def accept(self, *posts: Incoming) -> None:
        self.queue.store.accept(posts)
        self.conversation.wake()
        self.doing.wake()

    def posted(self, count: int) -> list[str]:
        """Wait for so many posts of ours; return what they say."""
        self.postbox.until(lambda: len(self.postbox.made) >= count)
        return [made.message for made in self.postbox.made]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    home = tmp_path / "gatewayd"
    home.mkdir()
    place = tmp_path / "loopd"
    place.mkdir(mode=0o750)
    served = Served(place, Loop(place), gateway=True)
    scene = Scene(home=home, served=served, queue=Queue(home, SystemClock()), postbox=Postbox())
    yield scene
    scene.stop()
    served.close()
    scene.queue.store.close()


def test_a_post_is_answered_in_its_thread_and_a_reply_goes_on_with_it(scene: Scene) -> None:
    scene.served.loop.model.expect(answer("Good morning."), answer("You are welcome."))
    scene.start()
    scene.accept(post("root", text="Good morning"))
    scene.posted(1)
    scene.accept(post("reply", at=1, thread="root", text="Thank you"))
    assert scene.posted(2) == ["Good morning.", "You are welcome."]
    assert {made.root for made in scene.postbox.made} == {an_id("root")}


def test_posts_during_a_turn_are_one_next_turn(scene: Scene) -> None:
    hold = Hold("first")
    scene.served.loop.model.expect(hold.script, answer("second"))
    scene.start()
    scene.accept(post("root"))
    hold.wait()
    scene.accept(post("b", at=1, thread="root"), post("c", at=2, thread="root"))
    hold.go.set()
    assert scene.posted(2) == ["first", "second"]


def test_a_long_answer_is_posted_whole_and_in_order(scene: Scene) -> None:
    """C7: an answer of 200,000 characters."""
    text = " ".join(f"{number:09}" for number in range(20_000))
    scene.served.loop.model.expect(answer(text))
    scene.start()
    scene.accept(post("root"))
    scene.postbox.until(lambda: sum(len(made.message.split()) for made in scene.postbox.made) >= 20_000)
    assert " ".join(made.message for made in scene.postbox.made).split() == text.split()
    assert max(len(made.message) for made in scene.postbox.made) <= 4_000


def test_stop_stops_the_turn_of_its_thread_which_says_so(scene: Scene) -> None:
    """C4: a stop works at once."""
    hold = Hold("never said")
    scene.served.loop.model.expect(hold.script)
    scene.start()
    scene.accept(post("root"))
    hold.wait()
    scene.accept(command("!stop", thread="root"))
    assert scene.commanded.wait(PATIENCE_MS / 1000)
    hold.go.set()
    (said,) = scene.posted(1)
    assert said.endswith("*Stopped at the owner's request.*")


def test_stop_finds_its_turn_among_as_many_as_are_followed_at_a_time(scene: Scene) -> None:
    """C4: 64 turns at work, and some more that nobody has room to follow."""
    hold = Hold("never said")
    scene.served.loop.model.expect(hold.script)
    scene.start()
    scene.accept(*[post(f"root{number}x", at=number) for number in range(following.MOST + 4)])
    hold.wait()
    until(lambda: len(scene.conversation.running()) == following.MOST and not scene.queue.store.waiting())
    scene.accept(command("!stop", thread="root40x"))
    assert scene.commanded.wait(PATIENCE_MS / 1000)
    scene.posted(1)
    (made,) = scene.postbox.made
    assert made.root == an_id("root40x")
    assert made.message.endswith("*Stopped at the owner's request.*")
    scene.commanded.clear()
    scene.accept(command("!stop", "everywhere"))  # at the top: all of them
    assert scene.commanded.wait(PATIENCE_MS / 1000)
    hold.go.set()
    assert len(scene.posted(following.MOST + 5)) == following.MOST + 5
    assert scene.queue.store.open_turns() == ()


def test_a_turn_that_runs_when_gatewayd_ends_is_answered_by_the_next_one(scene: Scene) -> None:
    hold = Hold("Hello")
    scene.served.loop.model.expect(hold.script)
    scene.start()
    scene.accept(post("root"))
    hold.wait()
    scene.again()
    hold.go.set()
    scene.start()
    assert scene.posted(1) == ["Hello"]
    assert scene.queue.store.open_turns() == ()


STEPS = ("asked", "answered", "trying", "sent", "say", "follow", "create_post")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
def test_a_kill_at_any_step_leaves_each_post_said_once_and_each_turn_answered_once(
    scene: Scene, step: str, *, after: bool
) -> None:
    """INV-6, C6 and neighbours' bugs, statements 21 and 22."""
    scene.served.loop.model.expect(answer("one"), answer("two"))
    scene.build()
    scene.queue.store.accept([post("a", text="first"), post("b", at=1, text="second")])
    through(scene, killing=(step, after))
    scene.stop()
    scene.queue.again()
    scene.build()
    through(scene)
    assert [made.message for made in scene.postbox.made] == ["one", "two"]
    assert [made.root for made in scene.postbox.made] == [an_id("a"), an_id("b")]
    assert scene.queue.store.counts() == attrs.evolve(
        scene.queue.store.counts(), waiting=0, asked=0, outgoing=0, parked=0
    )
    for thread in ("a", "b"):
        said = [record for record in scene.served.loop.records(session(thread)) if type(record).__name__ == "User"]
        assert len(said) == 1


def through(scene: Scene, *, killing: tuple[str, bool] | None = None) -> None:
    """Take everything to its end in this thread; with `killing`, up to the second time of a step."""
    conversation, store, box = scene.conversation, scene.queue.store, scene.postbox.api()
    sayer, followers = conversation._sayer, conversation._followers
    sayer._parts = attrs.evolve(sayer._parts, look=lambda: None)  # no other thread
    if killing is not None:
        name, after = killing
        owner: Any = next(one for one in (store, conversation._port, box) if hasattr(one, name))
        setattr(owner, name, kills(getattr(owner, name), after=after))
    try:
        sayer._round()
        for turn in store.open_turns():
            followers._answer(turn)
        scene.poster.post_all(box)
    except Killed:
        assert killing is not None
    else:
        assert killing is None
    finally:
        box.close()


def kills(act: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """Return `act` that ends the process at its second call."""
    calls = 0

    def killing(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2 and not after:
            raise Killed
        done = act(*args, **named)
        if calls == 2:
            raise Killed
        return done

    return killing


def test_what_runs_and_how_loopd_is_can_be_asked(scene: Scene) -> None:
    hold = Hold("Hello")
    scene.served.loop.model.expect(hold.script)
    told = threading.Event()
    scene.start()
    scene.conversation._followers._parts = attrs.evolve(scene.conversation._followers._parts, on_turns=told.set)
    scene.accept(post("root"))
    hold.wait()
    assert told.wait(PATIENCE_MS / 1000)
    assert [turn.session for turn in scene.conversation.running()] == [session("root")]
    status = scene.conversation.loop_status()
    assert status is not None
    assert status.ready
    hold.go.set()
    scene.posted(1)
    assert scene.conversation.cancel(session("root")) is False
    assert scene.conversation.cancel(session("nobody")) is False


def test_where_loopd_is_away_nothing_is_stopped_and_nothing_known(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    conversation = Conversation(
        store=queue.store,
        settings=settings(tmp_path),
        condition=queue.condition,
        clock=SystemClock(),
        size=PostSize(),
        on_answered=lambda: None,
        on_turns=lambda: None,
    )
    assert conversation.cancel(session("root")) is False
    assert conversation.loop_status() is None
    conversation.stop()
    assert conversation.join(PATIENCE_MS)
    queue.store.close()
