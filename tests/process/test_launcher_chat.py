"""`make chat` with the real roles: it answers, it isolates loopd, it survives kill -9, it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.llama_server import Call, FakeLlama, Reply
from tests.process import launched
from tests.process.launched import PATIENCE_SECONDS, ROOT, running

CHAT = ROOT / "deploy" / "local" / "chat.py"


def speak(messages: list[dict[str, Any]]) -> Reply:
    """Answer loopd's self-test with the call that it wants, and anybody else with a sentence."""
    if str(messages[0]["content"]).startswith("Self-test."):
        return Reply(calls=(Call(name="clock"),)) if messages[-1]["role"] == "user" else Reply(text="Noon.")
    return Reply(text="Good morning.")


@pytest.fixture
def server() -> Iterator[FakeLlama]:
    with FakeLlama(script=speak) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "a home"
    yield home
    launched.wait_until_none_runs(home)


def command(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(CHAT), "--no-tools", "--home", str(home), *arguments]


def upstream(server: FakeLlama) -> tuple[str, str]:
    return ("--upstream", server.url)


def say(home: Path, *arguments: str, message: str = "Hello\n") -> "subprocess.CompletedProcess[str]":
    """Run one `make chat` with a message piped in."""
    return subprocess.run(
        command(home, *arguments),
        input=message,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )


