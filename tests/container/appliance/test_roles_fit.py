"""Each role's program is right in its container: it believes the owner, and keeps to its mounts.

In there every other user of the host looks the same. What that hides from brokerd the doctor sees from outside.
"""

import dataclasses
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from bxcore import wiring
from bxcore.wire import admin
from bxcore.wire.tools import DenyReason, ToolDenied, ToolResult
from bxcore.wiring import Wiring
from bxctl import appliancechecks
from bxctl.finding import Finding
from bxctl.machine import Machine
from tests.container.appliance.rig import PATIENCE_SECONDS, Rig, until

SOMEBODY = 64_123
"""A uid that belongs to nobody here and is none of a container's."""

OF_THE_MACHINE = frozenset({"users", "clock", "limits of tools", "limits of roles", "inodes"})
"""What depends on where the tests run: older users, control groups, a clock that nobody sets."""


def status(rig: Rig) -> admin.BrokerStatusReport:
    [report] = rig.tell(admin.BrokerStatus())
    assert isinstance(report, admin.BrokerStatusReport)
    return report


def doctor(rig: Rig) -> list[Finding]:
    """Return what fails of all that the appliance itself answers for."""
    places = rig.appliance.wiring.places
    findings = appliancechecks.run(Path(places.home), Path(places.etc), status(rig), Machine())
    return [one for one in findings if one.passed is False and one.name not in OF_THE_MACHINE]


# -- whose grants ---------------------------------------------------------------------------------


def test_grants_of_a_user_whom_the_container_does_not_know_are_believed(running: Rig, separate_users: None) -> None:
    grants = running.at("etc/grants")
    own = grants.stat()
    (grant,) = grants.glob("*.toml")
    try:
        os.chown(grants, SOMEBODY, own.st_gid)
        grants.chmod(0o2750)
        os.chown(grant, SOMEBODY, own.st_gid)
        until(lambda: status(running).denies is None, "brokerd decides")
        assert isinstance(running.ask(), ToolResult)
        told = doctor(running)
        assert [one.name for one in told] == ["directories", "grant files"], "from outside it is seen whose they are"
        assert all(one.found == f"owner is uid {SOMEBODY}" for one in told)
    finally:
        os.chown(grants, own.st_uid, own.st_gid)
        grants.chmod(0o2750)
        os.chown(grant, own.st_uid, own.st_gid)


def test_a_grant_that_others_may_write_denies_every_call(running: Rig) -> None:
    (grant,) = running.at("etc/grants").glob("*.toml")
    mode = grant.stat().st_mode & 0o777
    try:
        grant.chmod(0o664)
        until(lambda: status(running).denies is DenyReason.GRANTS_INVALID, "brokerd denies")
        denied = running.ask()
        assert isinstance(denied, ToolDenied)
        assert denied.reason is DenyReason.GRANTS_INVALID
    finally:
        grant.chmod(mode)
        until(lambda: status(running).denies is None, "brokerd decides again")


def writable_grants(wired: Wiring) -> Wiring:
    """Return the wiring of a launcher that mounts the grants for writing."""
    broker = wired.roles["brokerd"]
    mounts = tuple(attrs.evolve(one, writable=one.writable or one.path == "etc/grants") for one in broker.mounts)
    return attrs.evolve(wired, roles={**wired.roles, "brokerd": attrs.evolve(broker, mounts=mounts)})


def test_grants_that_brokerd_itself_could_have_written_deny_every_call(rig: Rig, separate_users: None) -> None:
    appliance = rig.appliance
    place = appliance.place
    rig.up().stop("brokerd")
    appliance.place = dataclasses.replace(place, wiring=writable_grants(place.wiring))
    try:
        appliance.start("brokerd").ready(PATIENCE_SECONDS)
        report, (finding, *_) = status(rig), rig.tell(admin.GrantsCheck())
    finally:
        appliance.place = place
        appliance.stop("brokerd")
    assert report.denies is DenyReason.GRANTS_INVALID
    assert finding.text.endswith("expected a mount that is read-only in there")


# -- its own mounts and nothing else --------------------------------------------------------------


