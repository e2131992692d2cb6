"""What starts, and when: the proxy of a call, the record before both, and nothing but what was approved."""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from brokerd import containerplan, results
from brokerd.call import FRESH, Call
from brokerd.egress import EgressMissing
from brokerd.exited import Stop
from brokerd.policy import Decision
from brokerd.runner import Effects, Ran, Runner
from brokerd.runnerfaults import NotAsApproved, RunnerUnavailable
from bxcore.auditlog import RunEnding
from bxcore.ids import Hash32
from bxcore.wire.tools import ToolFailed
from tests.fakes import calls
from tests.fakes.podman import IMAGE
from tests.fakes.runnerplace import Place, decided, run


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="bxm") as name:
        made = Place(Path(name).resolve())
        with made.service:
            yield made


# -- the proxy ----------------------------------------------------------------------------------


def test_a_call_with_a_host_gets_a_proxy_for_as_long_as_it_runs(place: Place) -> None:
    seen: list[int] = []
    ran = run(place.runner(), decided(calls.call("http_fetch")), lambda *_: seen.append(len(place.egress.open)))
    assert ran.exited.stop is Stop.END
    assert (seen, place.egress.started, place.egress.open) == ([1], 1, [])


def test_a_call_with_a_host_does_not_run_without_a_proxy(place: Place) -> None:
    with pytest.raises(RunnerUnavailable):
        run(place.runner(egress=None), decided(calls.call("http_fetch")))
    assert place.service.asked.count("create") == 2, "the probe's alone"


def test_a_call_without_a_host_gets_none(place: Place) -> None:
    run(place.runner(), decided(calls.call(path=str(place.file))))
    assert place.egress.prepared == 0


def test_inv_2_nothing_of_a_call_starts_before_its_start_is_on_record(place: Place) -> None:
    """The record names what both containers were given, and neither has started by then."""
    told: list[Hash32] = []

    def started(_image: str, plan: Hash32) -> None:
        told.append(plan)
        assert (place.egress.prepared, place.egress.started) == (1, 0)
        assert place.service.asked[-1] == "attach"

    runner = place.runner()
    run(runner, decided(calls.call("http_fetch")), started)
    assert (place.egress.started, place.egress.images) == (1, [IMAGE])
    call = calls.call("http_fetch")
    tool = runner._plan(call, 5, IMAGE, (place.egress.mount,))
    assert told == [containerplan.digest(tool, place.egress.plan)]
    assert told != [containerplan.digest(tool)]


def test_a_start_that_cannot_be_recorded_starts_no_proxy(place: Place) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "no space left")

    with pytest.raises(OSError, match="no space"):
        run(place.runner(), decided(calls.call("http_fetch")), refuse)
    assert (place.egress.started, place.egress.open, place.service.containers) == (0, [], {})


def test_a_proxy_that_fails_after_the_record_is_a_failure_and_the_tool_does_not_start(place: Place) -> None:
    runner = place.runner()
    runner.tend()
    place.egress.fault = EgressMissing("did not come up")
    starts = place.service.asked.count("start")
    answer, back = results.of(run(runner, decided(calls.call("http_fetch"))), FRESH)
    assert isinstance(answer, ToolFailed)
    assert "was not started" in answer.message
    assert back.ending is RunEnding.FAILED
    assert place.service.asked.count("start") == starts
    assert (place.service.containers, place.egress.open) == ({}, [])


# -- what was approved --------------------------------------------------------------------------


def approve(runner: Runner, call: Call) -> tuple[Effects, Decision]:
    return runner.effects(call), decided(call)


def run_approved(runner: Runner, decision: Decision, approved: Effects) -> Ran:
    return runner.run(decision, seq=5, started=lambda *_: None, cancelled=lambda: False, approved=approved)


def another_image(place: Place) -> None:
    place.service.images.add("6" * 64)
    (place.directory / "image").write_text("6" * 64)


def another_file(place: Place) -> None:
    beside = place.file.with_name("b.txt")
    beside.write_text("other\n")
    beside.replace(place.file)


@pytest.mark.parametrize(("change", "named"), [(another_image, "image"), (another_file, "mounts")])
def test_inv_8_what_is_no_longer_what_was_approved_does_not_run(
    place: Place, change: Callable[[Place], None], named: str
) -> None:
    runner = place.runner()
    approved, decision = approve(runner, calls.call(path=str(place.file)))
    change(place)
    with pytest.raises(NotAsApproved, match=named):
        run_approved(runner, decision, approved)
    assert "attach" not in place.service.asked[-2:]
    assert place.service.containers == {}


def test_inv_8_other_limits_than_those_shown_do_not_run(place: Place) -> None:
    runner = place.runner()
    approved, decision = approve(runner, calls.call(path=str(place.file)))
    with pytest.raises(NotAsApproved, match="limits"):
        run_approved(runner, decision, attrs.evolve(approved, limits=("1 s",)))


def test_inv_8_what_is_as_approved_runs(place: Place) -> None:
    runner = place.runner()
    approved, decision = approve(runner, calls.call(path=str(place.file)))
    assert run_approved(runner, decision, approved).exited.exit == 0


def test_inv_8_an_image_that_changes_all_the_time_never_runs_as_another(place: Place) -> None:
    """A race: whatever the file says at each moment, a container that was approved is of the approved image."""
    other = "6" * 64
    place.service.images.add(other)
    runner, over = place.runner(), threading.Event()
    call = calls.call(path=str(place.file))
    approved = runner.effects(call)
    made: list[str] = []
    place.service.twist = lambda described: made.append(described["Image"]) if _is_tool(described) else None

    def swap() -> None:
        while not over.is_set():
            for image in (other, IMAGE):
                beside = place.directory / "image.new"
                beside.write_text(image)
                beside.replace(place.directory / "image")

    thread = threading.Thread(target=swap)
    thread.start()
    outcomes: set[bool] = set()
    try:
        for _ in range(60):
            try:
                run_approved(runner, decided(call), approved)
                outcomes.add(True)
            except NotAsApproved:
                outcomes.add(False)
            if len(outcomes) == 2 and len(made) > 10:
                break
    finally:
        over.set()
        thread.join()
    assert outcomes == {True, False}, "the race was not met from both sides"
    assert set(made) == {IMAGE}


def _is_tool(described: Mapping[str, Any]) -> bool:
    return bool(described["Config"]["Labels"]["boxmaker.part"] == "tool")
