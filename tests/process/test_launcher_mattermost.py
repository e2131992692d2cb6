"""`make chat MATTERMOST=…` with the real roles and a Mattermost server of the test's own."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.llama_server import Call, FakeLlama, Reply
from tests.fakes.mattermost import Mattermost
from tests.process import launched
from tests.process.bxctl_process import run as bxctl
from tests.process.launched import PATIENCE_SECONDS, ROOT, running

CHAT = ROOT / "deploy" / "local" / "chat.py"
GREETING = "Good morning."


def speak(messages: list[dict[str, Any]]) -> Reply:
    if str(messages[0]["content"]).startswith("Self-test."):
        return Reply(calls=(Call(name="clock"),)) if messages[-1]["role"] == "user" else Reply(text="Noon.")
    return Reply(text=GREETING)


class Town:
    """A server, a bot, and the person who may speak."""

    def __init__(self, server: Mattermost, folder: Path) -> None:
        self.server = server
        self.alice = server.add_user("alice")
        self.bot, secret = server.add_bot("boxmaker")
        self.direct = server.direct(self.alice, self.bot)
        self.token = folder / "token"
        self.keep(secret)

    def keep(self, secret: str) -> None:
        self.token.write_text(f"{secret}\n")
        self.token.chmod(0o600)

    def words(self, **other: str) -> list[str]:
        given = {"": self.server.url, "-users": self.alice, "-token": str(self.token), **other}
        return [f"--mattermost{name}={value}" for name, value in given.items()]

    def answers(self) -> list[str]:
        """Return what the bot said directly, but its greeting of the administrator."""
        return [post["message"] for post in self.server.posts_of(self.direct) if post["user_id"] == self.bot]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Mattermost() as server:
        yield Town(server, tmp_path)


@pytest.fixture
def llama() -> Iterator[FakeLlama]:
    with FakeLlama(script=speak) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    yield home
    launched.wait_until_none_runs(home)


def command(home: Path, llama: FakeLlama, *more: str) -> list[str]:
    return [sys.executable, str(CHAT), "--no-tools", "--home", str(home), "--upstream", llama.url, *more]


def until(holds: Callable[[], object], launcher: "subprocess.Popen[str]", what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert launcher.poll() is None, f"{what}: {launcher.communicate()}"
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_connected(home: Path) -> bool:
    """Say whether gatewayd is connected, and has read what was missed."""
    return bxctl(home, "mattermost", "status").stdout.startswith(b"connected since ")


@contextmanager
def serving(argv: list[str]) -> "Iterator[subprocess.Popen[str]]":
    """Start a launcher with nobody at its standard input."""
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=nothing, stdout=pipe, stderr=pipe, text=True) as launcher:
        try:
            yield launcher
        finally:
            launcher.kill()


def once(argv: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        argv, input="Hello\n", capture_output=True, text=True, timeout=4 * PATIENCE_SECONDS, check=False
    )


def test_a_post_is_answered_while_a_conversation_goes_on_and_the_start_says_who_listens(
    home: Path, llama: FakeLlama, town: Town
) -> None:
    with launched.started(command(home, llama, *town.words())) as launcher:
        until(town.server.connected, launcher, "gatewayd is connected")
        town.server.say(town.alice, town.direct, "Hello from afar.")
        until(lambda: town.answers() == [GREETING], launcher, "the post is answered")
        out, err = launcher.communicate("Hello\n", timeout=PATIENCE_SECONDS)
    assert (launcher.returncode, out) == (0, f"{GREETING}\n"), err
    url = town.server.url
    assert f"make chat: Mattermost: @boxmaker on {url} answers @alice in direct messages, while this runs\n" in err
    assert any(b"Hello from afar." in body for body in llama.completions)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_where_nobody_is_at_the_terminal_it_serves_until_it_is_told_to_end(
    home: Path, llama: FakeLlama, town: Town, number: signal.Signals
) -> None:
    with serving(command(home, llama, *town.words())) as launcher:
        until(town.server.connected, launcher, "gatewayd is connected")
        town.server.say(town.alice, town.direct, "Anybody there?")
        until(lambda: town.answers() == [GREETING], launcher, "the post is answered")
        until(lambda: is_connected(home), launcher, "gatewayd says that it is connected")
        assert not any("bxctl" in argv for argv in running(home).values())
        findings = [json.loads(line) for line in bxctl(home, "doctor", "--json").stdout.splitlines()]
        checks = {one["name"]: one["passed"] for one in findings if one["kind"] == "check_result"}
        assert {name: passed for name, passed in checks.items() if "Mattermost" in name or "gatewayd" in name} == {
            "address of Mattermost": True,
            "token of Mattermost": True,
            "sockets of Mattermost": True,
            "gatewayd's socket folder": True,
            "connection to Mattermost": True,
            "posts of Mattermost": True,
            "people in Mattermost": True,
            "channels of Mattermost": True,
            "version of Mattermost": True,
        }
        launcher.send_signal(number)
        out, err = launcher.communicate(timeout=PATIENCE_SECONDS)
    assert (launcher.returncode, out) == (0, ""), err
    assert "make chat: serving Mattermost; Ctrl-C ends it\n" in err
    assert f"stopped by {number.name}" in err


def test_a_server_that_is_away_is_said_and_the_conversation_goes_on(home: Path, llama: FakeLlama, town: Town) -> None:
    town.server.close()
    done = once(command(home, llama, *town.words()))
    assert (done.returncode, done.stdout) == (0, f"{GREETING}\n"), done.stderr
    assert f"Mattermost: not connected to {town.server.url}: " in done.stderr
    assert "it goes on trying" in done.stderr


def test_a_token_that_is_revoked_later_is_told_in_the_terminal(home: Path, llama: FakeLlama, town: Town) -> None:
    with serving(command(home, llama, *town.words())) as launcher:
        until(town.server.connected, launcher, "gatewayd is connected")
        town.server.revoke(town.token.read_text().strip())
        town.server.drop_sockets()
        assert launcher.stderr is not None
        for line in launcher.stderr:
            if "[token_refused]" in line:
                break
        assert line.startswith("make chat: Mattermost: ")
        launcher.terminate()
        launcher.communicate(timeout=PATIENCE_SECONDS)


def test_a_persons_token_ends_the_start_with_the_reason(home: Path, llama: FakeLlama, town: Town) -> None:
    town.keep(town.server.token_for(town.alice))
    done = once(command(home, llama, *town.words()))
    assert (done.returncode, done.stdout) == (69, "")
    assert "gatewayd did not start (exit code 78)" in done.stderr
    assert "[not_a_bot]" in done.stderr


def test_without_users_the_start_ends_and_names_who_could_be_meant(home: Path, llama: FakeLlama, town: Town) -> None:
    done = once(command(home, llama, *town.words(**{"-users": ""})))
    assert (done.returncode, done.stdout) == (69, "")
    assert "gatewayd did not start (exit code 78)" in done.stderr
    assert f"gatewayd: alice = {town.alice}" in done.stderr
    assert "[nobody_allowed]" in done.stderr


def test_a_refused_token_is_said(home: Path, llama: FakeLlama, town: Town) -> None:
    town.keep("x" * 26)
    done = once(command(home, llama, *town.words()))
    assert done.returncode == 0, done.stderr
    assert "[token_refused]" in done.stderr


def test_the_token_is_in_no_argument_no_environment_no_log_and_no_settings(
    home: Path, llama: FakeLlama, town: Town
) -> None:
    secret = town.token.read_text().strip()
    with launched.started(command(home, llama, *town.words())) as launcher:
        until(town.server.connected, launcher, "gatewayd is connected")
        for pid in running(home):
            for name in ("cmdline", "environ"):
                assert secret.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        _, err = launcher.communicate("Hello\n", timeout=PATIENCE_SECONDS)
    assert secret not in err
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.name == "gatewayd.log" for path in files)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_without_mattermost_its_settings_go_and_nothing_listens_for_it(
    home: Path, llama: FakeLlama, town: Town
) -> None:
    assert once(command(home, llama, *town.words())).returncode == 0
    assert (home / "etc" / "gatewayd.toml").exists()
    assert once(command(home, llama)).returncode == 0
    assert not (home / "etc" / "gatewayd.toml").exists()
    assert "gateway" not in (home / "etc" / "loopd.toml").read_text()


def test_settings_that_were_made_the_owners_stay_and_start_nothing(home: Path, llama: FakeLlama, town: Town) -> None:
    assert once(command(home, llama, *town.words())).returncode == 0
    edited = home / "etc" / "gatewayd.toml"
    edited.write_text(edited.read_text() + "# mine\n")
    done = once(command(home, llama))
    assert done.returncode == 0
    assert f"{edited} is yours and stays, and gatewayd does not start: that takes MATTERMOST=" in done.stderr
    again = once(command(home, llama, *town.words()))
    assert again.returncode == 0
    assert f"{edited} was changed by hand and stays as it is" in again.stderr
    assert "Mattermost: @boxmaker" in again.stderr


def test_a_guest_is_told_that_the_running_one_keeps_its_settings(home: Path, llama: FakeLlama, town: Town) -> None:
    with launched.started(command(home, llama)) as launcher:
        until(lambda: any("bxctl" in argv for argv in running(home).values()), launcher, "the conversation begins")
        done = once(command(home, llama, *town.words()))
        assert (done.returncode, done.stdout) == (0, f"{GREETING}\n")
        assert "the running one keeps its settings; MATTERMOST= has no effect" in done.stderr
        with serving(command(home, llama, *town.words())) as other:
            _, err = other.communicate(timeout=PATIENCE_SECONDS)
        assert other.returncode == 69
        assert "nobody is here to talk with" in err
        launcher.communicate("Hello\n", timeout=PATIENCE_SECONDS)
