"""`make appliance`: every role in its container, one turn with a tool call through all, and nothing left behind.

As root each role is a user of its own; for anybody else all are one, and the test of that is loudly skipped.
"""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest

from bxcore import wiring
from deploy.appliance import place as places
from deploy.appliance import users
from deploy.appliance.place import Place
from deploy.local import toolhost
from deploy.local.home import ROLES
from deploy.local.refusal import Refusal
from deploy.local.tooluser import NoIds
from tests.container.conftest import STATES
from tests.fakes.llama_server import Call, FakeLlama, Reply
from tests.fakes.mattermost import Mattermost
from tests.process.launched import ROOT

START = ROOT / "deploy" / "appliance" / "start.py"
STATE = STATES / "launched"
PATIENCE_SECONDS = 280
N_CTX = 65_536


@pytest.fixture(scope="module")
def place() -> Place:
    """Return the place of these tests. It keeps the images for the next time."""
    STATE.mkdir(parents=True, exist_ok=True)
    wired = wiring.load(ROLES)
    try:
        return places.choose(STATE, wired, users.find(wired))
    except NoIds as missing:
        if os.geteuid() == 0:
            raise
        pytest.skip(f"no container can run for this user: {missing}")
    except Refusal as refusal:
        pytest.fail(f"{refusal}\nrun this first: deploy/local/setup.sh appliance", pytrace=False)


def forget(place: Place) -> None:
    """Remove the records of earlier runs: one that was cut short may have left a broken log."""
    for path in ("home/audit", "home/broker", "home/sessions", "home/gateway"):
        shutil.rmtree(place.wiring.at(path), ignore_errors=True)


@pytest.fixture(scope="module")
def model(place: Place) -> Iterator[FakeLlama]:
    """Start a scripted model server where inferproxy's user can get to it."""

    def reads_a_file(messages: list[dict[str, Any]]) -> Reply:
        if str(messages[0]["content"]).startswith("Self-test."):
            return Reply(calls=(Call(name="clock"),)) if messages[-1]["role"] == "user" else Reply(text="Noon.")
        if messages[-1]["role"] == "user":
            arguments = {"name": "read_file", "arguments": {"path": str(place.shared / "sample" / "shopping.txt")}}
            return Reply(calls=(Call(name="call_tool", arguments=json.dumps(arguments)),))
        lines = [line for line in str(messages[-1]["content"]).splitlines() if not line.startswith("[")]
        return Reply(text=f"It says {lines[0].split()[0]}.")

    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="model-") as directory:
        Path(directory).chmod(0o755)
        socket = Path(directory) / "model.sock"
        with FakeLlama(socket, reads_a_file, n_ctx=N_CTX) as server:
            socket.chmod(0o666)
            yield server


def command(model: FakeLlama, *words: str) -> list[str]:
    return [sys.executable, str(START), "--home", str(STATE), "--upstream", f"unix:{model.where}", *words]


