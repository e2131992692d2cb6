"""Row G20: a tool that would rather change the rules: grants, the roles themselves and bxctl, by name and by number."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.toolhost import ToolHost
from tests.container import realrunner
from tests.container.realrunner import RealRunner


@pytest.fixture
def real(tool_host: ToolHost, tmp_path: Path) -> Iterator[RealRunner]:
    with realrunner.real_runner(tool_host, tmp_path, "reach-test") as made:
        yield made


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[str]"]:
    """A process like a role: it counts each signal that it gets, and says so."""
    program = (
        "import signal, time\n"
        "def say(number, frame): print(number, flush=True)\n"
        "for number in set(range(1, 32)) - {9, 19, 17, 18}: signal.signal(number, say)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_g20_no_role_can_be_signalled_by_its_number(real: RealRunner, bystander: "subprocess.Popen[str]") -> None:
    # A role has the uid that the tool has at worst: nothing but the walls of the container may save it.
    said = real.shell(f"kill -TERM {bystander.pid}; kill -9 {bystander.pid}")
    if bystander.pid > 100:  # where tests run in a container themselves, a tool's own process may have its number
        assert said.count("No such process") == 2
    assert "No such process" in real.shell("kill -9 -1"), "of all processes that it sees there is no other"
    assert bystander.poll() is None
    bystander.send_signal(signal.SIGTERM)
    assert bystander.stdout is not None
    assert bystander.stdout.readline() == f"{int(signal.SIGTERM)}\n", "the first signal that it heard is ours"


def test_g20_grants_sockets_and_programs_of_ours_are_not_there_by_name(real: RealRunner) -> None:
    grants = real.outside / "grants"
    grants.mkdir()
    grant = grants / "mine.toml"
    grant.write_text("tool")
    for path in (grants, grant):
        real.give(path)  # the tool's user could write it, were it there
    with socket.socket(socket.AF_UNIX) as admin:
        admin.bind(str(real.outside / "admin.sock"))
        admin.listen()
        real.give(real.outside / "admin.sock")
        said = real.shell(
            f"echo auto > {grant} || echo refused; mkdir -p {grants} || echo refused;"
            f"python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{real.outside}/admin.sock\")'"
            " || echo refused; bxctl approve 1 || echo refused; podman ps || echo refused;"
            "python3 -c 'import brokerd' || echo refused; python3 -c 'import bxctl' || echo refused"
        )
        admin.setblocking(False)
        with pytest.raises(BlockingIOError):
            admin.accept()
    assert said.splitlines().count("refused") == 7, said
    assert grant.read_text() == "tool"
    assert list(grants.iterdir()) == [grant]
