"""S1 and S4 in containers: each role killed in the middle of a turn and started again, every order, one away."""

import itertools
import json

import pytest

from bxcore.auditlog import Answered, Ended, RunEnding
from bxcore.ids import SessionId
from bxcore.wire import admin
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.channel import LoopStatus, LoopStatusReport, TextDelta, ToolReturned, TurnEnded, TurnEnding, TurnFollow
from bxcore.wire.tools import ToolDenied, ToolResult
from tests.container.appliance.rig import ORDER, Rig, until
from tests.fakes.llama_server import Reply
from tests.process import loopd_stack

LONG = Reply(text="one two three four five six seven eight", pause_after=3)


def reads_the_note(rig: Rig, session: str) -> ToolReturned:
    """Have the model read the note; return what came of it. Its turn is answered whatever that is."""
    rig.replies.extend([rig.reads_the_note(), Reply(text="All right.")])
    talk = rig.say("Read it.", session=session)
    assert talk.ended().ending is TurnEnding.ANSWERED
    (returned,) = talk.of(ToolReturned)
    return returned


def check_whole(rig: Rig, session: str) -> None:
    """Nothing that was acknowledged is lost, nothing happened twice, and the roles can go on."""
    assert "fair wind" in reads_the_note(rig, session).content
    assert loopd_stack.faults(rig.session_log(session)) == []
    decided = [record for record in rig.records() if isinstance(record, Ended)]
    assert len({record.decision for record in decided}) == len(decided)
    assert rig.tool_containers() == []


@pytest.mark.parametrize("role", ["inferproxy", "loopd"])
def test_s1_a_role_that_is_killed_while_the_model_speaks_loses_nothing(running: Rig, role: str) -> None:
    session = f"killed-{role}"
    said = Reply(text=LONG.text, pause_after=3)
    running.replies.append(said)
    talk = running.say("Speak.", session=session)
    talk.wait(TextDelta)
    running.kill(role)
    said.pause.go_on.set()
    if role == "inferproxy":
        assert talk.ended().ending in (TurnEnding.SERVER_LOST, TurnEnding.SERVER_AWAY)
    else:
        talk.over()
    running.up()
    ends = [record for record in running.session_log(session) if record["type"] == "turn_end"]
    assert [record["ending"] for record in ends] != ["answered"]
    assert loopd_stack.lost(talk, running.session_log(session)) == []
    check_whole(running, session)


def test_s1_brokerd_killed_while_a_container_runs_says_unknown_and_never_runs_it_again(running: Rig) -> None:
    running.grant("shells", tool="shell", mode="ask", paths=json.dumps([str(running.files)]))
    (running.files / "ran").unlink(missing_ok=True)
    command = "echo once >>ran; sleep 120"
    request = running.request("shell", directory=str(running.files), command=command, session="killed-brokerd")
    with running.question(request) as (pending, _):
        shown = running.tell(admin.ApprovalShow(id=pending.approval))[-1]
        running.tell(admin.ApprovalAnswer(id=pending.approval, approve=True, canonical=shown.canonical, reason=None))
        until((running.files / "ran").exists, "the effect")
        running.kill("brokerd")
    running.up()
    ended = [record for record in running.records() if isinstance(record, Ended)]
    assert ended[-1].ending is RunEnding.UNKNOWN
    until(lambda: running.tool_containers() == [], "the container is removed")
    again = running.ask(request)
    assert isinstance(again, ToolDenied)
    assert (running.files / "ran").read_text() == "once\n"
    check_whole(running, "after-brokerd")


@pytest.mark.parametrize("order", list(itertools.permutations(ORDER)), ids="-".join)
def test_s4_in_every_order_a_granted_call_is_answered(running: Rig, order: tuple[str, ...]) -> None:
    running.stop()
    started = {role: running.start(role) for role in order}
    for container in started.values():
        container.ready(90)
    assert "fair wind" in reads_the_note(running, "orders").content
    assert all(container.alive for container in started.values()), "nobody ended and began again"


def test_s4_while_brokerd_is_away_nothing_runs_and_the_turn_is_answered(running: Rig) -> None:
    running.stop("brokerd")
    for _ in range(2):
        assert "fair wind" not in reads_the_note(running, "away").content
    assert running.running["loopd"].alive
    running.up()
    assert "fair wind" in reads_the_note(running, "away").content


def test_s4_without_inferproxy_loopd_waits_and_says_for_what(running: Rig) -> None:
    running.stop("loopd", "inferproxy")
    loopd = running.start("loopd")
    until(running.at("loop-owner").exists, "loopd listens")

    def status() -> LoopStatusReport:
        return running.talk(LoopStatus()).wait(LoopStatusReport)

    until(lambda: status().waiting_for is not None, "it says what it waits for")
    assert not status().ready
    assert loopd.alive
    running.up()
    assert status().ready
    assert running.running["loopd"] is loopd, "it is the same one that waited"


def test_s1_a_question_dies_with_brokerd_and_the_yes_to_it_counts_for_nothing(running: Rig) -> None:
    running.grant("shells", tool="shell", mode="ask", paths=json.dumps([str(running.files)]))
    request = running.request("shell", directory=str(running.files), command="echo never >ran", session="void")
    (running.files / "ran").unlink(missing_ok=True)
    with running.question(request) as (pending, _):
        shown = running.tell(admin.ApprovalShow(id=pending.approval))[-1]
        running.kill("brokerd")
    running.up()
    answers = [r for r in running.records() if isinstance(r, Answered) and r.decision == pending.approval]
    assert [record.ending for record in answers] == [ApprovalEnding.VOID]
    yes = admin.ApprovalAnswer(id=pending.approval, approve=True, canonical=shown.canonical, reason=None)
    (outcome,) = running.tell(yes)
    assert outcome.ending is ApprovalEnding.NOT_PENDING
    assert not (running.files / "ran").exists()
    assert isinstance(running.ask(running.request(session="void-2")), ToolResult)


def test_a_turn_that_was_cut_is_shown_as_interrupted(running: Rig) -> None:
    said = Reply(text=LONG.text, pause_after=3)
    running.replies.append(said)
    talk = running.say("Speak.", session="cut")
    talk.wait(TextDelta)
    running.kill("loopd")
    said.pause.go_on.set()
    assert talk.over().of(TurnEnded) == []
    running.up()
    followed = running.talk(TurnFollow(session=SessionId("cut"), turn=0))
    assert followed.ended().ending is TurnEnding.INTERRUPTED
    (end,) = [record for record in running.session_log("cut") if record["type"] == "turn_end"]
    assert end["ending"] == TurnEnding.INTERRUPTED.value
