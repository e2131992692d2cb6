"""The launcher starts parts in order, watches them, and leaves none behind, however it ends."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.home import Home
from deploy.local.progress import Progress
from deploy.local.refusal import Refusal
from deploy.local.stack import RESTARTS, Stack
from deploy.local.wakeups import ENDING, Interrupted, Wakeups
from tests.fakes.terminal import CTRL_C, Terminal
from tests.process import launched
from tests.process.launched import part, running

SHELL = "/bin/sh"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def wakeups() -> Iterator[Wakeups]:
    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGCHLD)}
    with Wakeups() as wakeups:
        yield wakeups
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def stack(home: Home, wakeups: Wakeups, said: io.StringIO) -> Iterator[Stack]:
    with Stack(home, wakeups, Progress(said)) as stack:
        yield stack
    launched.wait_until_none_runs(home.path)


def test_a_part_is_ready_when_it_says_so_over_notify_socket(stack: Stack, home: Home, said: io.StringIO) -> None:
    stack.wait_ready(stack.start(part("a", home.path, "status=warming up", "sleep=0.8", "ready")))
    assert said.getvalue().splitlines()[-1] == "make chat: starting a (warming up)"


def test_a_part_is_ready_when_it_writes_its_first_line(stack: Stack, home: Home) -> None:
    stack.wait_ready(stack.start(part("a", home.path, "line={}", first_line_is_ready=True)))


def test_what_did_not_start_is_shown_with_its_last_lines(stack: Stack, home: Home) -> None:
    a = stack.start(part("a", home.path, "ready"))
    b = stack.start(part("b", home.path, "log=no such \x1b[2J file", "exit=3"))
    with pytest.raises(Refusal) as refusal:
        stack.wait_ready(a, b)
    assert str(refusal.value).splitlines() == [
        f"b did not start (exit code 3); its log is {home.log / 'b.log'}",
        r"  no such \u{001B}[2J file",
    ]


def test_that_a_secret_is_plain_text_is_not_shown_as_the_reason(stack: Stack, home: Home) -> None:
    warning = "level=warning role=gatewayd at=2026-11-30T10:26:00.000Z a secret in plain text secret=t place=/t"
    a = stack.start(part("a", home.path, f"log={warning}", "log=the fault", "exit=78"))
    with pytest.raises(Refusal) as refusal:
        stack.wait_ready(a)
    assert str(refusal.value).splitlines()[1:] == ["  the fault"]


def test_what_a_part_says_of_itself_can_be_asked(stack: Stack, home: Home) -> None:
    stack.wait_ready(stack.start(part("a", home.path, "status=connected", "ready")))
    stack.tend()
    assert (stack.status("a"), stack.status("b")) == ("connected", "")


def test_a_part_that_closes_its_output_and_stays_is_given_up_in_the_end(stack: Stack, home: Home) -> None:
    silent = part("a", home.path, first_line_is_ready=True, ready_seconds=1)
    silent = replace(silent, argv=(SHELL, "-c", f"exec >&-; sleep 600; : {home.path}"))
    with pytest.raises(Refusal, match="was not ready after 1 s"):
        stack.wait_ready(stack.start(silent))


def test_a_program_that_does_not_exist_is_said(stack: Stack, home: Home) -> None:
    missing = replace(part("a", home.path), argv=(f"{home.path}/nothing",))
    with pytest.raises(Refusal, match="No such file or directory"):
        stack.wait_ready(stack.start(missing))


def test_a_signal_before_the_conversation_stops_the_start(stack: Stack, home: Home) -> None:
    slow = stack.start(part("a", home.path))
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupted):
        stack.wait_ready(slow)


def test_parts_are_stopped_in_reverse_order(stack: Stack, home: Home) -> None:
    notes = home.path / "notes.txt"
    for name in ("a", "b", "c"):
        stack.wait_ready(stack.start(part(name, home.path, f"note={notes}", "ready")))
    stack.stop()
    assert notes.read_text().splitlines() == ["c SIGTERM", "b SIGTERM", "a SIGTERM"]


def test_a_stubborn_part_is_killed_after_its_deadline(stack: Stack, home: Home) -> None:
    process = stack.start(part("a", home.path, "stubborn", "child", "ready", stop_seconds=1))
    stack.wait_ready(process)
    launched.wait_until_running(home.path, 2)
    stack.stop()
    assert process.exit_code == -signal.SIGKILL
    launched.wait_until_none_runs(home.path)


def test_what_a_part_had_started_goes_with_it(stack: Stack, home: Home) -> None:
    process = stack.start(part("a", home.path, "child", "ready"))
    stack.wait_ready(process)
    os.kill(process.pid, signal.SIGKILL)
    stack.stop()
    launched.wait_until_none_runs(home.path)


def kill_the_only_part(home: Home) -> None:
    launched.wait_until_running(home.path, 1)
    (pid,) = running(home.path)
    os.kill(pid, signal.SIGKILL)
    wait_end(pid)


def wait_end(pid: int) -> None:
    """Return once our child can be reaped, which it cannot yet when its command line has gone."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_part_that_was_killed_is_started_again_and_reported(stack: Stack, home: Home, said: io.StringIO) -> None:
    stack.wait_ready(stack.start(part("a", home.path, "log=out of memory", "ready")))
    kill_the_only_part(home)
    stack.tend()
    launched.wait_until_running(home.path, 1)
    assert said.getvalue().splitlines()[-1] == "make chat: a ended (signal SIGKILL) and is started again"
    stack.report_endings()
    line = f"make chat: a ended and was started again (signal SIGKILL); its log is {home.log / 'a.log.1'}"
    assert said.getvalue().splitlines()[-1] == line


