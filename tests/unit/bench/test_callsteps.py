import tempfile
from pathlib import Path

import pytest

from brokerd.containers import Podman
from tests.bench import callsteps
from tests.bench.callsteps import ATTACH, COMPARE, CREATE, EXIT, INIT, OUTPUT, REMOVE, START, STEPS
from tests.bench.sizes import Unmeasurable
from tests.fakes import plans
from tests.fakes.podman import FakePodman

ID = "ab" * 32

REQUESTS = {
    CREATE: ("POST", "/containers/create", False),
    INIT: ("POST", f"/containers/{ID}/init", False),
    COMPARE: ("GET", f"/containers/{ID}/json", False),
    START: ("POST", f"/containers/{ID}/start", True),
    EXIT: ("GET", f"/containers/{ID}/json", True),
    REMOVE: ("DELETE", f"/containers/{ID}?force=true&timeout=0&v=true", True),
}


@pytest.mark.parametrize("step", REQUESTS)
def test_each_request_belongs_to_a_step(step: str) -> None:
    method, target, started = REQUESTS[step]
    assert callsteps.step_of(method, target, started=started) == step


def test_a_request_that_belongs_to_no_step_is_a_fault_of_the_bench() -> None:
    with pytest.raises(StopIteration):
        callsteps.step_of("GET", "/info", started=False)


def test_the_steps_add_up_to_the_whole_and_repeats_are_one_step() -> None:
    events = [(CREATE, 10.25), (START, 10.5), (EXIT, 10.625), (EXIT, 11.0), (REMOVE, 12.0)]
    found = callsteps.durations(10.0, events)
    assert found == {CREATE: 250, START: 250, EXIT: 500, REMOVE: 1000}
    assert sum(found.values()) == 2000


def test_one_container_gives_every_step_once() -> None:
    with tempfile.TemporaryDirectory(prefix="bxm") as name, FakePodman(Path(name) / "podman.sock") as service:
        podman = Podman(service.path, clock=plans.CLOCK, owner="test")
        found = callsteps.taken(podman, plans.shell("echo done"), plans.work())
    assert tuple(found) == STEPS
    assert tuple(found)[3:6] == (ATTACH, START, OUTPUT)
    assert min(found.values()) > 0


def test_a_container_that_fails_is_no_figure() -> None:
    with tempfile.TemporaryDirectory(prefix="bxm") as name, FakePodman(Path(name) / "podman.sock") as service:
        podman = Podman(service.path, clock=plans.CLOCK, owner="test")
        with pytest.raises(Unmeasurable, match="exit code 3"):
            callsteps.taken(podman, plans.shell("exit 3"), plans.work())
