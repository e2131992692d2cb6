"""The launcher of the real server: what it announces, what it refuses, and that nothing keeps it alive."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.peer import LAUNCHER, PATIENCE_SECONDS, Peer, RealPeer, fresh, model_python
from tests.contract.test_slots import ENDLESS

pytestmark = pytest.mark.real_model


class Launched:
    """A launcher that was started, and the line that it announced."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [model_python(), str(LAUNCHER), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.announced: dict[str, Any] = json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def path(socket_directory: Path) -> Path:
    return socket_directory / "launched.sock"


@pytest.fixture(scope="module")
def launched(path: Path) -> Iterator[Launched]:
    path.touch()  # a name that a killed server left behind
    launched = Launched("--listen", str(path), "--n-ctx", "1024", "--slots", "3")
    yield launched
    launched.end()


def test_the_announcement_says_where_and_what(launched: Launched, path: Path) -> None:
    assert launched.announced["socket"] == str(path)
    assert (launched.announced["n_ctx"], launched.announced["slots"]) == (1_024, 3)
    assert launched.announced["pid"] == launched.process.pid


def test_the_server_is_what_the_announcement_says(launched: Launched, path: Path) -> None:
    props = Peer(path).client().props()
    assert (props.n_ctx, props.total_slots, props.model) == (1_024, 3, launched.announced["model"])


def test_a_port_is_chosen_and_announced() -> None:
    launched = Launched("--n-ctx", "512")
    try:
        host, port = launched.announced["url"].removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS):
            pass
        assert host == "127.0.0.1"
    finally:
        launched.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_it_although_a_request_runs(socket_directory: Path, number: signal.Signals) -> None:
    with RealPeer(socket_directory / "signalled.sock") as peer, peer.begin(messages=fresh(), **ENDLESS) as opened:
        assert opened.status == 200
        assert peer.process is not None
        peer.process.send_signal(number)
        assert peer.process.wait(PATIENCE_SECONDS) == -number


PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline(), end="", flush=True)
sys.stdin.read()
"""


def test_it_dies_with_the_process_that_started_it(socket_directory: Path) -> None:
    argv = [model_python(), str(LAUNCHER), "--listen", str(socket_directory / "orphan.sock")]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    server = json.loads(parent.stdout.readline())["pid"]
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _alive(server):
        assert time.monotonic() < deadline, "the model server outlived its parent"
        time.sleep(0.05)


def test_a_server_that_loads_refuses_and_then_serves(socket_directory: Path) -> None:
    """Refused, then 503 while the model loads, then 200: never anything else, and never a hang."""
    peer = RealPeer(socket_directory / "loading.sock")
    peer.start()
    seen: list[str] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while seen[-1:] != ["200"]:
            assert time.monotonic() < deadline
            state = _health(peer)
            if state not in seen[-1:]:
                seen.append(state)
    finally:
        peer.kill()
    assert seen in (["refused", "200"], ["refused", "503 unavailable_error", "200"], ["503 unavailable_error", "200"])


REFUSED = {
    "no such file": (["--model", "/nowhere/model.gguf"], "cannot read the model /nowhere/model.gguf"),
    "no model": (["--model", __file__], "is no GGUF file"),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_the_launcher_refuses_with_a_sentence(options: list[str], words: str) -> None:
    done = subprocess.run([model_python(), str(LAUNCHER), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _health(peer: Peer) -> str:
    try:
        status, answer = peer.ask("GET", "/health")
    except (ConnectionError, FileNotFoundError):
        return "refused"
    return str(status) if status == 200 else f"{status} {answer['error']['type']}"