def test_no_role_writes_anything_but_into_its_mounts(running: Rig) -> None:
    assert isinstance(running.ask(), ToolResult)
    running.say("Remember this.", new=None).over()
    for role in running.appliance.wiring.roles:
        # What is listed as added are the places of mounts and the directories on the way to them.
        changed = running.appliance.podman(role, "diff", running.running[role].name).splitlines()
        places = _places(running, role)
        assert [line for line in changed if line.split(" ", 1)[1] not in places] == []


def _places(rig: Rig, role: str) -> set[str]:
    wired, settings = rig.appliance.wiring, rig.appliance.settings
    own = [wired.at(mount.path) for mount in wired.roles[role].mounts]
    own += [rig.appliance.place.model, *rig.credentials().values(), *settings.granted]
    own += [Path("/etc/hostname"), Path("/run/.containerenv")]
    return {str(path) for one in own for path in (one, *one.parents)}


def test_loopd_keeps_all_in_its_sessions(running: Rig) -> None:
    sessions = running.at("home/sessions")
    assert (sessions / ".loopd.lock").stat().st_size == 0
    assert not (sessions.parent / ".loopd.lock").exists()


def test_the_directory_of_calls_is_empty_after_a_call_with_a_proxy(running: Rig) -> None:
    network = running.appliance.egress_network
    running.configure(brokerd=f'[egress]\nnetwork = "{network}"\n')
    running.stop("brokerd")
    running.up()
    running.grant("fetches", tool="http_fetch", paths="[]", hosts='["no-such-host.example.com"]')
    try:
        until(lambda: status(running).grants == 2, "brokerd reads the grant")
        answer = running.ask(running.request("http_fetch", session="web", url="https://no-such-host.example.com/"))
        # The proxy was there, was asked, and found no such name.
        assert isinstance(answer, ToolResult), answer
        assert "address" in answer.content
        assert list(running.at("home/calls").iterdir()) == []
    finally:
        (running.at("etc/grants") / "fetches.toml").unlink()
        running.configure()
        running.stop("brokerd")


# -- the doctor -------------------------------------------------------------------------------------


def test_the_doctor_finds_nothing_wrong(running: Rig) -> None:
    assert doctor(running) == []


BROKEN: dict[str, Callable[[Rig], tuple[str, list[str]]]] = {
    "a directory that everybody may enter": lambda rig: ("directories", ["chmod", "0755", str(rig.at("home/audit"))]),
    "a pair's directory without its list": lambda rig: (
        "directories",
        ["setfacl", "-b", "-k", str(rig.at("home/run/broker"))],
    ),
    "a directory of another role's": lambda rig: (
        "directories",
        ["chown", rig.appliance.wiring.roles["inferproxy"].user, str(rig.at("home/sessions"))],
    ),
    "settings that a role may write": lambda rig: ("settings files", ["chmod", "0660", str(rig.at("etc/loopd.toml"))]),
    "a socket that nobody else may write": lambda rig: ("sockets", ["chmod", "0600", str(rig.at("broker"))]),
    "a granted folder without a list": lambda rig: (
        "granted folders",
        ["sh", "-c", f"setfacl -b {rig.files} && chown 0:0 {rig.files}"],
    ),
}


@pytest.mark.parametrize("breaking", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_broken_is_told_and_the_command_that_is_shown_mends_it(
    running: Rig, separate_users: None, breaking: Callable[[Rig], tuple[str, list[str]]]
) -> None:
    name, command = breaking(running)
    subprocess.run(command, check=True, timeout=20)
    (told,) = doctor(running)
    assert told.name == name
    subprocess.run(["sh", "-c", told.command], check=True, timeout=20)
    assert doctor(running) == []
    assert isinstance(running.ask(), ToolResult)


def test_the_doctor_sees_a_role_that_does_not_run(running: Rig) -> None:
    running.kill("loopd")
    told = doctor(running)
    assert [(one.name, one.found) for one in told] == [("sockets", "nobody listens")] * 2
    assert {one.expected.rpartition("/")[0].rpartition("/")[2] for one in told} == {"loop-owner", "loop-gateway"}


def test_the_wiring_beside_the_settings_is_the_one_that_runs(running: Rig) -> None:
    assert wiring.load(running.at("etc/grants").parent / "roles.json") == running.appliance.wiring
