"""A question is posted whole, and no post that looks answerable outlives what it asks, whenever we are killed."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bxcore.client import RemoteFault
from bxcore.ids import MattermostId
from bxcore.wire.admin import ApprovalEnding
from gatewayd.commands import Approve, Deny
from gatewayd.entries import Asking, Question, Thread, session_of
from gatewayd.faults import MattermostBusy, TokenRefused
from gatewayd.posts import Post
from gatewayd.questionposts import closed
from gatewayd.questions import RESTARTED
from gatewayd.store import Store
from tests.fakes.gate import ALICE, AWAY, BOB, CHANNEL, CLOCK, DIRECT, EVE, ROOT, Gate, opened
from tests.fakes.postbox import an_id


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


def test_a_direct_message_of_somebody_who_may_not_answer_is_no_place_to_ask(gate: Gate) -> None:
    gate.store.own_thread(Thread(root=ROOT, channel=CHANNEL, direct=True, user=EVE))
    with gate.asked(opened(session=session_of(ROOT))) as asked:
        assert (asked.post.channel, asked.post.root) == (DIRECT, None)


def test_the_thread_of_any_approver_is_a_place_to_ask(gate: Gate) -> None:
    gate.store.own_thread(Thread(root=ROOT, channel=CHANNEL, direct=True, user=BOB))
    with gate.asked(opened(session=session_of(ROOT))) as asked:
        assert (asked.post.channel, asked.post.root) == (CHANNEL, ROOT)


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
    assert gate.condition.worst() is None  # nothing is wrong any more where nobody waits
    assert gate.postbox.made == []
    assert gate.store.unsent() == ()
    assert gate.store.asking() == ()


# -- marked ----------------------------------------------------------------------------------------

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
