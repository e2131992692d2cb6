"""Commands are carried out once each, whatever messages wait; an answer to a question is taken once at most."""

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from bxcore.client import PeerAway
from bxcore.errors import UpstreamError
from bxcore.ids import SessionId
from bxcore.wire.channel import LoopStatusReport
from gatewayd.commands import Approve, Deny
from gatewayd.condition import Part
from gatewayd.doing import NOTHING_RUNS, Doing
from gatewayd.entries import Incoming, OpenTurn, State
from gatewayd.faults import MattermostDenied
from tests.fakes import loopd
from tests.fakes.gatequeue import CHANNEL, Queue, command, full_once, post, session, turn
from tests.fakes.inboundplace import until
from tests.fakes.postbox import an_id

PATIENCE_MS = 30_000


@attrs.define
class Turns:
    """Turns of loopd that a test says run."""

    runs: list[SessionId] = attrs.Factory(list)
    stopped: list[SessionId] = attrs.Factory(list)
    raises: UpstreamError | None = None
    status: LoopStatusReport | None = attrs.Factory(loopd.ready)
    breaks: bool = False

    def stop_turn(self, session: SessionId) -> bool:
        if self.raises is not None:
            raise self.raises
        self.stopped.append(session)
        return session in self.runs

    def loop_status(self) -> LoopStatusReport | None:
        if self.breaks:
            raise ZeroDivisionError
        return self.status

    def running(self) -> tuple[OpenTurn, ...]:
        return tuple(turn(thread) for thread in "ab"[: len(self.runs)])


@attrs.define
class Questions:
    """brokerd's questions. `says` is what is to be said about an answer."""

    says: str | None = "taken"
    taken: list[tuple[Incoming, Approve | Deny]] = attrs.Factory(list)
    raises: BaseException | None = None
    before: Callable[[], None] = lambda: None

    def answer(self, incoming: Incoming, command: Approve | Deny) -> str | None:
        self.before()
        self.taken.append((incoming, command))
        if self.raises is not None:
            raise self.raises
        return self.says

    def open_count(self) -> int:
        return 3


@attrs.define(kw_only=True)
class Scene:
    queue: Queue
    turns: Turns
    questions: Questions
    woken: list[int] = attrs.Factory(list)

    def doing(self) -> Doing:
        return Doing(
            store=self.queue.store,
            condition=self.queue.condition,
            turns=self.turns,
            questions=self.questions,
            attempts=3,
            on_outgoing=lambda: self.woken.append(1),
            first_pause_ms=1,
        )

    def do(self, *posts: Incoming) -> list[str]:
        """Carry out commands; return what is said."""
        self.queue.store.accept(posts)
        self.doing().do_all()
        return [message for _, message in self.queue.unsent()]

    def open(self, thread: str, *, channel: str = "channel") -> None:
        one = post(f"{thread}x", thread=thread, channel=an_id(channel))
        self.queue.store.accept([one])
        self.queue.store.asked(one.id, one.session, 1)
        self.turns.runs.append(session(thread))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(queue=Queue(tmp_path), turns=Turns(), questions=Questions())
    yield scene
    scene.queue.store.close()


# -- stop -------------------------------------------------------------------------------------------


def test_stop_in_a_thread_stops_its_turn_and_lets_the_turn_say_so(scene: Scene) -> None:
    scene.open("root")
    scene.open("other")
    assert scene.do(command("!stop", thread="root")) == []
    assert scene.turns.stopped == [session("root")]
    assert scene.queue.store.known(an_id("command")) is State.DONE


def test_stop_at_the_top_of_a_direct_channel_stops_all_that_runs_in_it_and_nothing_else(scene: Scene) -> None:
    scene.open("root")
    scene.open("other")
    scene.open("elsewhere", channel="another")
    (said,) = scene.do(command("!stop"))
    assert sorted(scene.turns.stopped) == sorted([session("root"), session("other")])
    assert said.startswith("Stopped. Turns: 2.")