def test_each_death_is_reported_with_its_own_log(stack: Stack, home: Home, said: io.StringIO) -> None:
    stack.wait_ready(stack.start(part("a", home.path, "log=born", "ready")))
    pids: list[int] = []
    for _ in range(RESTARTS + 1):
        launched.wait_until_running(home.path, 1)
        pids += running(home.path)
        while not (home.log / "a.log").read_text():
            time.sleep(0.02)
        with (home.log / "a.log").open("a") as log:
            log.write(f"{pids[-1]}\n")
        kill_the_only_part(home)
        stack.tend()
    begun = len(said.getvalue())
    stack.report_endings()
    logs = [Path(line.rpartition("its log is ")[2]) for line in said.getvalue()[begun:].splitlines()]
    assert [log.read_text() for log in logs] == [f"born\n{pid}\n" for pid in pids]


def test_what_was_asked_for_once_is_no_part_of_a_restart(stack: Stack, home: Home) -> None:
    stack.wait_ready(stack.start(part("a", home.path, once=("log=once", "ready"))))
    assert (home.log / "a.log").read_text() == "once\n"
    kill_the_only_part(home)
    stack.tend()
    launched.wait_until_running(home.path, 1)
    ((pid, argv),) = running(home.path).items()
    assert "log=once" not in argv, pid


def test_a_part_that_dies_again_and_again_is_given_up(stack: Stack, home: Home, said: io.StringIO) -> None:
    stack.wait_ready(stack.start(part("a", home.path, "ready")))
    for _ in range(RESTARTS + 1):
        kill_the_only_part(home)
        stack.tend()
    stack.report_endings()
    assert running(home.path) == {}
    assert said.getvalue().count("a ended and was started again (") == RESTARTS
    assert said.getvalue().splitlines()[-1] == f"make chat: a ended (signal SIGKILL); its log is {home.log / 'a.log'}"


@pytest.mark.parametrize("code", [0, 74, 78])
def test_a_part_that_needs_its_owner_is_not_started_again(
    stack: Stack, home: Home, said: io.StringIO, code: int
) -> None:
    words = ("ready", "log=much", "log=the disk is full", "sleep=0.5", f"exit={code}")
    process = stack.start(part("a", home.path, *words))
    stack.wait_ready(process)
    wait_end(process.pid)
    stack.tend()
    assert running(home.path) == {}
    why = ": the disk is full" if code else ""
    stack.report_endings()
    assert (
        said.getvalue().splitlines()[-1]
        == f"make chat: a ended (exit code {code}){why}; its log is {home.log / 'a.log'}"
    )


