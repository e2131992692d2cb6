"""`make chat` with tools: the launcher starts brokerd and the containers' service, and leaves neither behind."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.local import toolplace, tooluser
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
    assert "tools may read" not in done.stderr
