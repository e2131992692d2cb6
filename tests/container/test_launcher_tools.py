"""`make chat` with tools: the launcher starts brokerd and the containers' service, and leaves neither behind."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local import cleantools, starter, toolhost, toolplace, tooluser
from tests.fakes.llama_server import Call, FakeLlama, Reply
from tests.process.launched import ROOT, running, wait_until_none_runs

CHAT = ROOT / "deploy" / "local" / "chat.py"
HOME = ROOT / ".state" / "container-tests" / "chat"
SAMPLE = toolplace.choose(HOME, tooluser.find()).shared / "sample"


def reads_a_file(messages: list[dict[str, Any]]) -> Reply:
    """Answer loopd's self-test, then read the shopping list and tell what it says."""
    if str(messages[0]["content"]).startswith("Self-test."):
        return Reply(calls=(Call(name="clock"),)) if messages[-1]["role"] == "user" else Reply(text="Noon.")
    if messages[-1]["role"] == "user":
        arguments = {"name": "read_file", "arguments": {"path": str(SAMPLE / "shopping.txt")}}
        return Reply(calls=(Call(name="call_tool", arguments=json.dumps(arguments)),))
    lines = [line for line in str(messages[-1]["content"]).splitlines() if not line.startswith("[")]
    return Reply(text=f"It says {lines[0].split()[0]}.")


@pytest.fixture(autouse=True)
def _no_record_of_earlier_runs() -> None:
    """One that was cut short may have left a broken log."""
    for name in ("audit", "broker"):
        shutil.rmtree(HOME / name, ignore_errors=True)


@pytest.fixture
def server() -> Iterator[FakeLlama]:
    with FakeLlama(script=reads_a_file) as server:
        yield server


def test_a_granted_read_is_answered_from_a_container_and_nothing_is_left(server: FakeLlama) -> None:
    done = subprocess.run(
        [sys.executable, str(CHAT), "--home", str(HOME), "--upstream", server.url],
        input="What is on my list?\n",
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "It says coffee.\n"), done.stderr
    assert str(SAMPLE) in done.stderr, "the owner is told where tools may read"
    wait_until_none_runs(HOME)
    place = toolplace.choose(HOME, tooluser.find())
    assert not place.api_socket.exists()
    assert running(place.path) == {}


def test_without_tools_nothing_of_them_is_started(server: FakeLlama) -> None:
    done = subprocess.run(
        [sys.executable, str(CHAT), "--no-tools", "--home", str(HOME), "--upstream", server.url],
        input="What is on my list?\n",
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "It says denied:.\n"
    assert "what tools may do" not in done.stderr


def chat(server: FakeLlama, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(CHAT), *options, "--home", str(HOME), "--upstream", server.url],
        input="What is on my list?\n",
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_a_broken_audit_log_stops_the_start_until_its_owner_accepts_it_once(server: FakeLlama) -> None:
    assert chat(server).returncode == 0
    (log,) = (HOME / "audit").glob("*.jsonl")
    log.write_bytes(log.read_bytes().replace(b"read_file", b"list_file", 1))
    refused = chat(server)
    assert refused.returncode == 69
    assert "[audit_broken]" in refused.stderr
    accepted = chat(server, "--accept-break")
    assert (accepted.returncode, accepted.stdout) == (0, "It says coffee.\n"), accepted.stderr
    again = chat(server)
    assert (again.returncode, again.stdout) == (0, "It says coffee.\n"), again.stderr
    assert log.read_bytes().count(b"accepted_break") == 1


def test_nothing_is_left_of_the_tools_when_they_are_cleaned_away(tmp_path: Path) -> None:
    state = tmp_path / ".state"
    with toolhost.start(state) as host:
        place = host.place
        folder = host.shared_dir / "sample"
        starter.give_folder(folder, starter.SAMPLES, host)
        assert cleantools.main(state) == 1, "it is in use"
        assert place.storage.exists()
    assert cleantools.main(state) == 0
    assert not place.path.exists()