def test_what_a_part_says_later_is_taken(stack: Stack, home: Home) -> None:
    """A sender would wait once the queue of the socket is full."""
    words = ["ready", *["status=still here"] * 2_000, f"note={home.path / 'notes.txt'}", "log=done"]
    process = stack.start(part("a", home.path, *words))
    stack.wait_ready(process)
    until = time.monotonic() + launched.PATIENCE_SECONDS
    while process.log.read_text() != "done\n":
        assert time.monotonic() < until
        stack.tend()


@launched.needs_namespaces
def test_only_loopback_is_left_of_the_network(stack: Stack, home: Home) -> None:
    process = stack.start(part("a", home.path, "devices", "ready", network=False))
    stack.wait_ready(process)
    assert process.log.read_text() == "devices lo\n"
    assert Path(f"/proc/{process.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()


@launched.needs_namespaces
def test_a_part_without_network_keeps_its_user(stack: Stack, home: Home) -> None:
    process = stack.start(part("a", home.path, "user", "ready", network=False))
    stack.wait_ready(process)
    assert process.log.read_text() == f"user {os.geteuid()}\n"


def test_each_part_has_a_session_of_its_own(stack: Stack, home: Home) -> None:
    process = stack.start(part("a", home.path, "ready"))
    stack.wait_ready(process)
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid


def test_the_environment_of_a_part_is_rebuilt(stack: Stack, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example.com")
    process = stack.start(part("a", home.path, "ready"))
    stack.wait_ready(process)
    names = {entry.split(b"=")[0] for entry in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")}
    assert b"PATH" in names
    assert b"HTTP_PROXY" not in names


# -- a launcher of its own ---------------------------------------------------------------------------


def start(home: Path, *words: str, conversation: tuple[str, ...]) -> "AbstractContextManager[subprocess.Popen[str]]":
    """Start a launcher with two parts."""
    parts = [
        part("first", home, f"note={home / 'notes.txt'}", "ready", network=launched.REFUSED is not None),
        part("second", home, f"note={home / 'notes.txt'}", "ready", *words),
    ]
    return launched.started(launched.small_launcher(home, parts, conversation))


def test_the_conversation_has_the_terminals_streams_and_its_exit_code_is_the_launchers(tmp_path: Path) -> None:
    with start(tmp_path, conversation=(SHELL, "-c", "cat; echo aside >&2; exit 7")) as launcher:
        out, err = launcher.communicate("Hello\n", timeout=launched.PATIENCE_SECONDS)
    assert (launcher.returncode, out) == (7, "Hello\n")
    assert "aside\n" in err
    assert running(tmp_path) == {}


def test_a_killed_conversation_gives_the_shells_exit_code(tmp_path: Path) -> None:
    with start(tmp_path, conversation=(SHELL, "-c", "kill -KILL $$")) as launcher:
        launcher.communicate(timeout=launched.PATIENCE_SECONDS)
    assert launcher.returncode == 128 + signal.SIGKILL
    assert running(tmp_path) == {}


def begun(launcher: "subprocess.Popen[str]") -> None:
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "begun\n"


TALKING = "trap 'echo told; exit' TERM; echo begun; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_conversation_and_then_the_parts(tmp_path: Path, number: signal.Signals) -> None:
    with start(tmp_path, conversation=(SHELL, "-c", TALKING, str(tmp_path))) as launcher:
        begun(launcher)
        launcher.send_signal(number)
        assert launcher.wait(launched.PATIENCE_SECONDS) == 128 + number
        assert launcher.stdout is not None
        assert launcher.stdout.read() == "told\n"
        assert running(tmp_path) == {}
        assert (tmp_path / "notes.txt").read_text().splitlines() == ["second SIGTERM", "first SIGTERM"]


def test_kill_9_of_the_launcher_leaves_nothing_behind(tmp_path: Path) -> None:
    with start(tmp_path, "stubborn", conversation=(SHELL, "-c", TALKING, str(tmp_path))) as launcher:
        begun(launcher)
        launched.wait_until_running(tmp_path, 4)  # launcher, two parts, conversation
        launcher.kill()
        launched.wait_until_none_runs(tmp_path)


def test_a_part_that_dies_during_the_conversation_comes_back(tmp_path: Path) -> None:
    with start(tmp_path, conversation=(SHELL, "-c", "echo begun; read -r line", str(tmp_path))) as launcher:
        begun(launcher)
        first = launched.pid_of_part(tmp_path, "first")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        launched.wait_for_another(tmp_path, "first", first)
        _, err = launcher.communicate("go\n", timeout=launched.PATIENCE_SECONDS)
        assert "make chat: first ended and was started again (signal SIGKILL)" in err


def test_an_interrupt_of_the_launcher_is_the_conversations_affair(tmp_path: Path) -> None:
    with start(tmp_path, conversation=(SHELL, "-c", "echo begun; read -r line; echo $line", str(tmp_path))) as launcher:
        begun(launcher)
        launcher.send_signal(signal.SIGINT)
        out, _ = launcher.communicate("still here\n", timeout=launched.PATIENCE_SECONDS)
        assert (launcher.returncode, out) == (0, "still here\n")


def test_ctrl_c_reaches_the_conversation_and_no_part(tmp_path: Path) -> None:
    program = "trap 'echo caught' INT; echo begun; while ! read -r line; do :; done; echo read $line"
    parts = [part("first", tmp_path, f"note={tmp_path / 'notes.txt'}", "ready")]
    argv = launched.small_launcher(tmp_path, parts, (SHELL, "-c", program))
    with Terminal(argv, os.environ) as terminal:
        terminal.expect("begun")
        terminal.send(CTRL_C)
        terminal.expect("caught")
        terminal.send("on\n")
        terminal.expect("read on")
        assert terminal.wait() == 0
    assert (tmp_path / "notes.txt").read_text().splitlines() == ["first SIGTERM"]


def test_a_terminal_that_closes_ends_everything(tmp_path: Path) -> None:
    parts = [part("first", tmp_path, "ready")]
    argv = launched.small_launcher(tmp_path, parts, (SHELL, "-c", "echo begun; sleep 600; :", str(tmp_path)))
    master, slave = os.openpty()
    # Without a terminal of ours to fall back on: setsid makes the pty the controlling one.
    launcher = subprocess.Popen(["setsid", "--ctty", *argv], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    while b"begun" not in os.read(master, 4096):
        pass
    os.close(master)
    launcher.wait(launched.PATIENCE_SECONDS)
    launched.wait_until_none_runs(tmp_path)


def test_ctrl_z_stops_launcher_and_conversation_together_and_they_go_on(tmp_path: Path) -> None:
    """The parts are not in the terminal's group: loopd goes on with a turn meanwhile."""
    program = "echo begun; read -r line; echo read $line"
    argv = launched.small_launcher(tmp_path, [part("first", tmp_path, "ready")], (SHELL, "-c", program))
    with Terminal([SHELL, "-ic", " ".join(map(quoted, argv)) + "; fg; true"], os.environ) as terminal:
        terminal.expect("begun")
        terminal.send("\x1a")
        terminal.send("on\n")
        terminal.expect("read on")
        terminal.wait()
    launched.wait_until_none_runs(tmp_path)


def quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def test_a_killed_program_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    program = "import os,signal,tty; tty.setraw(0); os.kill(os.getpid(), signal.SIGKILL)"
    argv = launched.small_launcher(tmp_path, [part("first", tmp_path, "ready")], (sys.executable, "-c", program))
    with Terminal(argv, os.environ) as terminal:
        assert terminal.wait() == 128 + signal.SIGKILL
        assert terminal.modes() == terminal.first_modes