@contextmanager
def conversation(home: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a `make chat` whose bxctl waits for its message to end: yield once it does, with everything up."""
    with launched.started(command(home, *arguments)) as launcher:
        until = time.monotonic() + PATIENCE_SECONDS
        while not any("bxctl" in argv and "isolation.py" not in " ".join(argv) for argv in running(home).values()):
            assert launcher.poll() is None, launcher.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        yield launcher


def finish(launcher: "subprocess.Popen[str]", message: str = "Hello\n") -> tuple[int, str, str]:
    out, err = launcher.communicate(message, timeout=PATIENCE_SECONDS)
    return launcher.returncode, out, err


def pid_of(role: str, home: Path) -> int:
    (pid,) = [pid for pid, argv in running(home).items() if role in argv and str(CHAT) not in argv]
    return pid


def devices(pid: int) -> set[str]:
    return {line.split(":")[0].strip() for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]}


# -- the real model ----------------------------------------------------------------------------------


def test_a_piped_message_gets_its_answer_from_the_real_model(home: Path) -> None:
    done = say(home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "make chat" not in done.stdout
    assert "make chat: loading the small model\n" in done.stderr
    assert running(home) == {}
    assert sum(1 for _ in home.glob("sessions/*/*.jsonl")) == 1


def test_no_process_of_our_own_stack_has_a_network_and_a_killed_model_server_comes_back(home: Path) -> None:
    model = str(home / "run" / "model" / "model.sock")
    with conversation(home) as launcher:
        seen = [devices(pid_of(argument, home)) for argument in (model, "inferproxy", "loopd")]
        # Its standard output was a pipe that nobody reads on, once it was ready.
        outputs = [Path(f"/proc/{pid_of(model, home)}/fd/{number}").readlink() for number in (1, 2)]
        os.kill(pid_of(model, home), signal.SIGKILL)
        code, out, err = finish(launcher)
    assert (code, bool(out.strip())) == (0, True), err
    assert "make chat: model ended and was started again (signal SIGKILL)" in err
    assert seen == [{"lo"}] * 3 or launched.REFUSED
    assert outputs[0] == outputs[1]


# -- a fake model server, the same roles ----------------------------------------------------------------


def test_standard_output_carries_the_answer_and_nothing_else(home: Path, server: FakeLlama) -> None:
    done = say(home, *upstream(server))
    assert (done.returncode, done.stdout) == (0, "Good morning.\n"), done.stderr
    assert "make chat: fake: 2 slots of 8192 tokens\n" in done.stderr


def test_make_adds_nothing_to_standard_output(home: Path, server: FakeLlama) -> None:
    argv = ["make", "chat", f"UPSTREAM={server.url}", "SAY=What's a box?", f"ARGS=--home '{home}'"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=4 * PATIENCE_SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (0, "Good morning.\n"), done.stderr
    assert b"What's a box?" in server.completions[-1]


def test_a_message_can_be_given_as_an_option(home: Path, server: FakeLlama) -> None:
    done = say(home, *upstream(server), "--say", "Hi", "--", "--session", "none", message="")
    assert done.returncode not in (0, 69)  # bxctl got --session and loopd knows no such one
    assert say(home, *upstream(server), "--say", "Hi", message="").stdout == "Good morning.\n"


@launched.needs_namespaces
def test_loopd_sees_no_network_but_loopback(home: Path, server: FakeLlama) -> None:
    with conversation(home, *upstream(server)) as launcher:
        assert devices(pid_of("loopd", home)) == {"lo"}
        assert "lo" in devices(pid_of("inferproxy", home))  # it has to reach the server
        assert finish(launcher)[:2] == (0, "Good morning.\n")


def test_where_the_kernel_allows_no_namespaces_it_says_so_and_goes_on(home: Path, server: FakeLlama) -> None:
    # Root of a user namespace may forbid more of them, and then drop what would let it do without.
    forbid = 'echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --bounding-set=-all "$@"'
    wrapper = [] if launched.REFUSED else ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"]
    argv = [*wrapper, *command(home, *upstream(server), "--say", "Hi")]
    with launched.started(argv) as launcher:
        code, out, err = finish(launcher, "")
    assert (code, out) == (0, "Good morning.\n"), err
    assert sum("loopd runs with a network here" in line for line in err.splitlines()) == 1


def test_sessions_outlive_the_launcher(home: Path, server: FakeLlama) -> None:
    say(home, *upstream(server))
    (session,) = [path.name for path in (home / "sessions").iterdir() if path.is_dir()]
    done = say(home, *upstream(server), "--", "--session", session)
    assert (done.returncode, done.stdout) == (0, "Good morning.\n"), done.stderr
    assert sum(1 for _ in home.glob("sessions/*/*.jsonl")) == 1


def test_a_second_launcher_talks_to_the_first_ones_roles_and_leaves_them(home: Path, server: FakeLlama) -> None:
    with conversation(home, *upstream(server)) as first:
        loopd = pid_of("loopd", home)
        second = say(home, *upstream(server))
        assert (second.returncode, second.stdout) == (0, "Good morning.\n"), second.stderr
        assert f"make chat: already running in {home}" in second.stderr
        assert pid_of("loopd", home) == loopd
        assert finish(first)[:2] == (0, "Good morning.\n")


def test_two_at_once_both_get_their_answer(home: Path, server: FakeLlama) -> None:
    argv = command(home, *upstream(server), "--say", "Hi")
    with launched.started(argv) as one, launched.started(argv) as other:
        assert [finish(launcher, "")[:2] for launcher in (one, other)] == [(0, "Good morning.\n")] * 2


def test_whoever_leaves_first_the_other_can_go_on(home: Path, server: FakeLlama) -> None:
    with conversation(home, *upstream(server)) as first, launched.started(command(home)) as second:
        assert second.stderr is not None
        assert "already running" in second.stderr.readline()
        assert first.stdin is not None
        first.stdin.close()
        first.stdin = None
        assert first.stderr is not None
        while "another make chat still talks here" not in first.stderr.readline():
            assert first.poll() is None
        assert finish(second)[:2] == (0, "Good morning.\n")
        first.communicate(timeout=PATIENCE_SECONDS)


def test_a_terminal_that_closes_leaves_the_guest_its_conversation(home: Path, server: FakeLlama) -> None:
    with conversation(home, *upstream(server)) as first, launched.started(command(home)) as second:
        assert second.stderr is not None
        assert "already running" in second.stderr.readline()
        first.send_signal(signal.SIGHUP)
        assert first.stderr is not None
        while "another make chat still talks here" not in first.stderr.readline():
            assert first.poll() is None
        first.send_signal(signal.SIGHUP)  # a shell passes it on, after the kernel's own
        assert finish(second)[:2] == (0, "Good morning.\n")
        assert first.wait(PATIENCE_SECONDS) == 128 + signal.SIGHUP


def test_sigterm_does_not_wait_for_guests(home: Path, server: FakeLlama) -> None:
    with conversation(home, *upstream(server)) as first, launched.started(command(home)) as second:
        assert second.stderr is not None
        assert "already running" in second.stderr.readline()
        first.send_signal(signal.SIGTERM)
        assert first.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
        assert not any("loopd" in argv for argv in running(home).values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything(home: Path, server: FakeLlama, number: signal.Signals) -> None:
    with conversation(home, *upstream(server)) as launcher:
        launcher.send_signal(number)
        code, out, _ = finish(launcher, "")
        assert (code, out) == (128 + number, "")
        assert running(home) == {}
    assert "stopped workers_left=0" in (home / "log" / "loopd.log").read_text()


def test_it_comes_up_again_after_kill_9_of_everything(home: Path, server: FakeLlama) -> None:
    for _ in range(3):
        with conversation(home, *upstream(server)) as launcher:
            for pid in running(home):
                os.kill(pid, signal.SIGKILL)
            launcher.wait(PATIENCE_SECONDS)
    assert (home / "run" / "loop-owner" / "loop.sock").is_socket()  # what a kill -9 leaves
    assert say(home, *upstream(server)).stdout == "Good morning.\n"


def test_kill_9_of_the_launcher_takes_the_roles_with_it(home: Path, server: FakeLlama) -> None:
    with conversation(home, *upstream(server)) as launcher:
        launcher.kill()
        launched.wait_until_none_runs(home)
    assert say(home, *upstream(server)).stdout == "Good morning.\n"


@pytest.mark.parametrize("role", ["inferproxy", "loopd"])
def test_a_role_that_dies_meanwhile_is_started_again_and_named(home: Path, server: FakeLlama, role: str) -> None:
    with conversation(home, *upstream(server)) as launcher:
        os.kill(pid_of(role, home), signal.SIGKILL)
        code, out, err = finish(launcher)
    assert (code, out) == (0, "Good morning.\n"), err
    assert f"make chat: {role} ended and was started again (signal SIGKILL)" in err


# -- what does not start ----------------------------------------------------------------------------------


def test_an_upstream_that_is_away_is_said(home: Path) -> None:
    with FakeLlama() as gone:
        away = upstream(gone)
    done = say(home, *away)
    assert (done.returncode, done.stdout) == (69, "")
    assert f"make chat: {away[1]}: Connection refused; is llama-server running there?" in done.stderr
    assert "inferproxy.log" in done.stderr
    assert running(home) == {}


def test_an_upstream_that_still_loads_is_waited_for(home: Path, server: FakeLlama) -> None:
    server.loading = True
    with launched.started(command(home, *upstream(server), "--say", "Hi")) as launcher:
        assert launcher.stderr is not None
        for line in launcher.stderr:
            if "to load its model" in line:
                server.loading = False
                break
        assert finish(launcher, "")[:2] == (0, "Good morning.\n")


def test_an_edited_file_with_a_typo_stops_the_start_before_anything_runs(home: Path) -> None:
    path = home / "etc" / "loopd.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[sampling]\ntemprature = 0.5\n")
    done = say(home)
    assert (done.returncode, done.stdout) == (69, "")
    assert f"{path}:2: sampling.temprature: unknown key; did you mean temperature?" in done.stderr
    assert list((home / "log").iterdir()) == []


def test_a_server_that_fails_the_self_test_is_said_with_the_reason(home: Path) -> None:
    with FakeLlama(script=lambda _: Reply(text="I do not call tools.")) as server:
        done = say(home, *upstream(server))
    assert (done.returncode, done.stdout) == (69, "")
    assert "loopd did not start (exit code 78)" in done.stderr
    assert "tool call" in done.stderr
    assert running(home) == {}


def test_one_slot_serves_and_is_mentioned(home: Path) -> None:
    with FakeLlama(script=speak, slots=1) as server:
        done = say(home, *upstream(server))
    assert (done.returncode, done.stdout) == (0, "Good morning.\n"), done.stderr
    assert "it has one slot" in done.stderr


def test_a_file_edited_by_hand_is_used_and_kept(home: Path, server: FakeLlama) -> None:
    say(home, *upstream(server))
    path = home / "etc" / "loopd.toml"
    path.write_text(path.read_text().replace("n_ctx = 8192", "n_ctx = 4096"))
    done = say(home, *upstream(server))
    assert f"make chat: {path} was changed by hand and stays as it is" in done.stderr
    assert done.returncode == 69  # loopd compares the server with what the owner wrote
    assert "4096" in done.stderr
