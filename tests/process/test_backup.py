"""A backup of a home in which the real brokerd and loopd work, restored into another one, where they go on."""

import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bxcore.ids import SessionId
from bxcore.wire import state
from bxcore.wire.channel import ToolReturned, TurnEnding
from tests.fakes.backedup import BackedUp
from tests.fakes.llama_server import Call, Reply
from tests.process import brokerd_stack, loopd_stack
from tests.process.bxctl_process import argv, environ, on_terminal, run

SESSION = "s"


class Appliance:
    """One home with a brokerd and a loopd of its own, its directories where bxctl looks for them."""

    def __init__(self, broker: brokerd_stack.Stack, loop: loopd_stack.Stack) -> None:
        self.broker, self.loop, self.home, self.note = broker, loop, broker.home, broker.note
        text = broker.config.read_text()
        moved = {f'"{self.home}/state"': f'"{self.home}/broker"', f'"{self.home}/grants"': f'"{self.home}/etc/grants"'}
        for old, new in moved.items():
            text = text.replace(old, new)
        broker.config.write_text(text)

    def grant(self) -> None:
        """Let the model read the note of this home; what it reads is secret."""
        made = self.broker.grant(more='result_class = "secret"', max_taint="secret")
        shutil.copy2(made, self.home / "etc" / "grants" / made.name)

    def turn(self) -> str:
        """Have the model read the note, in the one session; return what it was given."""
        call = {"name": "read_file", "arguments": {"path": str(self.note)}}
        self.loop.replies.extend([Reply(calls=(Call(name="call_tool", arguments=json.dumps(call)),)), loopd_stack.OK])
        talk = self.loop.say(new=not self.loop.log_file().exists())
        assert talk.ended().ending is TurnEnding.ANSWERED
        [returned] = talk.of(ToolReturned)
        return returned.content

    note = Path()

    def labels(self) -> state.SessionStateReport:
        [report] = self.broker.tell(state.SessionStateAsk(session=SessionId(SESSION)))
        assert isinstance(report, state.SessionStateReport)
        return report


@contextmanager
def appliance() -> Iterator[Appliance]:
    with ExitStack() as held:
        broker = held.enter_context(brokerd_stack.stack())
        settings = {"broker": {"socket": str(broker.socket("broker"))}}
        yield Appliance(broker, held.enter_context(loopd_stack.Stack(broker.home, settings)))


@pytest.fixture
def two() -> Iterator[tuple[Appliance, Appliance]]:
    with appliance() as first, appliance() as second:
        yield first, second


@pytest.fixture
def disk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bxd") as name:
        yield Path(name)


def test_s10_taken_while_both_work_and_restored_elsewhere_both_go_on(
    two: tuple[Appliance, Appliance], disk: Path
) -> None:
    first, second = two
    (first.home / "etc" / "grants").mkdir(mode=0o700)
    (first.home / "broker").mkdir(mode=0o700, exist_ok=True)
    first.grant()
    with first.broker.brokerd():
        first.loop.start()
        assert "fair wind" in first.turn()
        made: list[subprocess.CompletedProcess[bytes]] = []
        maker = threading.Thread(target=lambda: made.extend(run(first.home, "backup", "create", str(disk / f"b{n}"))
                                                            for n in range(3)))  # fmt: skip
        maker.start()
        turns = 1
        while maker.is_alive():
            assert "fair wind" in first.turn()
            turns += 1
        maker.join()
        assert [done.returncode for done in made] == [0, 0, 0], made
        live = run(first.home, "backup", "restore", str(disk / "b2"), "--into", str(first.home))
        assert live.returncode == 1
        assert b"[restore_live]" in live.stderr
    assert turns > 1
    for number in range(3):
        done = run(first.home, "backup", "verify", str(disk / f"b{number}"), "--json")
        assert (done.returncode, json.loads(done.stdout)["findings"]) == (0, [])
    there = str(second.home)
    done = run(second.home, "backup", "restore", str(disk / "b2"), "--into", there, "--etc", f"{there}/etc")
    assert done.returncode == 0, done.stderr
    go_on(first, second)


