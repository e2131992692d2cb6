"""Each post is said once, in the order of its thread; what loopd does not take is kept, or told, and stops no other."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import attrs
import pytest

from bxcore.deadline import SystemClock
from bxcore.server import PeerGone, Request
from bxcore.wire import channel
from bxcore.wire.channel import UserMessage
from bxcore.wire.control import ErrorCode
from gatewayd.backoff import Backoff
from gatewayd.entries import Incoming, State
from gatewayd.loopport import LoopPort
from gatewayd.saying import Sayer, Says
from tests.fakes import loopd
from tests.fakes.gatequeue import Queue, post, session, settings
from tests.fakes.loopd import FakeLoopd, Script, refuses
from tests.fakes.postbox import an_id

PATIENCE_MS = 30_000


def accepts(request: Request) -> None:
    """Take a message, and see the client leave, as the sayer does."""
    request.answer(loopd.accepted(request), final=False)
    request.wait_peer(PATIENCE_MS)
    raise PeerGone("said")


def by_text(scripts: dict[str, Script], otherwise: Script = accepts) -> Script:
    """Answer a message by what it says."""

    def script(request: Request) -> None:
        assert isinstance(request.message, UserMessage)
        scripts.get(request.message.text, otherwise)(request)

    return script


def in_turn(*scripts: Script) -> Script:
    """Answer with one script after the other, with the last one for ever."""
    left = list(scripts)

    def script(request: Request) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(request)

    return script


@attrs.frozen(kw_only=True)
class Scene:
    """A sayer whose rounds a test runs itself."""

    home: Path
    queue: Queue
    sayer: Sayer
    looks: list[int]
    outgoing: list[int]

    def rounds(self, most: int = 20) -> int:
        """Say what waits as the sayer's thread would, without the pauses; return how many rounds it took."""
        for number in range(1, most + 1):
            if self.sayer._tried():
                return number
        return most + 1

    def turns(self) -> list[tuple[str, int]]:
        return [(turn.session, turn.turn) for turn in self.queue.store.open_turns()]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    queue = Queue(tmp_path)
    port = LoopPort(settings(tmp_path).loop.socket, SystemClock())
    looks: list[int] = []
    outgoing: list[int] = []
    says = Says(
        store=queue.store,
        port=port,
        condition=queue.condition,
        look=lambda: looks.append(1),
        attempts=3,
        pauses=Backoff(1, 2, Random(1).random),
        on_outgoing=lambda: outgoing.append(1),
    )
    yield Scene(home=tmp_path, queue=queue, sayer=Sayer(says), looks=looks, outgoing=outgoing)
    port.close()
    queue.store.close()


def said(fake: FakeLoopd) -> list[tuple[str, str, bool, str]]:
    return [(message.session, message.key, message.new, message.text) for message in fake.of(UserMessage)]


def test_a_post_that_begins_its_thread_makes_the_session_and_a_reply_goes_on_with_it(scene: Scene) -> None:
    scene.queue.store.accept([post("root"), post("reply", at=1, thread="root", text="More")])
    with FakeLoopd(scene.home, {UserMessage: accepts}) as fake:
        assert scene.rounds() == 1
    assert said(fake) == [
        (session("root"), an_id("root"), True, "Hello"),
        (session("root"), an_id("reply"), False, "More"),
    ]
    assert scene.turns() == [(session("root"), 1)]
    assert scene.queue.waiting() == []
    assert scene.looks


def test_posts_of_all_threads_are_said_oldest_first(scene: Scene) -> None:
    posts = [post(f"p{number}x", at=number) for number in range(600)]
    scene.queue.store.accept([*posts[300:], *posts[:300]])
    with FakeLoopd(scene.home, {UserMessage: accepts}) as fake:
        assert scene.rounds() == 1
    assert [key for _, key, _, _ in said(fake)] == [one.id for one in posts]


WRONG = {
    "a thread whose session is there already": (post("root"), ErrorCode.SESSION_EXISTS, [True, False]),
    "a reply whose session is not there": (post("reply", thread="root"), ErrorCode.NO_SESSION, [False, True]),
}


@pytest.mark.parametrize(("one", "code", "asked"), WRONG.values(), ids=WRONG.keys())
def test_a_session_that_is_not_as_expected_costs_one_more_request(
    scene: Scene, one: Incoming, code: ErrorCode, asked: list[bool]
) -> None:
    scene.queue.store.accept([one])
    with FakeLoopd(scene.home, {UserMessage: in_turn(refuses(code, "no"), accepts)}) as fake:
        assert scene.rounds() == 1
    assert [new for _, _, new, _ in said(fake)] == asked
    assert scene.turns() == [(session("root"), 1)]


def test_the_two_ways_of_saying_are_tried_once_each(scene: Scene) -> None:
    scene.queue.store.accept([post("root")])
    script = in_turn(refuses(ErrorCode.SESSION_EXISTS, "no"), refuses(ErrorCode.NO_SESSION, "no"))
    with FakeLoopd(scene.home, {UserMessage: script}) as fake:
        scene.sayer._tried()
        assert [new for _, _, new, _ in said(fake)] == [True, False]
    assert scene.queue.waiting() == [an_id("root")]


