"""A question is answered by the first approver in its own thread, and says truly how it ended."""

import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from bxcore.client import RemoteFault
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.approvals import ApprovalClosed, ApprovalReply
from gatewayd import questions
from gatewayd.commands import Approve, Deny
from gatewayd.questions import MOVES, State, ended
from tests.fakes.gate import ALICE, AWAY, BOB, EVE, Gate, opened
from tests.fakes.postbox import an_id


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(tmp_path) as made:
        yield made


YES, NO = Approve(id=7), Deny(id=7, reason=None)


def test_a_question_without_a_text_is_refused(gate: Gate) -> None:
    with gate.asking(attrs.evolve(opened(), parts=())) as (_, answers), pytest.raises(RemoteFault) as refused:
        next(answers)
    assert refused.value.code == "bad_message"
    assert gate.postbox.made == []


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
        assert gate.say(YES, asked.post, user=EVE) == "You are not among those who may answer this question."
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
        assert refusal.endswith("this answer changed nothing. Expired: nobody answered in time.")


def test_a_late_answer_is_told_how_it_ended_in_words_that_quote_nobody(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.say(YES, asked.post)
        asked.reply()
        asked.tell(ApprovalEnding.DENIED_NOW, "words of somebody else's thread")
        gate.note()
    said = [gate.say(command, asked.post, user=BOB, thread="elsewhere") for command in (YES, NO)]
    assert said == ["Approval 7 is not open any more, so this answer changed nothing. Denied after all."] * 2


def test_of_a_question_that_was_asked_again_the_open_one_counts_and_its_own_end_is_told(gate: Gate) -> None:
    with gate.asked():
        pass
    gate.note()
    with gate.asked() as again:
        assert gate.say(YES, again.post) is None
        again.reply()
        again.tell(ApprovalEnding.APPROVED)
        gate.marked(again.post.id)
        refusal = gate.say(NO, again.post)
    assert refusal is not None
    assert refusal.endswith(" Approved.")


def test_only_so_many_ends_are_remembered(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "REMEMBERED", 1)
    for number in (7, 8):
        with gate.asked(opened(number=number)) as asked:
            gate.closed(ApprovalEnding.EXPIRED, number=number)
            gate.marked(asked.post.id)
    refusals = [gate.say(Approve(id=number), asked.post) or "" for number in (7, 8)]
    assert refusals[0].startswith("No approval 7 is open here")
    assert refusals[1].startswith("Approval 8 is not open any more")


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
        assert gate.condition.worst() is None
    assert gate.postbox.message(asked.post.id).startswith("**Expired")
    assert gate.store.questions() == ()


def test_a_post_that_is_gone_needs_no_mark(gate: Gate) -> None:
    with gate.asked() as asked:
        gate.postbox.gone.add(asked.post.id)
        gate.closed(ApprovalEnding.EXPIRED)
        gate.postbox.until(lambda: "patch_post" in gate.postbox.calls)
        gate.settled()
    assert gate.store.questions() == ()


def test_the_states_of_a_question_only_go_forward_unless_its_posts_are_taken_away() -> None:
    order = list(State)
    moves = {(before, after) for before, allowed in MOVES.items() for after in allowed}
    assert {move for move in moves if order.index(move[0]) > order.index(move[1])} == {(State.OPEN, State.POSTING)}
    assert MOVES[State.OVER] == frozenset()
