"""kill -9 of brokerd, of conmon and of Podman's service at each step of a call: rows S1 and S5, neighbours 42.

Whatever dies, whenever: at most one effect, and no container and no process of it after the sweep.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerd import results
from brokerd.call import FRESH
from brokerd.containers import Podman
from brokerd.exited import Stop
from brokerd.results import Ran
from brokerd.runnerfaults import RunnerUnavailable
from bxcore.auditlog import RunEnding
from deploy.local.toolhost import ToolHost
from tests.container import realrunner
from tests.container.realrunner import RealRunner
from tests.fakes import calls, plans

ROOT = Path(__file__).resolve().parents[2]
OWNER = "kill-test"
EFFECT = "echo effect >> effects; sleep 603"
MARK = "sleep 603"

# The steps that the victim names, in their order; it says so if there are others.
STEPS = (
    *("before GET exists", "after GET exists", "before POST create", "after POST create"),
    *("before POST init", "after POST init", "before GET json", "after GET json", "before attach", "recorded"),
    *("before POST start", "after POST start", "running"),
)


@pytest.fixture
def real(tool_host: ToolHost, tmp_path: Path) -> Iterator[RealRunner]:
    with realrunner.real_runner(tool_host, tmp_path, OWNER) as made:
        yield made


def until(true: Callable[[], bool], seconds: float = 30) -> bool:
    """Wait for something to become true; whether it did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return true()


def processes(words: str) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdecimal() and words in (path / "cmdline").read_text().replace("\0", " "):
                found.append(int(path.name))
    return found


def alive() -> list[int]:
    """Return the processes of the tool of these tests; its command line names them, and so do its wrapper's words."""
    return [pid for pid in processes(MARK) if "victim.py" not in Path(f"/proc/{pid}/cmdline").read_text()]


def effects(real: RealRunner) -> int:
    path = real.files / "effects"
    return len(path.read_text().splitlines()) if path.exists() else 0


@contextlib.contextmanager
def victim(real: RealRunner, home: Path) -> Iterator["subprocess.Popen[str]"]:
    given = {
        **{
            name: str(getattr(real.host, name)) for name in ("api_socket", "image_id_file", "calls_dir", "seccomp_path")
        },
        "home": str(home),
        "owner": OWNER,
        "directory": str(real.files),
        "command": EFFECT,
        "seq": 7,
    }
    path = f"{ROOT}:{ROOT / 'python'}"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.container.victim", json.dumps(given)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def go_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def take_to(process: "subprocess.Popen[str]", step: str) -> None:
    """Let the victim go on until it names this step, where it waits."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == step:
            return
        go_on(process)
    raise AssertionError(f"the victim ended before {step}")


def test_the_steps_are_all_there_are(real: RealRunner, tmp_path: Path) -> None:
    with victim(real, tmp_path) as process:
        assert process.stdout is not None
        named: list[str] = []
        while not named or named[-1] != "running":
            named.append(process.stdout.readline().strip())
            if named[-1] != "running":
                go_on(process)
    assert tuple(named) == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_s1_brokerd_killed_at_each_step(real: RealRunner, tmp_path: Path, step: str) -> None:
    with victim(real, tmp_path) as process:
        take_to(process, step)
        if step == "running":
            go_on(process)
            assert until(lambda: effects(real) == 1)
        process.kill()
        process.wait()
    # The leash: the wrapper and all that it started end by themselves, before anybody sweeps.
    assert until(lambda: alive() == [])
    assert effects(real) <= 1
    swept = Podman(real.host.api_socket, clock=plans.CLOCK, owner=OWNER).sweep()
    assert swept.left == 0
    assert real.left() == []
    assert effects(real) <= 1


def monitor_of(real: RealRunner) -> int:
    """Return the process of conmon of the one container that runs."""
    (ident,) = real.left()
    return int(real.host.podman("inspect", "--format={{.State.ConmonPid}}", ident))


def run_until_its_effect(real: RealRunner, then: Callable[[], None]) -> Ran:
    """Run a call, and do something once it has had its effect."""
    text = json.dumps({"directory": str(real.files), "command": EFFECT})
    call = calls.call("shell", text=text)
    failed: list[BaseException] = []

    def wait_and_do() -> None:
        try:
            assert until(lambda: effects(real) == 1)
            then()
        except BaseException as fault:  # noqa: BLE001  # told to the test below
            failed.append(fault)

    thread = threading.Thread(target=wait_and_do)
    thread.start()
    try:
        return real.run(call, cancelled=lambda: bool(failed))
    finally:
        thread.join()
        assert failed == []


@pytest.mark.parametrize("attempt", range(2))
def test_s5_conmon_killed_while_a_call_runs(real: RealRunner, attempt: int) -> None:
    """Neighbours 42: the container would live on, without a monitor, a time limit or a cleanup."""
    ran = run_until_its_effect(real, lambda: os.kill(monitor_of(real), signal.SIGKILL))
    _, back = results.of(ran, FRESH)
    assert back.ending in {RunEnding.UNKNOWN, RunEnding.FAILED}
    real.podman.sweep()
    assert real.left() == []
    assert until(lambda: alive() == [])
    assert effects(real) == 1


def test_s5_conmon_killed_before_the_start(real: RealRunner) -> None:
    text = json.dumps({"directory": str(real.files), "command": EFFECT})

    def kill(*_: object) -> None:
        os.kill(monitor_of(real), signal.SIGKILL)

    with contextlib.suppress(RunnerUnavailable):
        ran = real.run(calls.call("shell", text=text), started=kill)
        assert ran.exited.exit != 0
    real.podman.sweep()
    assert real.left() == []
    assert until(lambda: alive() == [])
    assert effects(real) <= 1


def kill_the_service(host: ToolHost) -> None:
    os.kill(host.service_pid, signal.SIGKILL)
    assert until(lambda: not host.alive)


def test_s5_the_service_killed_while_a_call_runs(real: RealRunner) -> None:
    try:
        ran = run_until_its_effect(real, lambda: kill_the_service(real.host))
        assert (ran.exited.stop, ran.exited.exit) == (Stop.BROKEN, None)
        assert results.of(ran, FRESH)[1].ending is RunEnding.UNKNOWN
        assert until(lambda: alive() == []), "with the service the leash broke"
    finally:
        real.host.tend()
    real.podman.sweep()
    assert real.left() == []
    assert effects(real) == 1


@pytest.mark.parametrize("step", [step for step in STEPS if step != "running"])
def test_s5_the_service_killed_at_each_step(real: RealRunner, tmp_path: Path, step: str) -> None:
    with victim(real, tmp_path) as process:
        try:
            take_to(process, step)
            kill_the_service(real.host)
            process.communicate("\n" * 50, timeout=60)
        finally:
            real.host.tend()
    assert real.podman.sweep().left == 0
    assert real.left() == []
    assert until(lambda: alive() == [])
    assert effects(real) <= 1


def test_s1_a_tool_ends_by_itself_when_nobody_is_left_to_end_it(real: RealRunner, tmp_path: Path) -> None:
    """brokerd and the service killed together: what remains is the leash, and conmon's own time limit behind it."""
    try:
        with victim(real, tmp_path) as process:
            take_to(process, "running")
            go_on(process)
            assert until(lambda: effects(real) == 1)
            process.kill()
            kill_the_service(real.host)
        assert until(lambda: alive() == [])
    finally:
        real.host.tend()
    real.podman.sweep()
    assert real.left() == []
