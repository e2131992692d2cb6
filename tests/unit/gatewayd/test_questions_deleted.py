"""A question whose posts were deleted is asked again, where it can be answered; a few times, and then it says where."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.ids import MattermostId
from bxcore.wire.admin import ApprovalEnding
from gatewayd import questions
from gatewayd.commands import Approve
from gatewayd.entries import Thread, session_of
from gatewayd.posts import Post
from tests.fakes.gate import ALICE, CHANNEL, DIRECT, ROOT, Gate, opened
from tests.fakes.postbox import an_id

YES = Approve(id=7)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(tmp_path) as made:
        yield made


def delete(gate: Gate, *posts: MattermostId) -> None:
    """Take posts away, and tell of the first one, as the server does."""
    gate.postbox.gone.update(posts)
    gate.questions.deleted(posts[0])


def asked_anew(gate: Gate, count: int) -> Post:
    """Wait for so many posts in all; return the last one once it can be answered."""
    gate.postbox.until(lambda: len(gate.postbox.made) >= count)
    while gate.questions.open_count() == 0:
        gate.settled()
    return gate.postbox.made[count - 1]


def test_a_deleted_question_is_asked_again_and_answered_there(gate: Gate) -> None:
    with gate.asked() as asked:
        delete(gate, asked.post.id)
        again = asked_anew(gate, 2)
        assert (again.message, again.channel) == (asked.post.message, DIRECT)
        assert gate.say(YES, asked.post) is not None
        assert gate.say(YES, again) is None
        assert asked.reply().approve
        asked.tell(ApprovalEnding.APPROVED)
        gate.note()
        gate.settled()
    assert gate.store.questions() == ()
    assert gate.postbox.message(again.id).startswith("**Approved.**")


def test_a_question_whose_thread_was_deleted_is_asked_directly(gate: Gate) -> None:
    gate.store.own_thread(Thread(root=ROOT, channel=CHANNEL, direct=False, user=ALICE))
    with gate.asked(opened(session=session_of(ROOT))) as asked:
        assert asked.post.root == ROOT
        delete(gate, ROOT, asked.post.id)
        again = asked_anew(gate, 2)
        assert (again.root, again.channel) == (None, DIRECT)
        assert gate.say(YES, again) is None
        assert asked.reply().approve


def test_in_a_thread_that_is_there_it_is_asked_again_in_it(gate: Gate) -> None:
    gate.store.own_thread(Thread(root=ROOT, channel=CHANNEL, direct=False, user=ALICE))
    with gate.asked(opened(session=session_of(ROOT))) as asked:
        delete(gate, asked.post.id)
        assert asked_anew(gate, 2).root == ROOT


def test_without_one_of_its_parts_it_is_closed_and_asked_again_whole(gate: Gate) -> None:
    with gate.asked(opened("one", "two", "three")) as asked:
        delete(gate, gate.postbox.made[1].id)
        again = asked_anew(gate, 6)
        gate.settled()
        assert gate.postbox.message(asked.post.id).startswith("**Closed: a post of this question")
        assert [post.message for post in gate.postbox.made[3:]] == ["one", "two", "three"]
        assert gate.say(YES, again) is None


def test_a_post_that_was_deleted_before_we_knew_that_it_is_ours_counts(gate: Gate) -> None:
    delete(gate, an_id("post0x"))
    with gate.asked():
        assert asked_anew(gate, 2).message == "May this run?"


def test_any_other_deleted_post_changes_nothing(gate: Gate) -> None:
    with gate.asked() as asked:
        delete(gate, an_id("elsewhere"))
        assert gate.say(YES, asked.post) is None
        assert asked.reply().approve
    assert len(gate.postbox.made) == 1


def test_after_some_times_it_is_not_asked_again_and_says_where_it_is(gate: Gate) -> None:
    with gate.asked() as asked:
        post = asked.post
        for number in range(questions.ASKED_ANEW):
            delete(gate, post.id)
            post = asked_anew(gate, number + 2)
        delete(gate, post.id)
        assert gate.questions.open_count() == 0
        refusal = gate.say(YES, post)
        assert refusal is not None
        assert "was deleted. `bxctl approvals` shows it" in refusal
        gate.closed(ApprovalEnding.EXPIRED)
    assert len(gate.postbox.made) == questions.ASKED_ANEW + 1
    gate.settled()
    assert gate.store.questions() == ()


def test_a_question_that_was_deleted_unheard_is_looked_for_when_it_is_answered_elsewhere(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.postbox.gone.add(asked.post.id)
        refusal = gate.say(YES, asked.post, thread="elsewhere")
        assert refusal is not None
        assert "`bxctl approvals`" in refusal
        again = asked_anew(gate, 2)
        assert gate.say(YES, again) is None
        assert asked.reply().approve


def test_an_answer_in_the_wrong_thread_leaves_a_question_that_is_there(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.say(YES, asked.post, thread="elsewhere")
        gate.settled()
        assert gate.say(YES, asked.post) is None
    assert len(gate.postbox.made) == 1
