"""A question is posted whole, answered by the first approver in its own thread, and says truly how it ended."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bxcore import listener
from bxcore.client import Connection, RemoteFault
from bxcore.deadline import SystemClock
from bxcore.envelope import Envelope
from bxcore.ids import MattermostId, SessionId
from bxcore.server import Door, Server
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.approvals import ApprovalClosed, ApprovalNoted, ApprovalOpen, ApprovalPosted, ApprovalReply
from gatewayd.commands import Approve, Deny
from gatewayd.condition import Condition
from gatewayd.entries import Asking, Incoming, Kind, Question, Thread, session_of
from gatewayd.faults import MattermostAway, MattermostBusy, TokenRefused
from gatewayd.posts import Post
from gatewayd.questionposts import World, closed
from gatewayd.questions import MOVES, RESTARTED, Questions, State, ended
from gatewayd.store import Store
from tests.fakes.postbox import BOT, Postbox, an_id, direct

CLOCK = SystemClock()
ALICE, BOB, EVE = an_id("alice"), an_id("bob"), an_id("eve")
ROOT, CHANNEL = an_id("root"), an_id("channel")
DIRECT = direct(BOT.id, ALICE).id
S = SessionId("s")
PATIENCE_SECONDS, PATIENCE_MS = 60, 60_000
AWAY = MattermostAway("no connection")


class Gate:
    """Questions behind a real gateway.sock. `opened` asks as brokerd does, on a connection of its own."""

    def __init__(self, home: Path, *, untold_ms: int = PATIENCE_MS) -> None:
        self.postbox = Postbox()
        (home / "state").mkdir(exist_ok=True)
        self.store = Store.open(home / "state", CLOCK)
        self.woken = threading.Event()
        self.condition = Condition(CLOCK)
        world = World(
            store=self.store,
            api=self.postbox.api,
            condition=self.condition,
            clock=CLOCK,
            retry_most_ms=1,
            bot=lambda: BOT.id,
        )
        self.questions = Questions(
            world, approvers=(ALICE, BOB), on_outgoing=self.woken.set, look_ms=5, untold_ms=untold_ms
        )
        (home / "gateway").mkdir(mode=0o750, exist_ok=True)
        self._listening = listener.open_socket(home / "gateway" / "gateway.sock")
        door = Door(listening=self._listening, name="gateway", handlers=self.questions.handlers())
        self._server = Server([door], clock=CLOCK)
        self._thread = threading.Thread(target=self._serve)
        self._times = itertools.count()

    def _serve(self) -> None:
        self._server.serve(before_drain=self.questions.stop)

    def __enter__(self) -> "Gate":
        self.questions.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        assert self.questions.join(PATIENCE_MS)
        self._listening.close()
        self.store.close()
        assert self.postbox.opened == 0  # every connection to the server was given back

    def dial(self) -> Connection:
        return Connection(self._listening.path, clock=CLOCK)

    @contextmanager
    def asking(self, message: ApprovalOpen | None = None) -> Iterator[tuple[Connection, Iterator[Envelope]]]:
        with self.dial() as connection:
            yield connection, connection.request(message or opened(), idle_ms=PATIENCE_MS)

    @contextmanager
    def asked(self, message: ApprovalOpen | None = None) -> Iterator["Asked"]:
        """A question that can be read."""
        with self.asking(message) as (connection, answers):
            posted = next(answers).msg
            assert isinstance(posted, ApprovalPosted)
            [post] = [one for one in self.postbox.made if one.id == posted.post]
            yield Asked(connection, answers, post)

    def closed(self, ending: ApprovalEnding, detail: str = "", *, number: int = 7) -> None:
        """brokerd says on a second connection how a question ended."""
        with self.dial() as connection:
            tell(connection, ending, detail, number=number)

    def say(
        self, text: Approve | Deny, post: Post, *, user: MattermostId = ALICE, before: int = 0, thread: str = ""
    ) -> str | None:
        """Answer in the thread of a post; return what is said against it."""
        number = next(self._times)
        incoming = Incoming(
            id=an_id(f"say{number}x"),
            channel=post.channel,
            thread=an_id(thread) if thread else post.thread,
            user=user,
            create_at=Timestamp(post.create_at - before),
            kind=Kind.COMMAND,
            direct=True,
            text="",
        )
        return self.questions.answer(incoming, text)

    def note(self) -> str:
        """Return the one thing that is to be said in a thread, waiting for it."""
        assert self.woken.wait(PATIENCE_SECONDS)
        [unsent] = self.store.unsent()
        return unsent.outgoing.message

    def marked(self, post: MattermostId) -> str:
        """Return what a post says once it says that it is over."""
        self.postbox.until(lambda: "patch_post" in self.postbox.calls)
        self.settled()
        return self.postbox.message(post)

    def settled(self) -> None:
        """Wait until all that was begun in the background is done."""
        done = threading.Event()
        self.questions._marking.put(lambda _: done.set())
        assert done.wait(PATIENCE_SECONDS)


class Asked:
    def __init__(self, connection: Connection, answers: Iterator[Envelope], post: Post) -> None:
        self.connection, self.answers, self.post = connection, answers, post

    def reply(self) -> ApprovalReply:
        answer = next(self.answers)
        assert isinstance(answer.msg, ApprovalReply)
        assert answer.final
        assert list(self.answers) == []
        return answer.msg

    def tell(self, ending: ApprovalEnding, detail: str = "") -> None:
        tell(self.connection, ending, detail)


def tell(connection: Connection, ending: ApprovalEnding, detail: str, *, number: int = 7) -> None:
    [noted] = connection.request(ApprovalClosed(id=number, ending=ending, detail=detail), idle_ms=PATIENCE_MS)
    assert isinstance(noted.msg, ApprovalNoted)
    assert noted.final


def opened(*parts: str, number: int = 7, session: SessionId = S, answerable: bool = True) -> ApprovalOpen:
    return ApprovalOpen(
        id=number,
        session=session,
        opened=CLOCK.now_ms(),
        expires=CLOCK.now_ms(),
        parts=parts or ("May this run?",),
        answerable=answerable,
    )


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(tmp_path) as made:
        yield made


YES, NO = Approve(id=7), Deny(id=7, reason=None)


# -- posted -----------------------------------------------------------------------------------------


def test_a_question_of_a_thread_is_posted_in_that_thread_as_brokerd_wrote_it(gate: Gate) -> None:
    gate.store.own_thread(Thread(root=ROOT, channel=CHANNEL, direct=False, user=ALICE))
    with gate.asked(opened("all of *it*", session=session_of(ROOT))) as asked:
        assert (asked.post.channel, asked.post.root, asked.post.message) == (CHANNEL, ROOT, "all of *it*")
        assert asked.post.props["unsafe_links"] == "true"
        assert asked.post.props["boxmaker"].startswith("question:7:")


def test_a_question_of_any_other_session_is_posted_to_the_first_approver(gate: Gate) -> None:
    with gate.asked() as asked:
        assert (asked.post.channel, asked.post.root) == (DIRECT, None)


def test_a_thread_that_nobody_knows_is_no_place_to_ask(gate: Gate) -> None:
    with gate.asked(opened(session=session_of(ROOT))) as asked:
        assert asked.post.channel == DIRECT


def test_parts_are_one_thread_in_order_and_the_last_is_answered(gate: Gate) -> None:
    with gate.asked(opened("one", "two", "three")) as asked:
        assert [post.message for post in gate.postbox.made] == ["one", "two", "three"]
        assert {post.thread for post in gate.postbox.made} == {gate.postbox.made[0].id}
        assert asked.post.message == "three"
        assert gate.say(YES, asked.post) is None
        assert asked.reply().approve


def test_where_the_thread_is_gone_the_approver_is_asked_directly(gate: Gate) -> None:
    gate.store.own_thread(Thread(root=ROOT, channel=CHANNEL, direct=False, user=ALICE))
    gate.postbox.gone.add(ROOT)
    with gate.asked(opened("one", "two", session=session_of(ROOT))) as asked:
        assert asked.post.channel == DIRECT
    assert gate.store.asking() == ()


@pytest.mark.parametrize(
    "fault", [AWAY, TokenRefused("no", status=401), MattermostBusy("slow", status=429, retry_ms=1)], ids=str
)
def test_g15_a_server_that_is_away_is_waited_for_and_that_shows(gate: Gate, fault: Exception) -> None:
    gate.postbox.raises["create_post"] = [fault, fault]
    with gate.asked() as asked:
        assert asked.post.message == "May this run?"
    assert gate.postbox.calls.count("create_post") == 3
    assert gate.condition.worst() is None


def test_a_post_whose_answer_was_lost_is_found_and_not_made_twice(gate: Gate) -> None:
    gate.postbox.loses["create_post"] = [AWAY]
    with gate.asked(opened("one", "two")) as asked:
        assert [post.message for post in gate.postbox.made] == ["one", "two"]
        assert gate.store.questions()[0].post == asked.post.id


def test_a_question_that_is_closed_while_it_waits_to_be_posted_is_never_posted(gate: Gate) -> None:
    gate.postbox.raises["create_post"] = [AWAY] * 10_000_000
    with gate.asking() as (_, answers):
        gate.postbox.until(lambda: "create_post" in gate.postbox.calls)
        gate.closed(ApprovalEnding.APPROVED)
        with pytest.raises(RemoteFault, match="closed"):
            next(answers)
    gate.postbox.raises.clear()
    gate.settled()
    assert gate.postbox.made == []
    assert gate.store.unsent() == ()
    assert gate.store.asking() == ()


# -- answered ---------------------------------------------------------------------------------------


def test_the_answer_of_an_approver_goes_to_brokerd_with_its_post(gate: Gate) -> None:
    with gate.asked() as asked:
        assert gate.questions.open_count() == 1
        assert gate.say(Deny(id=7, reason="not on\na  Sunday" + "!" * 400), asked.post, user=BOB) is None
        reply = asked.reply()
    assert (reply.approve, reply.approver, reply.post) == (False, BOB, an_id("say0x"))
    assert reply.reason is not None
    assert reply.reason.startswith("not on a Sunday!")
    assert len(reply.reason) == 300


def test_a_yes_carries_no_reason(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.say(YES, asked.post)
        assert asked.reply() == ApprovalReply(approve=True, approver=ALICE, post=an_id("say0x"), reason=None)


def test_g9_n9_whoever_is_no_approver_is_refused_and_changes_nothing(gate: Gate) -> None:
    with gate.asked() as asked:
        assert gate.say(YES, asked.post, user=EVE) == "You may not answer approvals."
        assert gate.questions.open_count() == 1


REFUSED = {
    "in another thread": ({"thread": "elsewhere"}, YES, "in the thread where it was asked"),
    "before it could be read": ({"before": 1}, YES, "before approval 7 could be read"),
    "of another number": ({}, Approve(id=8), "No approval 8 is open here"),
    "a no to another number": ({}, Deny(id=8, reason=None), "No approval 8 is open here"),
}


@pytest.mark.parametrize(("how", "command", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_g9_an_answer_that_is_not_to_this_question_is_refused_and_it_stays_open(
    gate: Gate, how: dict[str, int], command: Approve | Deny, why: str
) -> None:
    with gate.asked() as asked:
        refusal = gate.say(command, asked.post, **how)  # type: ignore[arg-type]  # a table
        assert refusal is not None
        assert why in refusal
        assert gate.questions.open_count() == 1


def test_g8_two_questions_are_answered_each_by_its_own_number_in_its_own_thread(gate: Gate) -> None:
    with gate.asked() as first, gate.asked(opened(number=8)) as second:
        assert gate.say(YES, second.post) is not None
        assert gate.say(Approve(id=8), second.post) is None
        assert second.reply().approve
        assert gate.say(NO, first.post) is None
        assert not first.reply().approve


def test_the_first_answer_wins_and_the_second_is_told(gate: Gate) -> None:
    with gate.asked() as asked:
        assert gate.say(NO, asked.post) is None
        refusal = gate.say(YES, asked.post, user=BOB)
        assert refusal is not None
        assert "the first answer counts" in refusal
        assert not asked.reply().approve


def test_of_many_answers_at_once_exactly_one_is_taken(gate: Gate) -> None:
    with gate.asked() as asked:
        taken: list[str | None] = []
        threads = [threading.Thread(target=lambda: taken.append(gate.say(YES, asked.post))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert taken.count(None) == 1
        assert asked.reply().approve


def test_g12_what_is_too_long_for_a_chat_cannot_be_answered_there(gate: Gate) -> None:
    with gate.asked(opened("too long", answerable=False)) as asked:
        refusal = gate.say(YES, asked.post)
        assert refusal is not None
        assert "`bxctl approve 7`" in refusal
        assert gate.questions.open_count() == 0


def test_a_question_that_is_over_is_answered_by_nobody(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.closed(ApprovalEnding.EXPIRED)
        refusal = gate.say(YES, asked.post)
        assert refusal is not None
        assert "No approval 7 is open here" in refusal


# -- ended ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ApprovalEnding, ids=lambda ending: ending.value)
def test_every_ending_has_words_for_the_thread_and_for_the_post(ending: ApprovalEnding) -> None:
    said = ended(ApprovalClosed(id=7, ending=ending, detail="why"))
    assert said.headline.endswith(".")
    assert said.note.endswith("(why).")


def test_what_came_of_an_answer_is_said_in_the_thread_and_the_post_is_marked(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.say(YES, asked.post)
        asked.reply()
        asked.tell(ApprovalEnding.APPROVED)
        assert gate.note() == "Approval 7: approved; the call runs once."
        assert gate.store.unsent()[0].outgoing.root == asked.post.thread
        assert gate.marked(asked.post.id).startswith("**Approved.**")
        [post] = [one for one in gate.postbox.made if one.id == asked.post.id]
        assert post.props["unsafe_links"] == "true"
        assert gate.store.questions() == ()


def test_g6_a_yes_that_was_denied_after_all_says_so_with_its_reason_escaped(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.say(YES, asked.post)
        asked.reply()
        asked.tell(ApprovalEnding.DENIED_NOW, "no_grant: ![x](https://evil.example.com) @all")
        note = gate.note()
    assert note.startswith("Approval 7: denied after all; nothing runs (")
    assert "![" not in note
    assert "@all" not in note


def test_the_loser_is_told_that_it_was_answered_elsewhere_first(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.say(YES, asked.post)
        asked.reply()
        asked.tell(ApprovalEnding.NOT_PENDING, "it had ended as refused")
        assert "came too late and changed nothing (it had ended as refused)" in gate.note()


def test_answered_with_bxctl_it_says_so_and_is_over(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.closed(ApprovalEnding.REFUSED, "answered with bxctl")
        assert gate.note() == "Approval 7: refused; nothing runs (answered with bxctl)."
        assert gate.marked(asked.post.id).startswith("**Refused.**")


def test_g16_n10_a_connection_that_closes_without_a_word_withdraws_the_post(gate: Gate) -> None:
    with gate.asked() as asked:
        pass
    assert gate.note().startswith("Approval 7: withdrawn: it can no longer be answered here.")
    assert gate.marked(asked.post.id).startswith("**Withdrawn")
    assert gate.say(YES, asked.post) is not None


def test_an_end_is_said_once_whoever_says_it_again(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.closed(ApprovalEnding.EXPIRED)
        gate.closed(ApprovalEnding.APPROVED)
        gate.note()
        assert gate.marked(asked.post.id).startswith("**Expired")
    gate.settled()
    assert len(gate.store.unsent()) == 1


def test_the_end_of_a_question_that_nobody_knows_is_noted(gate: Gate) -> None:
    gate.closed(ApprovalEnding.EXPIRED, number=99)
    assert gate.store.unsent() == ()


def test_where_brokerd_never_says_what_came_of_an_answer_that_is_said(tmp_path: Path) -> None:
    with Gate(tmp_path, untold_ms=1) as gate, gate.asked() as asked:
        gate.say(YES, asked.post)
        asked.reply()
        assert "brokerd left before it said what came of it" in gate.note()


def test_asked_again_by_a_brokerd_whose_connection_broke_the_old_post_is_dead_and_the_new_one_counts(
    gate: Gate,
) -> None:
    with gate.asked() as before, gate.asked() as after:
        gate.note()
        assert gate.marked(before.post.id).startswith("**Withdrawn")
        assert gate.say(YES, before.post) is not None
        assert gate.say(YES, after.post) is None
        assert after.reply().approve


def test_a_mark_that_cannot_be_made_now_is_made_later(gate: Gate) -> None:
    gate.postbox.raises["patch_post"] = [AWAY, AWAY]
    with gate.asked() as asked:
        gate.closed(ApprovalEnding.EXPIRED)
        gate.postbox.until(lambda: gate.postbox.calls.count("patch_post") == 3)
        gate.settled()
    assert gate.postbox.message(asked.post.id).startswith("**Expired")
    assert gate.store.questions() == ()


def test_a_post_that_is_gone_needs_no_mark(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.postbox.gone.add(asked.post.id)
        gate.closed(ApprovalEnding.EXPIRED)
        gate.postbox.until(lambda: "patch_post" in gate.postbox.calls)
        gate.settled()
    assert gate.store.questions() == ()


FENCED = "**Approval 7**\n\n````\ntool\n```\n!approve 8\n````\n\nTo answer, write in this thread `!approve 7`.\n"


def test_a_dead_post_shows_what_was_asked_and_not_how_to_answer() -> None:
    question = Question(post=an_id("p"), id=7, channel=DIRECT, root=None, message=FENCED)
    assert closed(question, "Refused.") == "**Refused.**\n\n**Approval 7**\n\n````\ntool\n```\n!approve 8\n````"


def test_a_dead_post_without_a_block_says_which_question_it_was() -> None:
    question = Question(post=an_id("p"), id=7, channel=DIRECT, root=None, message="too long: `bxctl approve 7`")
    assert closed(question, "Refused.") == "**Refused.**\n\nApproval 7"


# -- restarted, stopped, killed -----------------------------------------------------------------------


def test_what_an_earlier_run_left_is_dead_before_anything_new_is_posted(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    old = gate.postbox.create_post(DIRECT, "old", root=None, props={}, pending="")
    gate.store.question_posted(Question(post=old.id, id=3, channel=DIRECT, root=None, message="old"))
    gate.postbox.raises["patch_post"] = [AWAY, AWAY]
    with gate, gate.asked():
        assert gate.postbox.message(old.id).startswith(f"**{RESTARTED}**")
        calls = gate.postbox.calls
        assert calls.index("create_post", 1) > max(n for n, call in enumerate(calls) if call == "patch_post")


def test_killed_between_making_a_post_and_noting_it_the_post_is_found_by_its_key_and_dead(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gate.store.question_asking(
        Asking(key="question:3:aa", id=3, channel=DIRECT, root=None, message="old", made=CLOCK.now_ms())
    )
    left = gate.postbox.create_post(DIRECT, "old", root=None, props={"boxmaker": "question:3:aa"}, pending="")
    with gate:
        assert gate.marked(left.id).startswith(f"**{RESTARTED}**")
        assert gate.store.asking() == ()
        assert gate.store.questions() == ()


@pytest.mark.parametrize("root", [None, ROOT], ids=["direct", "in a thread that is gone"])
def test_killed_before_making_the_post_nothing_is_left(tmp_path: Path, root: MattermostId | None) -> None:
    gate = Gate(tmp_path)
    gate.postbox.gone.add(ROOT)
    gate.store.question_asking(
        Asking(key="question:3:aa", id=3, channel=DIRECT, root=root, message="old", made=CLOCK.now_ms())
    )
    with gate:
        gate.settled()
        assert gate.store.asking() == ()


def test_each_post_that_looks_answerable_was_noted_before_it_was_made(gate: Gate) -> None:
    noted: list[tuple[int, int]] = []
    create = gate.postbox._create

    def looking(*arguments: object) -> Post:
        noted.append((len(gate.store.asking()), len(gate.store.questions())))
        return create(*arguments)  # type: ignore[arg-type]  # passed on

    gate.postbox._create = looking  # type: ignore[assignment]
    with gate.asked(opened("one", "two")):
        assert noted == [(0, 0), (1, 0)]
        assert (gate.store.asking(), len(gate.store.questions())) == ((), 1)


def test_stopped_with_open_questions_every_worker_ends_and_the_next_start_marks_them(tmp_path: Path) -> None:
    with Gate(tmp_path) as gate, gate.asked() as asked:
        gate._server.stop()
        with pytest.raises(RemoteFault, match="stops"):
            next(asked.answers)
    with closing(Store.open(tmp_path / "state", CLOCK)) as store:
        assert [question.post for question in store.questions()] == [asked.post.id]


def test_the_states_of_a_question_only_go_forward() -> None:
    order = list(State)
    assert all(order.index(after) > order.index(before) for before, allowed in MOVES.items() for after in allowed)
    assert MOVES[State.OVER] == frozenset()
