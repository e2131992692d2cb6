"""`bxctl doctor`: is everything as it must be? Home directory, sockets' folders, disk, brokerd, gatewayd, loopd.

Of an installed appliance also its users, files, images and host (bxctl.appliancechecks).

Changes nothing. loopd's own checks ask the model, so they take as long as its start-up does.
"""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from bxcore.errors import BoxmakerError
from bxcore.wire import admin, channel
from bxcore.wire.admin import BrokerStatusReport
from bxcore.wire.channel import CheckResult, LoopStatusReport
from bxctl import appliancechecks, events, finding, hostchecks, leftovers, mattermostfiles, mattermostlive, render
from bxctl.configcheck import default_folder
from bxctl.exits import Exit
from bxctl.finding import Finding
from bxctl.loopport import SELF_TEST_MS
from bxctl.machine import Machine
from bxctl.render import Ink
from bxctl.world import World

_DECIDES = "brokerd decides tool calls"

HOME_MISSING, FOLDER_UNSAFE, DISK_LOW = "home_missing", "socket_folder_unsafe", hostchecks.DISK_LOW

FREE_BYTES = 1_000_000_000
"""Less free space than this is a fault: a full disk stops every conversation."""


def run(world: World, *, json: bool, etc: Path | None = None) -> int:
    """Run every check and show each as it ends. `etc`: where the settings lie, if not in the usual place."""
    counts = {True: 0, False: 0, None: 0}
    for event in _events(world, etc or default_folder(world.home)):
        if isinstance(event, Finding):
            counts[event.passed] += 1
        _tell(event, world, json=json)
    passed, failed, unseen = counts[True], counts[False], counts[None]
    if json:
        sys.stdout.write(events.json_line(channel.SelfTestEnd(passed=passed, failed=failed)) + "\n")
    else:
        more = f", {unseen} could not be looked at" if unseen else ""
        world.screen.line(f"{passed} passed, {failed} failed{more}.", Ink.BAD if failed else Ink.GOOD)
    return Exit.FAILED if failed else Exit.OK


def _tell(event: Finding | LoopStatusReport, world: World, *, json: bool) -> None:
    if json:
        line = finding.json_line(event) if isinstance(event, Finding) else events.json_line(event)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    elif isinstance(event, Finding):
        finding.show(event, world.screen)


def _events(world: World, etc: Path) -> Iterator[Finding | LoopStatusReport]:
    home = world.home.path
    yield _is_directory(home)
    yield _socket_folder("loopd's socket folder", world.home.loop_socket.parent)
    yield _free_space(home)
    yield from leftovers.unfinished(home, etc)
    report = None
    # A home without brokerd.toml has no brokerd: its model only talks.
    if (etc / "brokerd.toml").is_file():
        yield _socket_folder("brokerd's socket folder", world.home.admin_socket.parent)
        report, decides = _broker(world)
        yield decides
    yield from appliancechecks.run(home, etc, report, Machine())
    yield from _mattermost(world, etc)
    yield from _loopd_checks(world)


def _mattermost(world: World, etc: Path) -> Iterator[Finding]:
    """Check what there is of Mattermost; nothing where it was left out."""
    machine = Machine()
    settings, findings = mattermostfiles.read(etc, machine)
    yield from findings
    yield from mattermostfiles.checks(settings, world.home.path, machine)
    if settings.gatewayd is not None or findings:
        yield _socket_folder("gatewayd's socket folder", world.home.gateway_socket.parent)
        yield from mattermostlive.checks(world, etc, settings.brokerd)


def _loopd_checks(world: World) -> Iterator[Finding | LoopStatusReport]:
    try:
        report = world.port.status()
    except BoxmakerError as error:
        yield _loopd(passed=False, found=error.detail, runbook=error.code)
        return
    yield report
    if not report.ready:
        yield _loopd(passed=False, found=f"waiting for {report.waiting_for or 'its start to end'}", runbook="not_ready")
        return
    yield _loopd(passed=True, found=_found(report), runbook="")
    yield from _self_test(world)


def _self_test(world: World) -> Iterator[Finding]:
    if world.screen.lively:
        world.screen.live("asking loopd to test itself and the model")
    try:
        for event in world.port.ask(channel.SelfTest(), idle_ms=SELF_TEST_MS):
            if isinstance(event, CheckResult):
                yield finding.of_result(event)
    except BoxmakerError as error:
        yield _check("self-test", passed=False, expected="an answer", found=error.detail, runbook=error.code)


def _broker(world: World) -> tuple[BrokerStatusReport | None, Finding]:
    """Return what brokerd says, and whether tool calls are decided."""
    try:
        report = world.admin.one(admin.BrokerStatus(), BrokerStatusReport)
    except BoxmakerError as error:
        return None, _check("brokerd", passed=False, expected=_DECIDES, found=error.detail, runbook=error.code)
    if report.denies is not None:
        found = f"every call is denied: {report.detail or report.denies.value}"
        return report, _check("brokerd", passed=False, expected=_DECIDES, found=found, runbook=report.denies.value)
    found = f"decides by {render.count_of(report.grants, 'grant')}; {render.count(report.audit_seq)} records"
    return report, _check("brokerd", passed=True, expected=_DECIDES, found=found)


# -- the checks that need no loopd ---------------------------------------------------------------


def _is_directory(home: Path) -> Finding:
    expected = f"{home} is a directory"
    if not home.is_dir():
        found = "something else" if home.exists() else "nothing is there"
        return _check("home", passed=False, expected=expected, found=found, runbook=HOME_MISSING)
    return _check("home", passed=True, expected=expected, found=str(home))


def _socket_folder(name: str, folder: Path) -> Finding:
    """Whoever may enter the folder may talk to the role: it must be a real folder that others cannot enter."""
    expected, runbook = f"{folder} is closed to others", FOLDER_UNSAFE
    try:
        found = folder.lstat()
    except OSError as error:
        return _check(name, passed=False, expected=expected, found=error.strerror or "unreadable", runbook=runbook)
    mode = f"mode {stat.S_IMODE(found.st_mode):04o}"
    if not stat.S_ISDIR(found.st_mode):
        return _check(name, passed=False, expected=expected, found="not a directory", runbook=runbook)
    closed = not found.st_mode & stat.S_IRWXO
    return _check(name, passed=closed, expected=expected, found=mode, runbook="" if closed else runbook)


def _free_space(home: Path) -> Finding:
    expected = f"at least {render.size(FREE_BYTES)} free"
    try:
        disk = os.statvfs(home)
    except OSError as error:
        return _check("disk", passed=False, expected=expected, found=error.strerror or "unknown", runbook=DISK_LOW)
    free_bytes = disk.f_bavail * disk.f_frsize
    enough = free_bytes >= FREE_BYTES
    found = f"{render.size(free_bytes)} free"
    return _check("disk", passed=enough, expected=expected, found=found, runbook="" if enough else DISK_LOW)


def _found(report: LoopStatusReport) -> str:
    model = report.model or "a model without a name"
    slots = f"slots {report.main_slot} and {report.background_slot}"
    return f"ready: {model}, {render.count(report.n_ctx)} tokens of context, {slots}"


def _loopd(*, passed: bool, found: str, runbook: str) -> Finding:
    return _check("loopd", passed=passed, expected="loopd is ready", found=found, runbook=runbook)


def _check(name: str, *, passed: bool, expected: str, found: str, runbook: str = "") -> Finding:
    return Finding(name=name, passed=passed, expected=expected, found=found, runbook=runbook)
