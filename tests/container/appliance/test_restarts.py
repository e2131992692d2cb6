"""S11 and S1 in containers: an upgrade with an open question, state of a newer version, and a reboot."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore import auditfiles
from bxcore.auditlog import Answered
from bxcore.chain import Verifier
from bxcore.wire import admin
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.channel import TextDelta, TurnEnding
from bxcore.wire.tools import DenyReason, ToolDenied, ToolResult
from deploy.appliance import remains
from deploy.local import podman
from tests.container.appliance.rig import Rig, until
from tests.fakes.llama_server import Reply
from tests.process import loopd_stack


def verifies(rig: Rig) -> bool:
    """Read the whole audit log by another program than brokerd's."""
    directory = rig.at("home/audit")
    verifier = Verifier(kept=None)
    for name in auditfiles.names(directory):
        auditfiles.feed(verifier, directory, name)
    return verifier.finish().broken is None


def asks_first(rig: Rig) -> None:
    rig.grant("shells", tool="shell", mode="ask", paths=json.dumps([str(rig.files)]))
    (rig.files / "ran").unlink(missing_ok=True)


@pytest.fixture
def upgraded(running: Rig) -> Iterator[str]:
    """Name brokerd's image by another tag, as that of a new version is loaded beside the old one."""
    images = running.appliance._images
    before = images["brokerd"]
    name = f"{running.appliance.wiring.roles['brokerd'].image}:next"
    running.appliance.podman("brokerd", "tag", before, name)
    yield name
    running.stop("brokerd")
    images["brokerd"] = before
    running.appliance.podman("brokerd", "untag", before, name)


def test_s11_an_upgrade_voids_the_open_question_and_runs_nothing(running: Rig, upgraded: str) -> None:
    asks_first(running)
    request = running.request("shell", directory=str(running.files), command="echo never >ran", session="upgrade")
    with running.question(request) as (pending, _):
        shown = running.tell(admin.ApprovalShow(id=pending.approval))[-1]
        running.stop("brokerd")
    running.appliance._images["brokerd"] = upgraded
    running.up()
    image = running.appliance.podman("brokerd", "inspect", "--format={{.ImageName}}", running.running["brokerd"].name)
    assert image == upgraded
    answers = [r for r in running.records() if isinstance(r, Answered) and r.decision == pending.approval]
    assert [record.ending for record in answers] == [ApprovalEnding.VOID]
    yes = admin.ApprovalAnswer(id=pending.approval, approve=True, canonical=shown.canonical, reason=None)
    assert running.tell(yes)[-1].ending is ApprovalEnding.NOT_PENDING
    again = running.ask(request)
    assert isinstance(again, ToolDenied)
    assert not (running.files / "ran").exists()
    assert isinstance(running.ask(running.request(session="after-upgrade")), ToolResult)
    assert verifies(running)


def written_by(rig: Rig, path: Path, content: str) -> None:
    """Write a file as the role that owns the directory would have."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(content)
    path.chmod(0o600)
    owner = path.parent.parent.stat()
    for one in (path.parent, path):
        os.chown(one, owner.st_uid, owner.st_gid)


def test_s11_labels_of_a_newer_version_deny_the_session_and_stay_as_they_are(running: Rig) -> None:
    path = running.at("home/broker") / "sessions" / "newer.json"
    content = '{"v":2,"session":"newer","taint":"public","untrusted":false,"more":[]}'
    written_by(running, path, content)
    answer = running.ask(running.request(session="newer"))
    assert isinstance(answer, ToolDenied)
    assert answer.reason is DenyReason.STATE_UNREADABLE
    running.stop("brokerd")
    running.up()
    assert isinstance(running.ask(running.request(session="newer")), ToolDenied)
    assert path.read_text() == content
    assert isinstance(running.ask(), ToolResult), "other sessions are not touched by it"


def test_s11_a_session_of_a_newer_version_is_refused_with_words_and_stays_as_it_is(running: Rig) -> None:
    assert running.say(session="older").ended().ending is TurnEnding.ANSWERED
    running.stop("loopd")
    older, newer = (running.at("home/sessions") / name for name in ("older", "newer"))
    shutil.rmtree(newer, ignore_errors=True)
    first, *rest = (older / "0.jsonl").read_text().splitlines(keepends=True)
    start = json.loads(first)
    start["format"] += 1
    changed = (
        json.dumps({**start, "session": "newer"}, separators=(",", ":"), ensure_ascii=False) + "\n" + "".join(rest)
    )
    written_by(running, newer / "0.jsonl", changed)
    running.up()
    talk = running.say(session="newer").over()
    assert talk.code == "session_damaged"
    assert "newer version" in str(talk.fault)
    assert (newer / "0.jsonl").read_text() == changed
    assert running.say(session="older").ended().ending is TurnEnding.ANSWERED
    shutil.rmtree(newer)


def _kill(numbers: list[int]) -> list[int]:
    for number in numbers:
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            pass  # one dies with another
    return numbers


def power_off(rig: Rig) -> None:
    """Kill every process of the appliance's, all at once, and empty what lies in memory on a real host."""
    appliance = rig.appliance
    accounts = [appliance.place.account(party) for party in appliance.place.parties]
    inside = [rig.number(role) for role in rig.running]

    def left() -> list[int]:
        return [number for account in accounts for number in remains.processes(account)]

    # Those that watch the containers first: they would still clean up.
    _kill([*left(), *inside])
    until(lambda: not _kill(left()), "nothing of it runs")
    podman.end_leftovers(rig.at("tool-runner"))
    for container in rig.running.values():
        os.killpg(container.pid, signal.SIGKILL)
        container._popen.wait()  # not by the launcher, which would clean up
    rig.running.clear()
    for account in accounts:
        podman.end_pause_process(account)
        shutil.rmtree(account.runtime)
    shutil.rmtree(rig.at("home/run"))


def test_s1_after_a_reboot_nothing_that_was_acknowledged_is_lost(running: Rig) -> None:
    asks_first(running)
    assert isinstance(running.ask(running.request(session="reboot-before")), ToolResult)
    before = running.records()
    said = Reply(text="one two three four five six", pause_after=3)
    running.replies.append(said)
    talk = running.say("Before the lights go out.", session="reboot")
    talk.wait(TextDelta)
    request = running.request("shell", directory=str(running.files), command="echo never >ran", session="reboot-asks")
    with running.question(request) as (pending, _):
        power_off(running)
    said.pause.go_on.set()
    talk.over()
    running.appliance.place.prepare()
    running.up()
    assert loopd_stack.lost(talk, running.session_log("reboot")) == []
    assert running.say("And after.", session="reboot").ended().ending is TurnEnding.ANSWERED
    assert loopd_stack.faults(running.session_log("reboot")) == []
    records = running.records()
    assert records[: len(before)] == before
    answers = [r for r in records if isinstance(r, Answered) and r.decision == pending.approval]
    assert [record.ending for record in answers] == [ApprovalEnding.VOID]
    assert not (running.files / "ran").exists()
    assert isinstance(running.ask(), ToolResult)
    assert running.tool_containers() == []
    assert verifies(running)