def test_a_poison_post_is_set_aside_after_three_tries_and_told_and_stops_no_other_thread(scene: Scene) -> None:
    """C and neighbours' bugs, statement 21: attempts are counted, then the post is parked and reported."""
    scene.queue.store.accept([post("bad", text="Poison"), post("good", at=1), post("later", at=2, thread="bad")])
    script = by_text({"Poison": refuses(ErrorCode.SESSION_DAMAGED, "a secret detail")})
    with FakeLoopd(scene.home, {UserMessage: script}) as fake:
        assert scene.sayer._tried() is False
        assert scene.turns() == [(session("good"), 1)]
        assert scene.queue.unsent() == []
        assert scene.rounds() == 2
    assert [text for _, _, _, text in said(fake)].count("Poison") == 3
    assert scene.queue.store.known(an_id("bad")) is State.PARKED
    ((key, message),) = scene.queue.unsent()
    assert key == f"unsaid:{an_id('bad')}"
    assert message.startswith("*The record of this conversation is damaged")
    assert "secret" not in message
    assert scene.queue.store.known(an_id("later")) is State.ASKED
    assert scene.outgoing


def test_tries_are_counted_over_restarts(scene: Scene, tmp_path: Path) -> None:
    scene.queue.store.accept([post("bad")])
    assert [scene.queue.store.attempted(an_id("bad")) for _ in range(2)] == [1, 2]
    with FakeLoopd(scene.home, {UserMessage: refuses(ErrorCode.STATE_UNREADABLE, "no")}) as fake:
        assert scene.rounds() == 1
    assert len(said(fake)) == 1
    assert scene.queue.store.known(an_id("bad")) is State.PARKED


def test_a_text_that_no_try_makes_shorter_is_set_aside_at_once(scene: Scene) -> None:
    scene.queue.store.accept([post("long")])
    with FakeLoopd(scene.home, {UserMessage: refuses(ErrorCode.TEXT_TOO_LONG, "no")}) as fake:
        assert scene.rounds() == 1
    assert len(said(fake)) == 1
    assert "longer than Boxmaker takes" in scene.queue.unsent()[0][1]


def at_work(scene: Scene, thread: str) -> None:
    """A turn of the thread runs."""
    one = post(f"{thread}0x", at=-1, thread=thread)
    scene.queue.store.accept([one])
    scene.queue.store.asked(one.id, one.session, 1)


def test_a_loopd_without_room_is_asked_once_a_round_and_by_those_who_have_a_place(scene: Scene) -> None:
    at_work(scene, "first")
    threads = [post(f"t{number}x", at=number) for number in range(500)]
    scene.queue.store.accept([*threads, post("more", at=600, thread="first")])
    with FakeLoopd(scene.home, {UserMessage: by_text({}, in_turn(refuses(ErrorCode.TOO_BUSY, "no"), accepts))}) as fake:
        assert scene.sayer._tried() is False
        assert [key for _, key, _, _ in said(fake)] == [threads[0].id, an_id("more")]
        assert scene.rounds() == 1
    assert len(said(fake)) == 502


def test_a_loopd_without_room_for_connections_ends_the_round(scene: Scene) -> None:
    for number in range(9):
        at_work(scene, f"w{number}x")
    waiting = [post(f"more{number}x", at=number, thread=f"w{number}x") for number in range(9)]
    scene.queue.store.accept([post("new", at=-1), *waiting])
    with FakeLoopd(scene.home, {UserMessage: refuses(ErrorCode.TOO_BUSY, "no")}) as fake:
        assert scene.sayer._tried() is False
    assert [key for _, key, _, _ in said(fake)] == [an_id("new"), an_id("more0x")]
    assert scene.queue.trouble() == "too_busy"


@pytest.mark.parametrize(
    "code", [ErrorCode.TOO_BUSY, ErrorCode.STATE_UNWRITABLE, ErrorCode.STATE_IN_USE], ids=lambda code: code.value
)
def test_a_session_that_cannot_now_keeps_its_posts_in_order_and_others_go_on(scene: Scene, code: ErrorCode) -> None:
    at_work(scene, "busy")
    scene.queue.store.accept([post("busy"), post("next", at=1, thread="busy"), post("other", at=2)])
    script = in_turn(refuses(code, "no"), accepts)
    with FakeLoopd(scene.home, {UserMessage: script}) as fake:
        assert scene.sayer._tried() is False
        assert [key for _, key, _, _ in said(fake)] == [an_id("busy"), an_id("other")]
        assert scene.rounds() == 1
    assert [key for _, key, _, _ in said(fake)][2:] == [an_id("busy"), an_id("next")]
    assert [one.attempts for one in scene.queue.store.waiting()] == []
    assert scene.queue.unsent() == []