def test_stop_where_nothing_runs_says_so(scene: Scene) -> None:
    assert scene.do(command("!stop", "a"), command("!stop", "b", thread="root")) == [NOTHING_RUNS] * 2


def test_stop_says_in_the_thread_where_it_was_written(scene: Scene) -> None:
    scene.do(command("!stop", "a"), command("!stop", "b", at=2_000, thread="root"))
    roots = [one.outgoing.root for one in scene.queue.store.unsent()]
    assert roots == [an_id("a"), an_id("root")]


def test_stop_takes_back_what_was_written_before_it_and_not_begun(scene: Scene) -> None:
    scene.queue.store.accept(
        [
            post("root", at=1),
            post("before", at=2, thread="root"),
            post("after", at=2_000, thread="root"),
            post("other", at=3),
        ]
    )
    (said,) = scene.do(command("!stop", thread="root", at=1_000))
    assert "not begun and are dropped: 2." in said
    assert scene.queue.waiting() == [an_id("other"), an_id("after")]


def test_stop_finds_what_is_to_be_taken_back_behind_any_number_of_messages(scene: Scene) -> None:
    scene.queue.store.accept([post(f"p{number}x", at=number, thread="other") for number in range(600)])
    scene.queue.store.accept([post("root", at=700)])
    (said,) = scene.do(command("!stop", thread="root", at=1_000))
    assert "dropped: 1." in said


def test_stop_takes_back_any_number_of_messages_in_one_step(scene: Scene) -> None:
    """Each by itself would take a write to the disk, and `!stop` minutes where much waits."""
    scene.queue.store.accept([post(f"p{number}x", at=number) for number in range(300)])
    begun: list[str] = []
    scene.queue.store._file._database.set_trace_callback(
        lambda statement: begun.append(statement) if statement.startswith("BEGIN") else None
    )
    (said,) = scene.do(command("!stop"))
    assert "dropped: 300." in said
    assert len(begun) < 10


def test_stop_says_that_loopd_is_away(scene: Scene) -> None:
    scene.turns.raises = PeerAway("loopd is not running")
    (said,) = scene.do(command("!stop", thread="root"))
    assert said.startswith("Nothing could be stopped: loopd is not running")


# -- answers to questions -----------------------------------------------------------------------------


def test_a_yes_and_a_no_reach_the_questions_with_their_post_and_what_is_said_is_posted(scene: Scene) -> None:
    said = scene.do(
        command("!approve 7", "yes", thread="root"), command("!deny 8 not now", "no", thread="root", at=2_000)
    )
    assert [taken for _, taken in scene.questions.taken] == [Approve(id=7), Deny(id=8, reason="not now")]
    assert [incoming.id for incoming, _ in scene.questions.taken] == [an_id("yes"), an_id("no")]
    assert said == ["taken", "taken"]


def test_an_answer_about_which_nothing_is_to_be_said_posts_nothing(scene: Scene) -> None:
    scene.questions.says = None
    assert scene.do(command("!approve 7")) == []


def test_a_kill_while_an_answer_takes_effect_loses_it_and_never_doubles_it(scene: Scene) -> None:
    class Killed(BaseException):
        pass

    seen: list[State | None] = []
    scene.questions.before = lambda: seen.append(scene.queue.store.known(an_id("command")))
    scene.questions.raises = Killed()
    with pytest.raises(Killed):
        scene.do(command("!approve 7"))
    scene.queue.again()
    scene.questions.raises = None
    scene.doing().do_all()
    assert seen == [State.DONE]
    assert len(scene.questions.taken) == 1


def test_an_answer_that_could_not_be_taken_says_so(scene: Scene) -> None:
    scene.questions.raises = MattermostDenied("not in that channel", status=403)
    assert scene.do(command("!approve 7")) == ["Your answer was not taken: not in that channel"]


# -- the others ---------------------------------------------------------------------------------------


