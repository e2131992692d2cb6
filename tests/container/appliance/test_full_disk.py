"""S1 on a full disk, in containers: brokerd's audit log and loopd's sessions have no room; nothing is half done.

A small file system that is really full where this user may mount one; a limit on the size of files everywhere.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bxcore.wire.channel import MessageAccepted, TurnEnding
from bxcore.wire.tools import DenyReason, ToolDenied, ToolResult
from tests.container.appliance.conftest import not_run
from tests.container.appliance.rig import Rig, until
from tests.container.appliance.test_restarts import verifies

SIZES = ("a full file system", "a limit on files")
_ROOM = 131_072


@contextmanager
def small_disk(
    rig: Rig, role: str, kept: str, how: str, request: pytest.FixtureRequest
) -> Iterator[Callable[[bool], None]]:
    """Start the role with a small place for what it keeps. What comes back fills it (True) and makes room (False)."""
    if how == SIZES[1]:
        rig.up()
        yield lambda full: _limit(rig, role, rig.at(kept), full=full)
        return
    rig.stop(role)
    try:
        with _mounted(rig.at(kept), request):
            rig.renew(role)
            rig.up()
            yield lambda full: _fill(rig.at(kept), full=full)
            rig.stop(role)  # before its place is copied
    finally:
        rig.stop(role)
        rig.renew(role)


@contextmanager
def _mounted(path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """Put a small file system in place of a directory, with all that is in it; what is added stays afterwards."""
    owner = path.stat()
    size = sum(file.stat().st_size + 4096 for file in path.rglob("*")) + _ROOM
    options = f"size={size},mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as beside:
        _copy(path, beside)
        argv = ["mount", "-t", "tmpfs", "-o", options, "boxmaker-test", str(path)]
        if os.geteuid() != 0 or subprocess.run(argv, check=False, capture_output=True).returncode != 0:
            not_run.append(request.node.nodeid)
            pytest.skip("this user may not mount a small file system; the limit on the size of files stands in")
        try:
            _copy(beside, path)
            yield
            _copy(path, beside)
        finally:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
        _copy(beside, path)


def _copy(source: Path | str, target: Path | str) -> None:
    subprocess.run(["cp", "--archive", f"{source}/.", str(target)], check=True)


def _fill(path: Path, *, full: bool) -> None:
    filler = path / "filler"
    if not full:
        filler.unlink()
        return
    with filler.open("ab", buffering=0) as file:
        try:
            while file.write(b"\0" * 512):
                pass
        except OSError:
            pass  # which is what was wanted


def _limit(rig: Rig, role: str, path: Path, *, full: bool) -> None:
    """Let no file of the role's grow beyond the one written last, and a few bytes, so that a line is torn."""
    newest = max(path.rglob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns)
    most = newest.stat().st_size + 10 if full else "unlimited"
    # As the role's user: it takes more than root to do it to another's process.
    limit = ["prlimit", f"--pid={rig.number(role)}", f"--fsize={most}:unlimited"]
    subprocess.run([*rig.as_user(rig.appliance.wiring.roles[role].user), *limit], check=True)


@pytest.mark.parametrize("how", SIZES)
def test_without_room_for_the_audit_log_nothing_runs(rig: Rig, how: str, request: pytest.FixtureRequest) -> None:
    with small_disk(rig, "brokerd", "home/audit", how, request) as room:
        assert isinstance(rig.ask(), ToolResult)
        before = rig.records()
        room(True)
        # What fits into the last page on the disk is still recorded, and then it is over.
        denied: list[ToolDenied] = []

        def refused() -> bool:
            answer = rig.ask(rig.request(path=str(rig.files / ("n" * 2_000))))
            denied.append(answer)
            return answer.reason is DenyReason.AUDIT_UNAVAILABLE

        until(refused, "no room")
        for _ in range(3):
            answer = rig.ask()
            assert isinstance(answer, ToolDenied)
            assert answer.reason is DenyReason.AUDIT_UNAVAILABLE
        assert rig.tool_containers() == []
        assert rig.records()[: len(before)] == before
        room(False)
        rig.stop("brokerd")
        rig.up()
        assert isinstance(rig.ask(), ToolResult)
        assert verifies(rig)


@pytest.mark.parametrize("how", SIZES)
def test_without_room_for_the_sessions_nothing_is_accepted(rig: Rig, how: str, request: pytest.FixtureRequest) -> None:
    with small_disk(rig, "loopd", "home/sessions", how, request) as room:
        session = "full" if how == SIZES[0] else "limited"
        assert rig.say("before", session=session).ended().ending is TurnEnding.ANSWERED
        log = rig.at("home/sessions") / session / "0.jsonl"
        before = log.read_bytes()
        room(True)
        for _ in range(2):
            refused = rig.say("during " * 1_000, session=session, key="during").over()
            assert refused.code == "state_unwritable"
            assert refused.of(MessageAccepted) == []
        assert rig.running["loopd"].alive
        room(False)
        again = rig.say("during " * 1_000, session=session, key="during")
        assert not again.wait(MessageAccepted).duplicate
        assert again.ended().ending is TurnEnding.ANSWERED
        assert log.read_bytes().startswith(before)