def test_a_loopd_that_is_not_ready_costs_no_post_a_try_and_shows(scene: Scene) -> None:
    scene.queue.store.accept([post("a"), post("b", at=1)])
    with FakeLoopd(scene.home, {UserMessage: in_turn(refuses(ErrorCode.NOT_READY, "waits"), accepts)}) as fake:
        assert scene.sayer._tried() is False
        assert scene.queue.trouble() == "not_ready"
        assert [one.attempts for one in scene.queue.store.waiting()] == [0, 0]
        assert len(said(fake)) == 1
        assert scene.rounds() == 1
    assert scene.queue.trouble() is None
    assert len(scene.turns()) == 2


def test_while_loopd_is_away_everything_is_kept_and_later_said(scene: Scene) -> None:
    scene.queue.store.accept([post("a"), post("b", at=1)])
    assert scene.rounds(5) == 6
    assert scene.queue.trouble() == "peer_away"
    with FakeLoopd(scene.home, {UserMessage: accepts}):
        assert scene.rounds() == 1
    assert scene.queue.trouble() is None
    assert scene.queue.waiting() == []


def test_where_nothing_waits_for_a_loopd_that_was_away_nothing_is_wrong_any_more(scene: Scene) -> None:
    scene.queue.store.accept([post("a")])
    scene.rounds(1)
    assert scene.queue.trouble() == "peer_away"
    scene.queue.store.take_back(an_id("a"))
    assert scene.rounds() == 1
    assert scene.queue.trouble() is None


def hangs_up(request: Request) -> None:
    """Leave without an answer, as a loopd does that is killed."""
    raise PeerGone("killed")


def test_a_loopd_that_dies_of_a_post_does_not_keep_other_threads_waiting(scene: Scene) -> None:
    scene.queue.store.accept([post("bad", text="Poison"), post("good", at=1)])
    with FakeLoopd(scene.home, {UserMessage: by_text({"Poison": hangs_up})}):
        assert scene.sayer._tried() is False
        assert scene.turns() == [(session("good"), 1)]
        assert scene.queue.waiting() == [an_id("bad")]


def test_a_loopd_that_answers_nobody_is_not_asked_by_every_post(scene: Scene) -> None:
    scene.queue.store.accept([post(f"p{number}x", at=number) for number in range(20)])
    with FakeLoopd(scene.home, {UserMessage: hangs_up}) as fake:
        assert scene.sayer._tried() is False
        assert len(said(fake)) == 3
    assert scene.queue.trouble() == "peer_gone"
    assert len(scene.queue.waiting()) == 20


def test_what_was_said_and_not_noted_is_said_again_under_the_same_key(scene: Scene) -> None:
    """A kill between loopd's answer and ours."""
    scene.queue.store.accept([post("root")])
    with FakeLoopd(scene.home, {UserMessage: accepts}) as fake:
        scene.sayer._accepted(scene.queue.store.waiting()[0])
        scene.queue.again()
        says = attrs.evolve(scene.sayer._parts, store=scene.queue.store)
        assert Sayer(says)._tried() is True
        assert [key for _, key, _, _ in said(fake)] == [an_id("root"), an_id("root")]
    assert scene.turns() == [(session("root"), 1)]


def test_a_sayer_that_waits_ends_when_it_is_told_to(scene: Scene) -> None:
    scene.sayer.start()
    scene.sayer.wake()
    scene.sayer.stop()
    assert scene.sayer.join(PATIENCE_MS)


def test_a_wait_for_loopd_ends_when_gatewayd_does(scene: Scene) -> None:
    def says_nothing(request: Request) -> None:
        request.wait_peer(PATIENCE_MS)
        raise PeerGone("left")

    scene.queue.store.accept([post("root")])
    with FakeLoopd(scene.home, {UserMessage: says_nothing}) as fake:
        scene.sayer.start()
        scene.sayer.wake()
        fake.wait(UserMessage)
        scene.sayer.stop()
        scene.sayer._parts.port.stop()
        assert scene.sayer.join(PATIENCE_MS)
    assert scene.queue.waiting() == [an_id("root")]


def test_what_was_taken_back_since_it_was_read_is_not_said(scene: Scene) -> None:
    scene.queue.store.accept([post("first", text="takes back"), post("second", at=1)])

    def takes_back(request: Request) -> None:
        scene.queue.store.settle(an_id("second"), State.DONE)
        accepts(request)

    with FakeLoopd(scene.home, {UserMessage: by_text({"takes back": takes_back})}) as fake:
        assert scene.rounds() == 1
        assert [key for _, key, _, _ in said(fake)] == [an_id("first")]


def test_what_was_taken_back_while_it_was_said_has_its_turn_stopped_and_answered(scene: Scene) -> None:
    """C2."""
    scene.queue.store.accept([post("root")])

    def takes_back(request: Request) -> None:
        scene.queue.store.settle(an_id("root"), State.DONE)
        accepts(request)

    noted = channel.TurnCancelNoted(session=session("root"), turn=1)
    with FakeLoopd(scene.home, {UserMessage: takes_back, channel.TurnCancel: loopd.replies(noted)}) as fake:
        assert scene.rounds() == 1
        assert fake.of(channel.TurnCancel) == [channel.TurnCancel(session=session("root"), turn=1)]
    assert scene.turns() == [(session("root"), 1)]
