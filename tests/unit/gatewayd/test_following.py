"""Each open turn is followed to its end, in order within its session, and answered in one step."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import attrs
import pytest

from bxcore.deadline import SystemClock
from bxcore.server import PeerGone, Request
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnding, TurnFollow, TurnState
from bxcore.wire.control import ErrorCode, WireFault
from gatewayd import answers, following
from gatewayd.backoff import Backoff
from gatewayd.entries import OpenTurn, Outgoing
from gatewayd.following import Followers, Follows
from gatewayd.loopport import Ended, LoopPort
from tests.fakes import loopd
from tests.fakes.gatequeue import Queue, full_once, post, session, settings, turn
from tests.fakes.loopd import FakeLoopd, Script, ended, part, refuses, send
from tests.fakes.postbox import an_id

PATIENCE_SECONDS = 30


def snapshot(state: TurnState = TurnState.RUNNING) -> channel.TurnSnapshot:
    return channel.TurnSnapshot(turn=1, state=state, step=0, reasoning="", text="")


def tells(*events: object) -> Script:
    """Answer with a snapshot and then these."""
    return lambda request: send(request, (snapshot(), *events))


def breaks_after(*events: object) -> Script:
    """Send these and leave: loopd is killed."""

    def script(request: Request) -> None:
        for event in events:
            request.answer(event, final=False)
        raise PeerGone("killed")

    return script


def in_turn(*scripts: Script) -> Script:
    """Answer with one script after the other, with the last one for ever."""
    left = list(scripts)

    def script(request: Request) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(request)

    return script


@attrs.frozen(kw_only=True)
class Scene:
    """Followers over a fake loopd. A composed answer is its text and sentence, for the test to see."""

    home: Path
    queue: Queue
    followers: Followers
    parts: Follows
    changed: threading.Condition

    def open(self, thread: str, number: int = 1, *, at: int = 0) -> None:
        """Put a turn into the queue that loopd has taken."""
        one = post(f"{thread}{number}x", at=at, thread=thread)
        self.queue.store.accept([one])
        self.queue.store.asked(one.id, one.session, number)

    def until(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, PATIENCE_SECONDS)

    def answered(self, count: int = 1) -> list[tuple[str, str]]:
        """Wait for so many posts; return them."""
        self.until(lambda: len(self.queue.unsent()) >= count)
        return self.queue.unsent()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    queue = Queue(tmp_path)
    port = LoopPort(settings(tmp_path).loop.socket, SystemClock())
    changed = threading.Condition()

    def tell() -> None:
        with changed:
            changed.notify_all()

    parts = Follows(
        store=queue.store,
        port=port,
        condition=queue.condition,
        attempts=3,
        backoff=lambda: Backoff(1, 4, Random(1).random),
        compose=lambda turn, end: answers.numbered(turn, [f"{end.text}|{end.sentence}"]),
        on_answered=tell,
        on_turns=tell,
        on_unseen=tell,
    )
    scene = Scene(home=tmp_path, queue=queue, followers=Followers(parts), parts=parts, changed=changed)
    yield scene
    scene.followers.stop()
    port.stop()
    assert scene.followers.join(PATIENCE_SECONDS)
    port.close()
    queue.store.close()


def followed(fake: FakeLoopd) -> list[tuple[str, int]]:
    return [(message.session, message.turn) for message in fake.of(TurnFollow)]


def test_a_turn_that_ends_is_answered_in_its_thread_and_is_over(scene: Scene) -> None:
    scene.open("root")
    with FakeLoopd(scene.home, {TurnFollow: tells(ended("Hi there."))}) as fake:
        scene.followers.look()
        assert scene.answered() == [(f"{session('root')}:1:1", "Hi there.|None")]
        assert followed(fake) == [(session("root"), 1)]
    assert scene.queue.store.open_turns() == ()
    assert scene.queue.store.unsent()[0].outgoing.root == an_id("root")


def test_a_disk_that_was_full_is_no_trouble_once_it_is_written_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.open("root")
    monkeypatch.setattr(scene.queue.store, "answered", full_once(scene.queue.store.answered))
    with FakeLoopd(scene.home, {TurnFollow: tells(ended("Hi there."))}):
        scene.followers.look()
        assert len(scene.answered()) == 1
    assert scene.followers.join(PATIENCE_SECONDS)
    assert scene.queue.trouble() is None


def test_thinking_tools_and_streamed_words_are_no_part_of_an_answer(scene: Scene) -> None:
    events = (
        loopd.thought("hm"),
        loopd.text("Let me"),
        loopd.called("clock", "{}"),
        loopd.returned("clock", "noon"),
        loopd.notice("cache_loss", "words"),
    )
    scene.open("root")
    with FakeLoopd(scene.home, {TurnFollow: tells(*events, ended("Noon."))}):
        scene.followers.look()
        assert scene.answered()[0][1] == "Noon.|None"


@pytest.mark.parametrize("size", [200_000, 2_000_000])
def test_an_answer_of_any_length_arrives_whole(scene: Scene, size: int) -> None:
    """C7."""
    text = ("0123456789\N{SAILBOAT}" * (size // 11 + 1))[:size]
    front = [part(text[at : at + 100_000]) for at in range(0, size - 100_000, 100_000)]
    scene.open("root")
    with FakeLoopd(scene.home, {TurnFollow: tells(*front, ended(text[size - 100_000 :]))}):
        scene.followers.look()
        assert scene.answered()[0][1] == f"{text}|None"


def test_parts_of_a_connection_that_broke_do_not_count(scene: Scene) -> None:
    scene.open("root")
    script = in_turn(breaks_after(snapshot(), part("one ")), tells(part("one "), ended("two")))
    with FakeLoopd(scene.home, {TurnFollow: script}) as fake:
        scene.followers.look()
        assert scene.answered()[0][1] == "one two|None"
        assert len(followed(fake)) == 2


BROKEN: dict[str, Script] = {
    "killed before a word": breaks_after(),
    "killed in the middle": breaks_after(snapshot(), loopd.text("He")),
    "let go": tells(channel.TurnStarted(turn=1, keys=()), WireFault(code=ErrorCode.LAGGED, detail="slow")),
    "not ready": refuses(ErrorCode.NOT_READY, "waits"),
    "its disk is full": refuses(ErrorCode.STATE_UNWRITABLE, "full"),
}


@pytest.mark.parametrize("breaks", BROKEN.values(), ids=BROKEN.keys())
def test_a_turn_is_followed_again_however_often_the_way_breaks(scene: Scene, breaks: Script) -> None:
    scene.open("root")
    script = in_turn(*[breaks] * 6, tells(ended("", ending=TurnEnding.INTERRUPTED, sentence="Stopped.")))
    with FakeLoopd(scene.home, {TurnFollow: script}) as fake:
        scene.followers.look()
        assert scene.answered()[0][1] == "|Stopped."
        assert len(followed(fake)) == 7
    assert scene.queue.trouble() is None


def test_another_answer_than_was_asked_for_is_not_waited_upon(scene: Scene) -> None:
    scene.open("root")
    wrong: Script = lambda request: request.answer(loopd.ready(), final=True)  # noqa: E731 - one answer
    with FakeLoopd(scene.home, {TurnFollow: in_turn(wrong, tells(ended("Hi.")))}):
        scene.followers.look()
        assert scene.answered()[0][1] == "Hi.|None"


def test_a_loopd_that_is_away_is_waited_for(scene: Scene) -> None:
    scene.open("root")
    scene.followers.look()
    waited = threading.Event()
    while scene.queue.trouble() != "peer_away":
        waited.wait(0.01)
    with FakeLoopd(scene.home, {TurnFollow: tells(ended("Hi."))}):
        assert scene.answered()[0][1] == "Hi.|None"
    assert scene.queue.trouble() is None


GONE = {
    "no session": (ErrorCode.NO_SESSION, 1, "conversation is gone"),
    "no turn": (ErrorCode.NO_TURN, 1, "turn is gone"),
    "damaged": (ErrorCode.SESSION_DAMAGED, 3, "damaged"),
    "unreadable": (ErrorCode.STATE_UNREADABLE, 3, "could not be read (state_unreadable)"),
    "broken": (ErrorCode.INTERNAL, 3, "could not be read (internal)"),
}


@pytest.mark.parametrize(("code", "tries", "words"), GONE.values(), ids=GONE.keys())
def test_a_turn_that_loopd_cannot_tell_ends_with_one_honest_sentence(
    scene: Scene, code: ErrorCode, tries: int, words: str
) -> None:
    scene.open("root")
    with FakeLoopd(scene.home, {TurnFollow: refuses(code, "a secret detail")}) as fake:
        scene.followers.look()
        ((_, message),) = scene.answered()
        assert len(followed(fake)) == tries
    assert words in message
    assert "secret" not in message
    assert scene.queue.store.open_turns() == ()
    assert scene.queue.trouble() is None


def test_the_turns_of_a_session_are_answered_in_order(scene: Scene) -> None:
    for number in (3, 1, 2):
        scene.open("root", number, at=number)

    def script(request: Request) -> None:
        assert isinstance(request.message, TurnFollow)
        send(request, (snapshot(), ended(f"answer {request.message.turn}")))

    with FakeLoopd(scene.home, {TurnFollow: script}) as fake:
        scene.followers.look()
        assert [words for _, words in scene.answered(3)] == ["answer 1|None", "answer 2|None", "answer 3|None"]
        assert [number for _, number in followed(fake)] == [1, 2, 3]


def test_a_turn_that_came_while_another_was_followed_is_followed_next(scene: Scene) -> None:
    scene.open("root", 1)
    go = threading.Event()

    def script(request: Request) -> None:
        request.answer(snapshot(), final=False)
        assert go.wait(PATIENCE_SECONDS)
        request.answer(ended("done"), final=True)

    with FakeLoopd(scene.home, {TurnFollow: script}) as fake:
        scene.followers.look()
        fake.wait(TurnFollow)
        scene.open("root", 2, at=1)
        scene.followers.look()
        go.set()
        assert len(scene.answered(2)) == 2
        assert followed(fake) == [(session("root"), 1), (session("root"), 2)]


def test_only_so_many_sessions_are_followed_at_a_time_and_the_others_have_their_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST", 2)
    for number in range(6):
        scene.open(f"root{number}x", at=number)
    go = threading.Event()

    def script(request: Request) -> None:
        request.answer(snapshot(), final=False)
        assert go.wait(PATIENCE_SECONDS)
        request.answer(ended("done"), final=True)

    with FakeLoopd(scene.home, {TurnFollow: script}) as fake:
        scene.followers.look()
        scene.until(lambda: len(scene.followers.running()) == 2)
        assert sorted(followed(fake)) == [(session("root0x"), 1), (session("root1x"), 1)]
        go.set()
        assert len(scene.answered(6)) == 6
    scene.until(lambda: scene.followers.running() == ())


def test_a_turn_is_shown_as_running_from_loopds_first_word_until_its_answer_is_kept(scene: Scene) -> None:
    scene.open("root")
    go = threading.Event()

    def script(request: Request) -> None:
        request.answer(snapshot(), final=False)
        assert go.wait(PATIENCE_SECONDS)
        request.answer(ended("done"), final=True)

    assert scene.followers.running() == ()
    with FakeLoopd(scene.home, {TurnFollow: script}):
        scene.followers.look()
        scene.until(lambda: [one.session for one in scene.followers.running()] == [session("root")])
        go.set()
        scene.answered()
    assert scene.followers.running() == ()


def test_an_answer_that_cannot_be_prepared_is_told_and_keeps_nothing_waiting(scene: Scene) -> None:
    def breaks(_turn: OpenTurn, _end: Ended) -> tuple[Outgoing, ...]:
        raise ZeroDivisionError

    scene.open("root")
    followers = Followers(attrs.evolve(scene.parts, compose=breaks))
    with FakeLoopd(scene.home, {TurnFollow: tells(ended("words that break us"))}):
        followers.look()
        ((_, message),) = scene.answered()
    assert f"`bxctl sessions show {session('root')}`" in message
    followers.stop()
    assert followers.join(PATIENCE_SECONDS)


def test_following_ends_when_gatewayd_does_and_the_turn_stays_open(scene: Scene) -> None:
    scene.open("root")

    def script(request: Request) -> None:
        request.answer(snapshot(), final=False)
        request.wait_peer(PATIENCE_SECONDS * 1000)
        raise PeerGone("left")

    with FakeLoopd(scene.home, {TurnFollow: script}):
        scene.followers.look()
        scene.until(lambda: len(scene.followers.running()) == 1)
        scene.followers.stop()
        scene.parts.port.stop()
        assert scene.followers.join(PATIENCE_SECONDS)
    assert scene.queue.store.open_turns() == (attrs.evolve(turn("root"), first=False),)


def test_a_turn_that_was_answered_before_a_kill_is_not_answered_twice(scene: Scene) -> None:
    """loopd names the same turn again for a post whose answer is kept already."""
    for _ in range(2):
        scene.open("root")
        with FakeLoopd(scene.home, {TurnFollow: tells(ended("Hi."))}):
            scene.followers.look()
            scene.until(lambda: scene.queue.store.open_turns() == ())
        assert scene.queue.unsent() == [(f"{session('root')}:1:1", "Hi.|None")]