def run(model: FakeLlama, *words: str, says: str = "") -> "subprocess.CompletedProcess[str]":
    """Run one to its end. `says` comes from a pipe."""
    return subprocess.run(
        command(model, *words), input=says, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@contextmanager
def launched(
    model: FakeLlama, place: Place, stderr: int | TextIO = subprocess.PIPE
) -> "Iterator[subprocess.Popen[str]]":
    """Start one whose conversation waits for what we type; a test that fails ends it too."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command(model), stdin=pipe, stdout=pipe, stderr=stderr, text=True) as launcher:
        try:
            wait_until(lambda: conversation(place) or launcher.poll() is not None)
            assert launcher.poll() is None, launcher.stderr and launcher.stderr.read()
            yield launcher
        finally:
            launcher.kill()


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def running(place: Place) -> Mapping[int, str]:
    """Return the living processes whose command lines name the place, by number."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
        except OSError:
            continue  # it ended meanwhile; a zombie's command line is empty
        if str(place.path) in words:
            found[int(entry.name)] = words
    return found


def around(place: Place) -> list[int]:
    """Return the living processes that have the place in their environment alone: those that keep namespaces."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(place.path) in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile, or is another user's
    return found


def role(place: Place, name: str) -> int | None:
    """Return the process of a role itself, inside its container."""
    beginning = f"/usr/bin/python3 -I -S -m {name} "
    return next((number for number, words in running(place).items() if words.startswith(beginning)), None)


def conversation(place: Place) -> bool:
    """Say whether bxctl has begun: everything is up."""
    return any(" -m bxctl " in words for words in running(place).values())


def what_is_left(place: Place) -> list[str]:
    """Return sockets, containers and mounts of the place."""
    sockets = [str(path) for path in place.path.glob("**/*.sock") if path.is_socket()]
    containers = [str(path) for path in place.path.glob("home/containers/*/*/overlay-containers/*") if path.is_dir()]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(place.path) in line]
    return sockets + containers + mounts


def assert_nothing_is_left(place: Place) -> None:
    wait_until(lambda: not running(place) and not around(place))
    assert what_is_left(place) == []


def test_a_tool_call_goes_through_every_container_and_nothing_is_left(model: FakeLlama, place: Place) -> None:
    forget(place)
    done = run(model, says="What is on my list?\n")
    assert (done.returncode, done.stdout) == (0, "It says coffee.\n"), done.stderr
    assert str(place.shared / "sample") in done.stderr, "the owner is told where tools may read"
    assert_nothing_is_left(place)

    again = run(model, "--say", "Again?")
    assert (again.returncode, again.stdout) == (0, "It says coffee.\n"), again.stderr
    assert "loading the" not in again.stderr, "images stay in their stores"


@dataclass(frozen=True)
class Up:
    """One that runs, with a conversation that waits for what is typed."""

    place: Place
    launcher: "subprocess.Popen[str]"
    told: Path

    def wait_told(self, wanted: str) -> None:
        wait_until(lambda: re.search(wanted, self.told.read_text()))


@pytest.fixture(scope="class")
def up(model: FakeLlama, place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    forget(place)
    told = tmp_path_factory.mktemp("told") / "stderr"
    with told.open("w") as stderr, launched(model, place, stderr=stderr) as launcher:
        yield Up(place, launcher, told)


class TestWhileItRuns:
    """One start for all of these; the last one leaves it."""

    def test_each_role_runs_as_a_user_of_its_own(self, up: Up) -> None:
        place = up.place
        if not place.users.own:
            pytest.skip("NOT RUN: all roles are one user here; run as root, after deploy/local/setup.sh appliance")
        found = {name: role(place, name) for name in place.wiring.running(())}
        owners = {name: Path(f"/proc/{number}").stat().st_uid for name, number in found.items()}
        names = {name: pwd.getpwuid(uid).pw_name for name, uid in owners.items()}
        assert names == {name: held.user for name, held in place.wiring.running(()).items()}

    def test_each_role_has_a_network_of_its_own(self, up: Up) -> None:
        found = [role(up.place, name) for name in up.place.wiring.running(())]
        networks = {Path(f"/proc/{process}/ns/net").readlink() for process in ("self", *found)}
        assert len(networks) == 1 + len(found)

    def test_whoever_comes_second_is_refused(self, up: Up, model: FakeLlama) -> None:
        second = run(model)
        assert second.returncode == 69
        assert "another one runs the appliance of" in second.stderr

    @pytest.mark.parametrize("name", ["inferproxy", "brokerd", "loopd"])
    def test_a_role_that_dies_is_started_again(self, up: Up, name: str) -> None:
        before = role(up.place, name)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: role(up.place, name) not in (None, before))
        up.wait_told(rf"{name} ended .* is started again")

    def test_the_tools_service_comes_back_and_brokerd_may_use_it(self, up: Up) -> None:
        def services() -> set[int]:
            return {number for number, words in running(up.place).items() if words.startswith("podman system service")}

        before = services()
        for number in before:
            os.kill(number, signal.SIGKILL)
        wait_until(lambda: services() - before)
        up.wait_told("the container service had ended and is started again")
        assert up.place.wiring.socket("tool-runner").stat().st_mode & 0o777 == 0o660

    def test_after_all_that_a_tool_call_is_answered_and_nothing_is_left(self, up: Up) -> None:
        said, _ = up.launcher.communicate("What is on my list?\n", timeout=PATIENCE_SECONDS)
        assert (up.launcher.returncode, said) == (0, "It says coffee.\n"), up.told.read_text()
        assert_nothing_is_left(up.place)


def test_a_signal_takes_everything_down(model: FakeLlama, place: Place) -> None:
    with launched(model, place) as launcher:
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
        assert_nothing_is_left(place)


def test_roles_end_with_a_launcher_that_is_killed_and_the_next_start_sweeps(model: FakeLlama, place: Place) -> None:
    with launched(model, place) as launcher:
        launcher.kill()
        launcher.wait()
        wait_until(lambda: not any(role(place, name) for name in place.wiring.roles))
    done = run(model, says="What is on my list?\n")
    assert (done.returncode, done.stdout) == (0, "It says coffee.\n"), done.stderr
    assert_nothing_is_left(place)


def test_a_damaged_image_is_loaded_anew_once_and_that_is_said(model: FakeLlama, place: Place) -> None:
    found = list(place.account("loopd").storage.glob("overlay/overlay/*/diff/usr/lib/python3*/loopd"))
    if not found:
        pytest.skip("NOT RUN: no overlay storage here, whose files lie where they can be found")
    for directory in found:
        shutil.rmtree(directory)
    done = run(model, "--say", "Hello?")
    assert done.returncode == 0, done.stderr
    assert "No module named loopd" in done.stderr
    assert "loopd: once more, with images that are loaded anew" in done.stderr
    assert_nothing_is_left(place)


def test_a_directory_in_place_of_a_socket_is_named_with_whose_it_is(model: FakeLlama, place: Place) -> None:
    planted = place.wiring.socket("broker")
    (planted / "inside").mkdir(parents=True)
    try:
        done = run(model, "--say", "Hello?")
    finally:
        shutil.rmtree(planted)
    assert done.returncode == 69
    assert f"{planted} is a directory of the user" in done.stderr
    assert_nothing_is_left(place)


def test_a_settings_file_that_was_changed_by_hand_stays(model: FakeLlama, place: Place) -> None:
    settings = place.etc / "inferproxy.toml"
    settings.write_text(f"{settings.read_text()}max_connections = 31\n")
    try:
        done = run(model, "--say", "Hello?")
        assert done.returncode == 0, done.stderr
        assert f"{settings} was changed by hand and stays as it is" in done.stderr
        assert "max_connections = 31" in settings.read_text()
    finally:
        settings.unlink()


# -- Mattermost --------------------------------------------------------------------------------------


@pytest.fixture
def chat_server(place: Place, tmp_path: Path) -> Iterator[tuple[Mattermost, list[str]]]:
    """Start a Mattermost server that gatewayd's container reaches; give it, and the words for the launcher."""
    if toolhost.outside_network(place.account("tools").user) != "host":
        pytest.skip("the test's server listens on this machine's loopback, which is another one for a container here")
    with Mattermost() as server:
        alice = server.add_user("alice")
        _, secret = server.add_bot("boxmaker")
        token = tmp_path / "token"
        token.write_text(secret)
        token.chmod(0o600)
        yield (
            server,
            [
                f"--mattermost={server.url}",
                f"--mattermost-users={alice}",
                f"--mattermost-token={token}",
            ],
        )


def test_with_mattermost_gatewayd_has_a_container_its_token_and_nothing_is_left_of_either(
    place: Place, model: FakeLlama, chat_server: tuple[Mattermost, list[str]]
) -> None:
    server, words = chat_server
    forget(place)
    done = run(model, *words, says="What is on my list?\n")
    assert (done.returncode, done.stdout) == (0, "It says coffee.\n"), done.stderr
    assert f"make appliance: Mattermost: @boxmaker on {server.url} answers @alice in direct messages" in done.stderr
    assert "gatewayd: in its container is this machine's own network, since /dev/net/tun cannot be used" in done.stderr
    assert list(place.credentials("gatewayd").iterdir()) == []
    assert_nothing_is_left(place)
    assert place.wiring.at("etc/gatewayd.toml").exists()


def test_without_mattermost_there_is_no_container_of_it(place: Place, model: FakeLlama) -> None:
    forget(place)
    done = run(model, says="What is on my list?\n")
    assert done.returncode == 0, done.stderr
    assert "gatewayd" not in done.stderr
    assert not place.wiring.at("etc/gatewayd.toml").exists()
