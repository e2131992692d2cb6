"""Approvals over Mattermost with a real brokerd. The same against the fake server and a real one."""

import pytest

from bxcore.auditlog import Answered
from bxcore.wire.admin import ApprovalEnding
from tests.contract.gateway.people import Json, until
from tests.contract.gateway.place import Place


@pytest.fixture
def asked(tools: Place) -> tuple[Place, str, int]:
    """A thread in which the model asks to read a file: the place, the thread, the question's number."""
    tools.broker.grant(mode="ask")
    tools.start()
    tools.asks_for("read_file", path=str(tools.broker.note))
    root = tools.town.owner.say(tools.town.direct, "Read the note.")["id"]
    until(lambda: tools.said_by_bot(root), "the question")
    return tools, root, question_in(tools.said_by_bot(root)[-1])


def question_in(post: Json) -> int:
    words = post["message"].split("!approve ")
    assert len(words) > 1, post["message"]
    return int(words[1].split("`")[0].split()[0])


def ending(place: Place) -> Answered:
    until(lambda: [record for record in place.broker.records() if isinstance(record, Answered)], "an answer on record")
    return next(record for record in place.broker.records() if isinstance(record, Answered))


def test_a_yes_in_the_thread_runs_the_call_and_is_on_record(asked: tuple[Place, str, int]) -> None:
    place, root, number = asked
    answer = place.town.owner.say(place.town.direct, f"!approve {number}", root=root)["id"]
    until(lambda: any("All right." in text for text in place.answers(root)), "the answer")
    record = ending(place)
    assert record.ending is ApprovalEnding.APPROVED
    assert place.town.owner.id in str(record.approver)
    assert record.post == answer
    assert len(place.broker.started) == 1


def test_a_no_with_a_reason_reaches_the_model(asked: tuple[Place, str, int]) -> None:
    place, root, number = asked
    place.town.owner.say(place.town.direct, f"!deny {number} not on a Sunday", root=root)
    until(lambda: any("All right." in text for text in place.answers(root)), "the answer")
    record = ending(place)
    assert record.ending is ApprovalEnding.REFUSED
    assert record.reason == "not on a Sunday"
    assert any(b"not on a Sunday" in body for body in place.loop.bodies())
    assert place.broker.started == []


def test_the_question_shows_everything_and_looks_dead_afterwards(asked: tuple[Place, str, int]) -> None:
    place, root, number = asked
    [question] = place.said_by_bot(root)
    assert str(place.broker.note) in question["message"]
    assert question["props"]["unsafe_links"] == "true"
    place.town.owner.say(place.town.direct, f"!deny {number}", root=root)
    until(lambda: place.town.owner.post(question["id"])["message"] != question["message"], "the question marked")
    after = place.town.owner.post(question["id"])
    assert after["props"]["unsafe_links"] == "true"
    assert f"!approve {number}" not in after["message"]


@pytest.mark.parametrize(
    "text",
    ["!approve", "!approve {n} now", "!Approve {n}", "> !approve {n}", "`!approve {n}`", "approve {n}", "!approve {m}"],
)
def test_what_is_no_answer_is_none(asked: tuple[Place, str, int], text: str) -> None:
    place, root, number = asked
    place.town.owner.say(place.town.direct, text.format(n=number, m=number + 1), root=root)
    place.town.owner.say(place.town.direct, "!status")
    place.town.owner.say(place.town.direct, f"!deny {number}", root=root)
    assert ending(place).ending is ApprovalEnding.REFUSED


def test_an_answer_elsewhere_is_none(asked: tuple[Place, str, int]) -> None:
    place, root, number = asked
    elsewhere = place.town.owner.say(place.town.direct, f"!approve {number}")["id"]
    assert place.answers(elsewhere)
    assert place.broker.started == []
    place.town.owner.say(place.town.direct, f"!deny {number}", root=root)
    assert ending(place).ending is ApprovalEnding.REFUSED


def test_an_edit_into_an_answer_is_none(asked: tuple[Place, str, int]) -> None:
    place, root, number = asked
    post = place.town.owner.say(place.town.direct, "!help", root=root)["id"]
    place.answers(root, 2)
    place.town.owner.edit(post, f"!approve {number}")
    place.town.owner.say(place.town.direct, f"!deny {number}", root=root)
    assert ending(place).ending is ApprovalEnding.REFUSED


def test_answered_on_the_machine_the_post_is_withdrawn_and_a_late_yes_is_told_so(asked: tuple[Place, str, int]) -> None:
    place, root, number = asked
    [question] = place.said_by_bot(root)
    place.broker.yes(number)
    until(lambda: place.town.owner.post(question["id"])["message"] != question["message"], "the question marked")
    before = len(place.said_by_bot(root))
    place.town.owner.say(place.town.direct, f"!approve {number}", root=root)
    until(lambda: len(place.said_by_bot(root)) > before, "a word about the late yes")
    until(lambda: place.broker.started, "the call that was approved on the machine")
    until(lambda: any("All right." in text for text in place.answers(root)), "the answer")
    assert len(place.broker.started) == 1


def test_a_restart_marks_the_dead_post_and_asks_again(asked: tuple[Place, str, int]) -> None:
    place, root, number = asked
    [first] = place.said_by_bot(root)
    place.kill()
    stale = place.town.owner.say(place.town.direct, f"!approve {number}", root=root)
    place.start()
    until(lambda: place.town.owner.post(first["id"])["message"] != first["message"], "the dead post marked")
    until(lambda: any(f"!approve {number}" in post["message"] for post in place.said_by_bot(root)[1:]), "asked again")
    assert place.broker.started == [], f"a yes from before the question was asked again counted: {stale['id']}"
    place.town.owner.say(place.town.direct, f"!approve {number}", root=root)
    assert ending(place).ending is ApprovalEnding.APPROVED


def test_brokerd_gone_withdraws_the_question(asked: tuple[Place, str, int]) -> None:
    place, root, _ = asked
    [question] = place.said_by_bot(root)
    place.kill_brokerd()
    until(lambda: place.town.owner.post(question["id"])["message"] != question["message"], "the question withdrawn")
