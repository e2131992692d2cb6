"""A conversation and an approval in Mattermost through every container, and gatewayd killed in the middle of it."""

import json

from bxcore.auditlog import Answered
from bxcore.wire import admin
from bxcore.wire.admin import ApprovalEnding
from tests.container.appliance.rig import GATEWAYD, Rig, until
from tests.fakes.llama_server import Call, Reply


def shell(rig: Rig, command: str) -> Reply:
    arguments = {"name": "shell", "arguments": {"directory": str(rig.files), "command": command}}
    return Reply(calls=(Call(name="call_tool", arguments=json.dumps(arguments)),))


def test_a_post_is_answered_in_its_thread(running: Rig) -> None:
    running.town.wait(running.town.connected, "gatewayd is connected")
    running.replies.append(Reply(text="Fine, thanks."))
    post = running.town.say("How are you?")
    running.town.wait(lambda: running.town.said_in(post) == ["Fine, thanks."], "the answer")
    assert (running.at("home/sessions") / f"mm-{post}").is_dir()


def test_a_call_that_is_approved_in_mattermost_runs_once_and_the_record_names_who_and_where(running: Rig) -> None:
    running.grant("shells", tool="shell", mode="ask", paths=json.dumps([str(running.files)]))
    (running.files / "ran").unlink(missing_ok=True)
    running.town.wait(running.town.connected, "gatewayd is connected")
    running.replies.extend([shell(running, "echo once >>ran"), Reply(text="Done.")])
    post = running.town.say("Run it.")
    running.town.wait(lambda: running.town.said_in(post), "the question")
    (number,) = [waits.id for waits in running.tell(admin.ApprovalList()) if isinstance(waits, admin.ApprovalSummary)]
    answer = running.town.say(f"!approve {number}", root=post)
    running.town.wait(lambda: "Done." in running.town.said_in(post), "the answer")
    assert (running.files / "ran").read_text() == "once\n"
    approved = [record for record in running.records() if isinstance(record, Answered) and record.decision == number]
    assert [(one.ending, one.approver, one.post) for one in approved] == [
        (ApprovalEnding.APPROVED, f"mattermost:{running.town.alice}", answer)
    ]


def test_s1_gatewayd_killed_while_the_model_speaks_answers_once(running: Rig) -> None:
    running.town.wait(running.town.connected, "gatewayd is connected")
    said = Reply(text="one two three four", pause_after=2)
    running.replies.append(said)
    post = running.town.say("Speak.")
    until((running.at("home/sessions") / f"mm-{post}").is_dir, "the turn begins")
    running.kill(GATEWAYD)
    said.pause.go_on.set()
    running.up()
    running.town.wait(lambda: running.town.said_in(post), "the answer")
    running.town.say("And again?", root=post)
    running.town.wait(lambda: running.town.said_in(post) == ["one two three four", "All right."], "both answers, once")
