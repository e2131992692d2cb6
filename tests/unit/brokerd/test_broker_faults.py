"""INV-2, INV-3, INV-4: every write of the path fails once, and brokerd is killed at every write.

The disk is the real one with an `os` in between that fails; a kill is an exception that nothing catches, after
which all is opened again from what is on the disk.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd import callstate
from brokerd.call import Labels
from brokerd.recovery import recent
from brokerd.sessionstate import SessionStates
from bxcore.auditlog import Answered, Decided, Ended, Record, RunEnding, Started
from bxcore.files import DiskFiles
from bxcore.ids import SessionId
from bxcore.wire.admin import ApprovalAnswer, ApprovalEnding, Verdict
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolRequest, ToolResult
from tests.fakes import callstory
from tests.fakes.brokered import Brokered, Containers
from tests.fakes.faulty_files import Fault, FaultyFiles

S = SessionId("s")
CALLS = ("write", "fsync", "rename", "open")
MODES = ("auto", "ask")


def granted(brokered: Brokered, mode: str) -> None:
    brokered.grant(mode=mode, more='result_class = "secret"')


def carry_out(brokered: Brokered, request: ToolRequest, mode: str) -> object:
    """Send the call, and approve it where it asks. Return the answer, or the exception that ended it."""
    if mode == "auto":
        return brokered.ask(request)
    with brokered.asking(request) as asking:
        while not asking.peer.asked.wait(0.001) and asking._thread.is_alive():
            pass
        if asking.peer.told:
            number = asking.peer.told[0].approval
            named = brokered.approvals.question(number).call.fingerprint
            yes = ApprovalAnswer(id=number, approve=True, canonical=named, reason=None)
            with contextlib.suppress(Exception):
                brokered.approvals.answer(yes, approver="bxctl")
        return asking.answer()


def was_recorded_before(containers: Containers) -> bool:
    """INV-2: whenever a container started, its decision, the yes where one was needed, and its start were on disk."""
    for seq, _, on_disk in containers.ran:
        mine = [record for record in on_disk if seq in {record.seq, getattr(record, "decision", None)}]
        if callstory.state_after(mine) is not callstate.CallState.STARTED:
            return False
    return True


def writes_of(home: Path, mode: str) -> dict[str, int]:
    """Return how many calls of each kind one call through the path makes."""
    disk = FaultyFiles(None)
    brokered = Brokered(home, disk=disk)
    granted(brokered, mode)
    before = dict(disk.calls)
    assert isinstance(carry_out(brokered, brokered.request(), mode), ToolResult)
    brokered.close()
    return {call: disk.calls.get(call, 0) - before.get(call, 0) for call in CALLS}


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("mode", MODES)
def test_whichever_write_fails_nothing_runs_unrecorded_and_nothing_is_released_unlabelled(
    tmp_path: Path, mode: str, call: str, lasting: bool
) -> None:
    (tmp_path / "count").mkdir()
    total = writes_of(tmp_path / "count", mode)[call]
    assert total or call in {"rename"}
    for at in range(total):
        home = tmp_path / str(at)
        home.mkdir()
        disk = FaultyFiles(None)
        brokered = Brokered(home, disk=disk)
        granted(brokered, mode)
        disk.system.fault = Fault(
            call=call,
            at=disk.calls.get(call, 0) + at,
            error=errno.ENOSPC if call == "write" else errno.EIO,
            after_bytes=20 if call == "write" else 0,
            lasting=lasting,
        )
        answer = carry_out(brokered, brokered.request(), mode)
        assert was_recorded_before(brokered.containers)
        assert len(brokered.containers.ran) <= 1
        if isinstance(answer, ToolResult):
            assert labels_on_disk(brokered).data_class is DataClass.SECRET
            assert isinstance(brokered.records()[-1], Ended)
        if brokered.ledger.broken:
            assert brokered.ask() == ToolDenied(reason=DenyReason.AUDIT_UNAVAILABLE, detail=None)
        brokered.close()
        check_after_restart(home, brokered.containers)


def labels_on_disk(brokered: Brokered) -> Labels:
    return SessionStates(brokered.state / "sessions", DiskFiles()).labels(S)


def check_after_restart(home: Path, containers: Containers) -> None:
    """The log is whole, every call has an end, the same call does not run again, and the next one does."""
    ran = len(containers.ran)
    again = Brokered(home, containers=containers)
    again.recover()
    unsettled = again.audit.unsettled
    assert (unsettled.asked, unsettled.allowed, unsettled.started) == ((), (), ())
    check_stories(again.records())
    if any(isinstance(record, Decided) for record in again.records()):
        assert isinstance(again.ask(again.request(number=1)), ToolDenied)
        assert len(containers.ran) == ran
    again.grant()
    assert isinstance(again.ask(again.request(session="next", number=1)), ToolResult)
    again.close()


def check_stories(records: list[Record]) -> None:
    for decided in [record for record in records if isinstance(record, Decided)]:
        story = [one for one in records if decided.seq in {one.seq, getattr(one, "decision", None)}]
        assert callstate.last(callstory.state_after(story))


# -- kill -9 ------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


class DyingSystem:
    """The calls of `os`; at the `at`-th of them, once `armed`, the process dies, in the middle of a write."""

    def __init__(self) -> None:
        self.count, self.at, self.armed, self.dead = 0, -1, False, False
        self._lock = threading.Lock()

    def _step(self, half: Callable[[], object] = lambda: None) -> None:
        with self._lock:
            if self.dead:
                raise Killed
            if not self.armed:
                return
            self.count += 1
            if self.count - 1 == self.at:
                self.dead = True
                half()
                raise Killed

    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int:
        self._step()
        return os.open(path, flags, mode)

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        self._step(lambda: os.write(fd, data[: len(data) // 2]))
        return os.write(fd, data)

    def fsync(self, fd: int, /) -> None:
        self._step()

    def rename(self, source: Path, target: Path, /) -> None:
        self._step()
        source.rename(target)

    def unlink(self, path: Path, /) -> None:
        path.unlink()

    def mkdir(self, path: Path, mode: int = 0o777, /) -> None:
        self._step()
        path.mkdir(mode)

    def close(self, fd: int, /) -> None:
        os.close(fd)


def live_and_die(home: Path, mode: str, at: int) -> tuple[Containers, object, int]:
    """Run one call in a process that dies at its `at`-th step on the disk (-1: never). Return the steps too."""
    home.mkdir()
    system = DyingSystem()
    brokered = Brokered(home, disk=DiskFiles(system))
    granted(brokered, mode)
    system.at, system.armed = at, True
    answer: object = None
    # The answer of a thread that dies never comes; every other thread of that process is gone with it.
    with contextlib.suppress(Killed, AssertionError, ValueError):
        answer = carry_out(brokered, brokered.request(), mode)
    brokered.close()
    return brokered.containers, answer, system.count


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("mode", MODES)
def test_killed_at_any_step_there_is_at_most_one_effect_and_every_call_gets_its_end(tmp_path: Path, mode: str) -> None:
    """S1, S2, neighbour 40."""
    _, answer, steps = live_and_die(tmp_path / "whole", mode, -1)
    assert isinstance(answer, ToolResult)
    assert steps > 8
    for at in range(steps):
        containers, answer, _ = live_and_die(tmp_path / f"killed{at}", mode, at)
        assert was_recorded_before(containers)
        ran = len(containers.ran)
        assert ran <= 1
        check_after_restart(tmp_path / f"killed{at}", containers)
        if ran:
            again = Brokered(tmp_path / f"killed{at}")
            assert again.states.labels(S).data_class is DataClass.SECRET
            again.close()


def test_killed_while_it_runs_a_call_is_unknown_and_its_session_has_seen_it(tmp_path: Path) -> None:
    """The labels are those that its result would have had; where the grants have changed since, the strictest."""
    for changed in (False, True):
        home = tmp_path / str(changed)
        home.mkdir()
        brokered = Brokered(home)
        brokered.grant()
        brokered.containers.fails_after = Killed()
        with pytest.raises(Killed):
            brokered.ask()
        brokered.close()
        again = Brokered(home, containers=brokered.containers)
        if changed:
            again.grant("other", tool="list_directory")
        found = again.recover()
        assert found.unknown == (1,)
        ended = again.records()[-1]
        assert isinstance(ended, Ended)
        assert ended.ending is RunEnding.UNKNOWN
        expected = DataClass.SECRET if changed else DataClass.PRIVATE
        assert (ended.taint_after, ended.untrusted_after) == (expected, True)
        assert again.states.labels(S).data_class is expected
        assert found.told() == "at the last start: calls may or may not have taken effect (1)"
        assert again.recover().told() is None
        again.close()


def test_killed_with_an_open_question_it_is_void_and_a_late_yes_answers_nothing(tmp_path: Path) -> None:
    """G16, S11, neighbour 10."""
    brokered = Brokered(tmp_path)
    brokered.grant(mode="ask")
    brokered.approvals.wait = lambda *_, **__: (_ for _ in ()).throw(Killed())  # type: ignore[method-assign]
    with pytest.raises(Killed):
        brokered.ask()
    brokered.close()
    again = Brokered(tmp_path)
    found = again.recover()
    assert found.void == (1,)
    assert found.told() == "at the last start: open questions became void (1)"
    answered = again.records()[-1]
    assert isinstance(answered, Answered)
    assert (answered.decision, answered.ending) == (1, ApprovalEnding.VOID)
    late = ApprovalAnswer(id=1, approve=True, canonical=None, reason=None)
    assert again.approvals.answer(late, approver="bxctl").ending is ApprovalEnding.NOT_PENDING
    again.close()


def test_killed_between_the_yes_and_the_start_the_call_is_asked_again_and_not_run(tmp_path: Path) -> None:
    """G16: approved but not started."""
    brokered = Brokered(tmp_path)
    brokered.grant()
    brokered.containers.fails_before = Killed()
    with pytest.raises(Killed):
        brokered.ask()
    brokered.close()
    again = Brokered(tmp_path, containers=Containers())
    found = again.recover()
    assert (found.not_started, found.unknown) == ((1,), ())
    assert again.containers.ran == []
    decided, ended = again.records()
    assert isinstance(decided, Decided)
    assert decided.verdict is Verdict.ALLOWED
    assert isinstance(ended, Ended)
    assert ended.ending is RunEnding.FAILED
    assert not any(isinstance(record, Started) for record in again.records())
    assert again.states.labels(S).untrusted is False
    again.close()


def test_what_was_taken_on_is_known_from_the_end_of_a_long_log(tmp_path: Path) -> None:
    brokered = Brokered(tmp_path)
    for number in range(1, 40):
        brokered.ask(brokered.request(number=number, session="a" if number % 2 else "b"))
    brokered.close()
    size = sum(path.stat().st_size for path in brokered.audit_dir.iterdir())
    assert [record.call for record in recent(brokered.audit_dir)] == list(range(1, 40))  # type: ignore[union-attr]
    some = [record.call for record in recent(brokered.audit_dir, most_bytes=size // 4)]  # type: ignore[union-attr]
    assert 5 < len(some) < 15
    assert some == list(range(40 - len(some), 40))