def test_status_is_a_short_list_of_how_things_are(scene: Scene) -> None:
    scene.open("root")
    scene.queue.store.accept([post("waits")])
    scene.queue.condition.connection(up=True)
    (said,) = scene.do(command("!status"))
    lines = said.splitlines()
    assert lines[0].startswith("- Mattermost: connected since 20")
    assert lines[1:] == [
        "- loopd: ready",
        "- turns running: 1",
        "- questions open: 3",
        "- posts waiting: 1 to be said, 0 to be posted; set aside: 0",
    ]


LOOPD = {
    "away": (None, "does not answer"),
    "not ready": (loopd.ready("the model server"), "waits for the model server"),
}


@pytest.mark.parametrize(("status", "words"), LOOPD.values(), ids=LOOPD.keys())
def test_status_says_what_loopd_waits_for_and_what_is_wrong(
    scene: Scene, status: LoopStatusReport | None, words: str
) -> None:
    scene.turns.status = status
    scene.queue.condition.trouble(Part.LOOP, PeerAway("nobody listens"))
    (said,) = scene.do(command("!status"))
    assert f"- loopd: {words}\n" in said
    assert said.endswith("- wrong now: nobody listens (`peer_away`)")


def test_help_names_every_command(scene: Scene) -> None:
    (said,) = scene.do(command("!help"))
    assert all(word in said for word in ("!stop", "!status", "!approve <id>", "!deny <id> [reason]", "!help", "!!"))


INEXACT = ["!Approve 7", "!approve  7", "! approve 7", "!approve 7 please"]


@pytest.mark.parametrize("text", INEXACT)
def test_what_is_nearly_a_command_is_told_what_its_form_is(scene: Scene, text: str) -> None:
    (said,) = scene.do(command(text))
    assert said.startswith("Not done: this command is written `!approve <id>`, in small letters, with single blanks")


def test_a_mark_without_a_word_is_told_that_one_follows(scene: Scene) -> None:
    (said,) = scene.do(command("! dance"))
    assert said == "Behind `!` its command follows at once. `!help` lists those that there are."


def test_what_is_no_command_is_told_in_one_line(scene: Scene) -> None:
    (said,) = scene.do(command("!dance @all"))
    assert "\n" not in said
    assert "!dance" in said
    assert "@all" not in said


def test_a_command_that_is_written_otherwise_is_told_how(scene: Scene) -> None:
    (said,) = scene.do(command("!approve 7 please"))
    assert "`!approve <id>`" in said
    assert scene.questions.taken == []


def test_a_command_that_breaks_us_each_time_is_set_aside_and_the_next_one_is_done(scene: Scene) -> None:
    scene.queue.store.accept([command("!status", "bad"), command("!help", "good", at=2_000)])
    scene.turns.breaks = True
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            scene.doing().do_all()
        scene.queue.again()
    scene.doing().do_all()
    assert scene.queue.store.known(an_id("bad")) is State.PARKED
    assert scene.queue.store.known(an_id("good")) is State.DONE
    assert scene.queue.unsent()[0][1].startswith("This command failed")


def test_a_command_is_done_in_the_same_step_as_its_answer_is_kept(scene: Scene) -> None:
    scene.do(command("!help"))
    scene.queue.again()
    scene.doing().do_all()
    assert len(scene.queue.unsent()) == 1


def test_a_disk_that_was_full_is_no_trouble_once_it_is_written_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    doing = scene.doing()
    scene.queue.store.accept([command("!help")])
    monkeypatch.setattr(scene.queue.store, "attempted", full_once(scene.queue.store.attempted))
    doing.start()
    until(lambda: scene.woken and scene.queue.trouble() is None)
    doing.stop()
    assert doing.join(PATIENCE_MS)


def test_commands_are_carried_out_when_it_is_woken_and_it_ends_when_it_is_told_to(scene: Scene) -> None:
    doing = scene.doing()
    doing.start()
    scene.queue.store.accept([command("!help")])
    doing.wake()
    while not scene.woken:
        assert not doing.join(1)
    doing.stop()
    assert doing.join(PATIENCE_MS)
    assert len(scene.queue.unsent()) == 1
    assert scene.queue.store.unsent()[0].outgoing.channel == CHANNEL
