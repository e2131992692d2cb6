"""loopd on a disk that is full or read-only, and before session files that a crash or a hand has damaged.

Where this user may mount, the disk is a small tmpfs that is really full; everywhere, a limit on the size of
files stands in for it. The report of skipped tests (-ra) says which of them ran.
"""

import contextlib
import os
import resource
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bxcore.errors import EXIT_STATE
from bxcore.wire.channel import (
    MessageAccepted,
    SessionList,
    SessionListEnd,
    TextDelta,
    TurnEnding,
)
from tests.fakes.llama_server import Pause, Reply
from tests.process.loopd_stack import CLOCK, OK, Stack, faults, lost, of


class Disk(ABC):
    """A place for sessions that can be filled and emptied again. `stack` is set once loopd runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack: Stack | None = None

    @abstractmethod
    def fill(self) -> None: ...

    @abstractmethod
    def make_room(self) -> None: ...


class Tmpfs(Disk):
    """A file system of 256 KiB."""

    def fill(self) -> None:
        with (self.path / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(b"\0" * 512):
                pass

    def make_room(self) -> None:
        (self.path / "filler").unlink()


class SizeLimit(Disk):
    """No file of loopd's may grow beyond the newest session log. The kernel says EFBIG where a disk says ENOSPC."""

    def fill(self) -> None:
        assert self.stack is not None
        newest = max(self.path.glob("sessions/*/0.jsonl"), key=lambda log: log.stat().st_size)
        self._limit(newest.stat().st_size + 10)  # a few bytes more, so that the line which fails is torn

    def make_room(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        assert self.stack is not None
        resource.prlimit(self.stack.loopd.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextlib.contextmanager
def tmpfs(path: Path) -> Iterator[None]:
    """Mount one, or skip the test."""
    argv = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "boxmaker-test", str(path)]
    mounted = subprocess.run(argv, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(
            f"this user may not mount a small disk ({mounted.stderr.strip()}); the limit on file sizes stands in"
        )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture(params=[Tmpfs, SizeLimit], ids=["tmpfs", "size-limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    with tmpfs(path) if request.param is Tmpfs else contextlib.nullcontext():
        yield request.param(path)


@pytest.fixture
def stack(disk: Disk, tmp_path: Path) -> Iterator[Stack]:
    """A stack that keeps its sessions on the disk, with one session in it."""
    with Stack(tmp_path, state=disk.path) as stack:
        stack.start()
        disk.stack = stack
        stack.replies.extend([CLOCK, OK])
        assert stack.say("before", new=True, key="before").ended().ending is TurnEnding.ANSWERED
        yield stack


# -- full ------------------------------------------------------------------------------------------


def test_on_a_full_disk_nothing_is_accepted_and_loopd_says_so_and_stays(stack: Stack, disk: Disk) -> None:
    before = stack.records()
    disk.fill()
    for _ in range(2):
        refused = stack.say("during " * 1_000, key="during").over()
        assert refused.code == "state_unwritable"
        assert refused.of(MessageAccepted) == []
    assert stack.status().ready
    assert stack.records()[: len(before)] == before
    disk.make_room()
    again = stack.say("during " * 1_000, key="during")
    assert not again.wait(MessageAccepted).duplicate
    assert again.ended().ending is TurnEnding.ANSWERED
    records = stack.records()
    assert [record["keys"] for record in of(records, "turn_start")] == [["before"], ["during"]]
    assert lost(again, records) == []
    assert faults(records) == []


def test_a_disk_that_fills_during_a_turn_ends_it_in_words(stack: Stack, disk: Disk) -> None:
    pause = Pause()
    # More than what is left of the log's last page, and no answer that repeats itself.
    stack.replies.append(Reply(text=" ".join(f"w{number}" for number in range(2_000)), pause_after=2, pause=pause))
    talk = stack.say("fills it", key="fills")
    talk.wait(TextDelta, 2)
    disk.fill()
    pause.go_on.set()
    end = talk.ended()
    assert end.ending is TurnEnding.STATE_FAILED
    assert end.sentence is not None
    assert "could not be written to disk" in end.sentence
    assert stack.say("still full " * 1_000).over().code == "state_unwritable"
    assert stack.status().ready
    disk.make_room()
    assert stack.say("after", key="after").ended().ending is TurnEnding.ANSWERED
    records = stack.records()
    assert lost(talk, records) == [end]  # the one thing that could not be kept, and that said so
    assert faults(records) == []
    assert [record["keys"] for record in of(records, "turn_start")] == [["before"], ["fills"], ["after"]]


def test_a_new_session_on_a_full_disk_leaves_nothing_that_stands_in_its_own_way(stack: Stack, disk: Disk) -> None:
    disk.fill()
    if isinstance(disk, SizeLimit):
        disk._limit(100)  # less than a baseline takes
    for _ in range(2):
        assert stack.say(session="new", new=True, key="k").over().code == "state_unwritable"
    disk.make_room()
    assert stack.say(session="new", new=True, key="k").ended().ending is TurnEnding.ANSWERED
    assert faults(stack.records("new")) == []


def test_after_a_full_disk_and_a_kill_everything_acknowledged_is_there(stack: Stack, disk: Disk) -> None:
    before = stack.records()
    disk.fill()
    assert stack.say("during " * 1_000).over().code == "state_unwritable"
    stack.kill("loopd")
    if isinstance(disk, Tmpfs):
        disk.make_room()
    stack.start_again("loopd")
    assert stack.say("after").ended().ending is TurnEnding.ANSWERED
    assert stack.records()[: len(before)] == before
    assert faults(stack.records()) == []


# -- read-only -------------------------------------------------------------------------------------


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[Callable[[bool], None]]:
    """Give a switch that makes the directory read-only and writable again; for root that takes a mount."""

    def by_mode(locked: bool) -> None:
        for folder in (path, *(found for found in path.rglob("*") if found.is_dir())):
            folder.chmod(0o500 if locked else 0o700)
        for log in path.rglob("*.jsonl"):
            log.chmod(0o400 if locked else 0o600)

    def by_mount(locked: bool) -> None:
        subprocess.run(["mount", "-o", f"remount,{'ro' if locked else 'rw'}", str(path)], check=True)

    if os.geteuid():
        yield by_mode
        by_mode(False)
        return
    with tmpfs(path):
        yield by_mount


def test_read_only_state_is_refused_at_the_start_and_taken_up_again_once_it_is_writable(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    with read_only(path) as lock, Stack(tmp_path, state=path) as stack:
        stack.start()
        assert stack.say("before", new=True).ended().ending is TurnEnding.ANSWERED
        stack.kill("loopd")
        lock(True)
        before = stack.records()
        stack.start_loopd()
        code, words = stack.ended_by_itself()
        assert code == EXIT_STATE
        assert f"{path}: no session can be kept here" in words
        assert "[state_unwritable]" in words
        assert not stack.home.loop_socket.exists()
        lock(False)
        stack.start_loopd().wait_ready()
        assert stack.say("during", key="k").ended().ending is TurnEnding.ANSWERED
        assert stack.say("during", session="new", new=True, key="k").ended().ending is TurnEnding.ANSWERED
        assert stack.records()[: len(before)] == before
        assert faults(stack.records()) == []


def test_a_state_directory_that_is_not_there_is_refused_at_the_start_and_not_made(tmp_path: Path) -> None:
    with Stack(tmp_path, state=tmp_path / "not" / "there") as stack:
        stack.start_loopd()
        code, words = stack.ended_by_itself()
    assert code == EXIT_STATE
    assert "No such file or directory" in words
    assert "must be a directory" in words
    assert not (tmp_path / "not").exists()


def test_a_second_loopd_with_sockets_of_its_own_on_the_same_state_is_refused(tmp_path: Path) -> None:
    with Stack(tmp_path / "one") as first, Stack(tmp_path / "two", state=tmp_path / "one") as second:
        first.start()
        second.start_loopd()
        code, words = second.ended_by_itself()
        assert code == EXIT_STATE
        assert "[state_in_use]" in words
        assert first.say(new=True).ended().ending is TurnEnding.ANSWERED
        first.kill("loopd")
        second.start()
        assert second.say("two").ended().ending is TurnEnding.ANSWERED


# -- damaged ---------------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Stack]:
    """A stack with a good session "other" and a session "s" that nobody has open."""
    with Stack(tmp_path) as stack:
        stack.start()
        stack.replies.extend([CLOCK, OK])
        assert stack.say("one", new=True).ended().ending is TurnEnding.ANSWERED
        assert stack.say("one", session="other", new=True).ended().ending is TurnEnding.ANSWERED
        stack.kill("loopd")
        yield stack


TAILS = {
    "half a line": b'{"type":"user","time":"2026-',
    "half a letter": '{"type":"user","content":"é'.encode()[:-1],
    "zeros": b"\0" * 512,
    "a line of zeros": b"\0" * 64 + b"\n",
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_a_tail_that_a_crash_cut_is_kept_described_and_in_nobodys_way(stopped: Stack, tail: bytes) -> None:
    whole = stopped.log_file().read_bytes()
    stopped.log_file().write_bytes(whole + tail)
    stopped.start_again("loopd")
    assert stopped.say("two").ended().ending is TurnEnding.ANSWERED
    assert stopped.log_file().read_bytes().startswith(whole + tail)
    assert [record["bytes"] for record in of(stopped.records(), "recovery")] == [len(tail)]
    assert faults(stopped.records()) == []
    stopped.kill("loopd")
    stopped.start_again("loopd")
    assert stopped.say("three").ended().ending is TurnEnding.ANSWERED
    assert len(of(stopped.records(), "recovery")) == 1


def unharmed(stack: Stack) -> None:
    """Of another session nothing is lost by it, and loopd stays up."""
    assert stack.say("two", session="other").ended().ending is TurnEnding.ANSWERED
    assert stack.status().ready


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda line: line[: len(line) // 2],
    "zeros": lambda line: b"\0" * len(line),
    "no JSON": lambda line: line.replace(b"{", b"[", 1),
    "another kind": lambda line: line.replace(b'"type":"turn_start"', b'"type":"turn_stark"'),
    "a field less": lambda line: line.replace(b'"turn":1,', b""),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_line_is_named_and_nothing_is_written_behind_it(
    stopped: Stack, damage: Callable[[bytes], bytes]
) -> None:
    lines = stopped.log_file().read_bytes().split(b"\n")
    whole = b"\n".join(lines)
    assert lines[2].startswith(b'{"type":"turn_start"')
    damaged = b"\n".join([*lines[:2], damage(lines[2]), *lines[3:]])
    stopped.log_file().write_bytes(damaged)
    stopped.start_again("loopd")
    for _ in range(2):
        refused = stopped.say("two").over()
        assert refused.code == "session_damaged"
        assert "s/0.jsonl:3" in str(refused.fault)
    assert stopped.say("two", new=True).over().code == "session_damaged"
    assert stopped.log_file().read_bytes() == damaged
    unharmed(stopped)
    stopped.log_file().write_bytes(whole)  # as from a backup; loopd need not be started again
    assert stopped.say("two").ended().ending is TurnEnding.ANSWERED


@pytest.mark.parametrize("change", ["edited", "removed"])
def test_a_baseline_that_is_not_the_sessions_own_stops_the_session_alone(stopped: Stack, change: str) -> None:
    path = stopped.log_file().with_name("0.baseline.json")
    content, log = path.read_bytes(), stopped.log_file().read_bytes()
    if change == "edited":
        path.write_bytes(content.replace(b"Boxmaker", b"Foxmaker"))
    else:
        path.unlink()
    stopped.start_again("loopd")
    refused = stopped.say("two").over()
    assert refused.code == "session_damaged"
    assert "baseline" in str(refused.fault)
    assert stopped.log_file().read_bytes() == log
    unharmed(stopped)
    path.write_bytes(content)
    assert stopped.say("two").ended().ending is TurnEnding.ANSWERED


def test_what_is_no_file_stops_the_session_alone_and_holds_up_nobody(stopped: Stack) -> None:
    for name in ("0.jsonl", "0.baseline.json"):
        path = stopped.log_file().with_name(name)
        aside = path.rename(path.with_name("aside"))
        os.mkfifo(path)
        stopped.start_again("loopd")
        assert stopped.say("two").over().code == "state_unreadable"
        assert stopped.talk(SessionList(limit=9)).wait(SessionListEnd).total == 2
        unharmed(stopped)
        assert "level=error" not in stopped.loopd.log()
        stopped.kill("loopd")
        aside.replace(path)
    stopped.start_again("loopd")
    assert stopped.say("two").ended().ending is TurnEnding.ANSWERED