def go_on(first: Appliance, second: Appliance) -> None:
    """The second appliance has the first one's past, and a future."""
    second.note = first.note
    before = second.loop.records()
    with second.broker.brokerd() as role:
        second.loop.start()
        assert second.labels().taint.value == "secret"
        assert "fair wind" in second.turn()
        assert "no head" not in role.log()
        assert "computed from the audit log" not in role.log()
    assert second.loop.records()[: len(before)] == before
    assert len(before) > 1
    assert loopd_stack.faults(second.loop.records()) == []
    done = run(second.home, "audit", "verify")
    assert done.returncode == 0, done.stdout
    assert b"it has the head that was kept" in done.stdout


# -- the command line -----------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> BackedUp:
    made = BackedUp(tmp_path)
    made.fill()
    return made


def create(place: BackedUp, name: str = "b", *more: str) -> "subprocess.CompletedProcess[bytes]":
    return run(place.home, "backup", "create", str(place.top / name), "--etc", str(place.etc), *more)


def test_each_command_says_what_it_did_and_what_is_next(place: BackedUp) -> None:
    done = create(place)
    assert done.returncode == 0
    assert done.stdout.decode().startswith(f"✓ {place.top}/b: ")
    assert f"backup verify {place.top}/b" in done.stdout.decode()
    assert done.stderr == b""
    done = run(place.home, "backup", "verify", str(place.top / "b"))
    assert (done.returncode, done.stdout.decode().splitlines()[0][:9]) == (0, "✓ whole: ")
    done = run(place.home, "backup", "restore", str(place.top / "b"), "--into", str(place.top / "new"))
    assert done.returncode == 0
    assert f"--home {place.top}/new audit verify" in done.stdout.decode()


REFUSED = {
    "backup_target": ("create", "b"),
    "backup_unfinished": ("verify", "nothing"),
    "restore_not_empty": ("restore", "b", "--into", "home"),
    "restore_target": ("restore", "b", "--into", "no/where"),
}


@pytest.mark.parametrize(("code", "words"), REFUSED.items())
def test_a_refusal_has_its_code_and_exit_code_1(place: BackedUp, code: str, words: tuple[str, ...]) -> None:
    assert create(place).returncode == 0
    verb, *rest = words
    done = run(place.home, "backup", verb, *(word if word.startswith("-") else str(place.top / word) for word in rest))
    assert done.returncode == 1
    assert f"[{code}]" in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_home_that_is_none_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path / "nowhere", "backup", "create", str(tmp_path / "b"))
    assert (done.returncode, b"[backup_nothing]" in done.stderr) == (1, True)


def test_wrong_usage_is_exit_code_2(place: BackedUp) -> None:
    assert run(place.home, "backup", "create").returncode == 2
    assert run(place.home, "backup", "restore", "b").returncode == 2
    assert run(place.home, "backup", "create", "b", "--etc", "nowhere").returncode == 2


def test_on_a_terminal_a_bar_shows_how_far_it_is(place: BackedUp) -> None:
    with on_terminal(place.home, "backup", "create", str(place.top / "b"), "--etc", str(place.etc)) as terminal:
        terminal.expect("█")
        assert terminal.wait() == 0


def test_killed_again_and_again_it_leaves_nothing_that_verifies(place: BackedUp) -> None:
    """Killed by the clock, so at any step; tests/unit/bxctl/test_backupcreate.py does it at each one."""
    for _ in range(8):
        process = subprocess.Popen(
            argv(place.home, "backup", "create", str(place.top / "b"), "--etc", str(place.etc)),
            env=environ(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (place.top / ".b.unfinished").exists() and process.poll() is None:
            pass
        process.kill()
        process.wait()
        if (place.top / "b").exists():
            assert run(place.home, "backup", "verify", str(place.top / "b")).returncode == 0
            shutil.rmtree(place.top / "b")
    done = create(place)
    assert done.returncode == 0
    assert not (place.top / ".b.unfinished").exists()
