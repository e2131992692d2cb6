"""Real processes on one audit log: killed while they write, and two at once (rows A1, A5; INV-6)."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bxcore import auditfiles, audithead
from bxcore.auditlog import Decided
from bxcore.chain import Report, Verifier
from tests.process.bxctl_process import run
from tests.process.role import ROOT

KILLS = 12


@contextmanager
def writer(top: Path) -> Iterator["subprocess.Popen[str]"]:
    argv = [sys.executable, "-m", "tests.process.audit_writer", str(top)]
    environment = {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, cwd=ROOT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def report(top: Path) -> Report:
    kept = audithead.read((top / "broker" / "audit-head").read_bytes())
    verifier = Verifier(kept=kept)
    for name in auditfiles.names(top / "audit"):
        auditfiles.feed(verifier, top / "audit", name)
    return verifier.finish()


def test_kill_at_any_moment_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    for number in range(KILLS):
        with writer(tmp_path) as process:
            acknowledged.append(int(said(process)))
            time.sleep(0.003 * number)  # somewhere in one of the appends that follow
            process.kill()
            assert process.stdout is not None
            acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
    found = report(tmp_path)
    assert (found.findings, found.broken) == ((), None)
    directory = tmp_path / "audit"
    entries = auditfiles.entries(directory, auditfiles.names(directory))
    kept = {entry.line.seq for entry in entries if isinstance(entry.record, Decided)}
    assert set(acknowledged) <= kept
    assert len(kept) <= len(acknowledged) + KILLS
    assert run(tmp_path, "audit", "verify").returncode == 0


def test_a5_a_second_writer_is_refused_while_the_first_lives_and_not_after(tmp_path: Path) -> None:
    with writer(tmp_path) as first:
        assert said(first) == "1"
        first.send_signal(signal.SIGSTOP)  # or it would notice, end, and give the lock back
        for path in (tmp_path / "audit").iterdir():
            path.unlink()  # no deleted file lets a second one in
        with writer(tmp_path) as second:
            assert said(second) == "state_in_use"
            assert second.wait() == 74
        first.kill()
        first.wait()
    with writer(tmp_path) as third:
        assert said(third) == "audit_broken"  # and that they were deleted shows


def test_bxctl_verifies_while_records_are_written(tmp_path: Path) -> None:
    with writer(tmp_path) as process:
        said(process)
        for _ in range(3):
            done = run(tmp_path, "audit", "verify")
            assert done.returncode == 0, done.stdout
            assert b"the one that brokerd keeps" in done.stdout


@pytest.mark.parametrize("verb", ["verify", "head", "show"])
def test_a_log_that_is_not_there_is_said(tmp_path: Path, verb: str) -> None:
    done = run(tmp_path, "audit", verb)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"there is no audit log" in done.stderr
