"""brokerd.containers against a Podman that fails: at each step, in each way, and never on the host instead.

What the two do in peace is in tests/container/test_podman_contract.py. Rows S5, S7; statement 12 of the neighbours.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from brokerd import containers
from brokerd.containers import Podman
from brokerd.exited import Stop
from brokerd.runnerfaults import NotAsAsked, PodmanAway, PodmanRefused, PodmanSlow, RunnerUnavailable
from tests.fakes import plans
from tests.fakes.plans import PLAN, work
from tests.fakes.podman import Action, Exchange, FakePodman

BEFORE_THE_START = ("create", "init", "inspect", "attach")
EVERY_STEP = (*BEFORE_THE_START, "start", "remove")


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bxm") as name:
        yield Path(name)


@pytest.fixture
def service(directory: Path) -> Iterator[FakePodman]:
    with FakePodman(directory / "podman.sock") as running:
        yield running


@pytest.fixture
def podman(service: FakePodman) -> Podman:
    return Podman(service.path, clock=plans.CLOCK, owner="test")


@pytest.fixture
def effect(directory: Path) -> Path:
    """A file that the container's program makes, if it ever runs."""
    return directory / "effect"


def refuse(exchange: Exchange) -> bool:
    exchange.refuse(500, "permission denied")
    return True


def hang_up(exchange: Exchange) -> bool:
    exchange.close_connection = True
    return True


def talk_nonsense(exchange: Exchange) -> bool:
    exchange.wfile.write(b"\x00\xffnot http\r\n\r\n")
    exchange.close_connection = True
    return True


def half_an_answer(exchange: Exchange) -> bool:
    exchange.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"Id": ')
    exchange.close_connection = True
    return True


FAILURES = {"refuse": refuse, "hang up": hang_up, "nonsense": talk_nonsense, "half": half_an_answer}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("step", BEFORE_THE_START)
def test_s7_a_failure_before_the_start_means_that_nothing_ran(
    service: FakePodman, podman: Podman, effect: Path, step: str, failure: str
) -> None:
    service.on(step, FAILURES[failure])
    started: list[bool] = []
    with pytest.raises(RunnerUnavailable):
        podman.run(plans.shell(f"touch {effect}"), work(), lambda: started.append(True))
    assert started == []
    assert not effect.exists()
    assert service.containers == {}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_start_is_an_end_that_is_not_known(service: FakePodman, podman: Podman, failure: str) -> None:
    """The start was asked for, so the container may have run: never "nothing happened", never a second try."""
    service.on("start", FAILURES[failure])
    ended = podman.run(PLAN, work(), lambda: None)
    assert (ended.stop, ended.exit) == (Stop.BROKEN, None)
    assert service.asked.count("start") == 1
    assert service.containers == {}


@pytest.mark.parametrize("step", EVERY_STEP)
def test_s5_a_podman_that_hangs_is_given_up(
    service: FakePodman, podman: Podman, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "STEP_MS", 200)
    monkeypatch.setattr(containers, "REMOVE_MS", 100)
    over = threading.Event()

    def hang(exchange: Exchange) -> bool:
        over.wait(20)
        return hang_up(exchange)

    service.on(step, hang)
    try:
        if step in BEFORE_THE_START:
            with pytest.raises(PodmanSlow):
                podman.run(PLAN, work(), lambda: None)
        else:
            podman.run(PLAN, work(), lambda: None)
    finally:
        over.set()
    service.on(step, lambda _: False)
    podman.sweep()
    assert service.containers == {}


def trickle(data: bytes, over: threading.Event) -> Action:
    """Answer with these bytes, one at a time: each read gets something before any timeout of its own."""

    def answer(exchange: Exchange) -> bool:
        for byte in data:
            if over.wait(0.1):
                break
            exchange.wfile.write(bytes([byte]))
        return hang_up(exchange)

    return answer


LONG = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n" + b" " * 500
ENDLESS_HEADER = b"HTTP/1.1 101 UPGRADED\r\n" + b"X-Header: a value\r\n" * 50
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 90
TRICKLES = {"body": LONG, "header": ENDLESS_HEADER, "chunks": CHUNKS}


@pytest.mark.parametrize("how", TRICKLES)
@pytest.mark.parametrize("step", EVERY_STEP)
def test_s5_a_podman_that_trickles_is_given_up(
    service: FakePodman, podman: Podman, step: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, and the answer never does: the deadline is for all of it."""
    monkeypatch.setattr(containers, "STEP_MS", 400)
    monkeypatch.setattr(containers, "REMOVE_MS", 300)
    over = threading.Event()
    service.on(step, trickle(TRICKLES[how], over))
    try:
        if step in BEFORE_THE_START:
            with pytest.raises(PodmanSlow):
                podman.run(PLAN, work(), lambda: None)
        else:
            ended = podman.run(PLAN, work(), lambda: None)
            assert ended.stop is (Stop.BROKEN if step == "start" else Stop.END)
    finally:
        over.set()
    service.on(step, lambda _: False)
    podman.sweep()
    assert service.containers == {}


@pytest.mark.parametrize("ask", ["list", "exists", "info"])
def test_s5_what_is_asked_beside_a_call_is_given_up_as_well(
    service: FakePodman, podman: Podman, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "STEP_MS", 400)
    over = threading.Event()
    service.on(ask, trickle(LONG, over))
    asks: dict[str, Callable[[], object]] = {
        "list": podman.sweep,
        "info": podman.places,
        "exists": lambda: podman.has_image(PLAN.image),
    }
    try:
        with pytest.raises(PodmanSlow):
            asks[ask]()
    finally:
        over.set()


def test_s5_a_sweep_that_takes_too_long_leaves_the_rest_to_the_next_one(
    service: FakePodman, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        left = podman.ready(plans.shell("sleep 60"), plans.deadline())._running
        left._sock.close()
        left._api.close()
    later = Podman(service.path, clock=plans.CLOCK, owner="test")
    monkeypatch.setattr(containers, "SWEEP_MS", 0)
    assert later.sweep() == containers.Swept(removed=0, left=3)
    monkeypatch.undo()
    assert later.sweep() == containers.Swept(removed=3, left=0)


def test_s7_without_podman_nothing_runs(podman: Podman, service: FakePodman, effect: Path) -> None:
    """Statement 12: no fallback to the host, whatever is missing."""
    service.die()
    before = set(_children())
    for ask in (podman.sweep, podman.places, lambda: podman.has_image(PLAN.image)):
        with pytest.raises(PodmanAway):
            ask()
    with pytest.raises(PodmanAway):
        podman.run(plans.shell(f"touch {effect}"), work(), lambda: None)
    assert not effect.exists()
    assert set(_children()) == before


def _children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.mark.parametrize("at", ["started", "running"])
def test_s1_a_podman_that_is_killed_while_a_call_runs_leaves_an_end_that_is_not_known(
    service: FakePodman, podman: Podman, at: str
) -> None:
    def kill() -> None:
        service.die()

    if at == "running":
        threading.Timer(0.3, kill).start()
    ended = podman.run(plans.shell("sleep 20"), work(), kill if at == "started" else lambda: None)
    assert (ended.stop, ended.exit) == (Stop.BROKEN, None)


def test_s5_a_container_that_nobody_sees_end_is_given_up(
    service: FakePodman, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbours 42: where conmon is killed, the stream ends and the state stays "running" for ever."""
    monkeypatch.setattr(containers, "ENDING_MS", 100)
    ended = podman.run(plans.shell("exec >&- 2>&-; sleep 60"), work(), lambda: None)
    assert (ended.stop, ended.exit) == (Stop.BROKEN, None)
    assert service.containers == {}


def test_a_container_made_otherwise_is_not_started(service: FakePodman, podman: Podman, effect: Path) -> None:
    def twist(described: dict[str, Any]) -> None:
        described["HostConfig"]["Privileged"] = True

    service.twist = twist
    with pytest.raises(NotAsAsked, match="privileged"):
        podman.run(plans.shell(f"touch {effect}"), work(), lambda: None)
    assert not effect.exists()
    assert service.containers == {}


def test_inv_2_the_start_is_recorded_before_it_is_asked_for(service: FakePodman, podman: Podman) -> None:
    asked: list[str] = []
    podman.run(PLAN, work(), lambda: asked.extend(service.asked))
    assert asked == ["create", "init", "inspect", "attach"]
    assert service.asked[4] == "start"


def test_s5_a_container_that_will_not_go_is_left_to_the_sweep(service: FakePodman, podman: Podman) -> None:
    """Podman's issue 6520: without conmon the first removal fails, and later ones do not."""
    tries: list[str] = []

    def fail(exchange: Exchange) -> bool:
        tries.append(exchange.path)
        exchange.answer(200, [{"Id": "x", "Err": "conmon is gone"}])
        return True

    service.on("remove", fail)
    assert podman.run(PLAN, work(), lambda: None).exit == 0
    assert len(tries) == containers.REMOVE_TRIES
    assert podman.sweep().left == 1
    service.on("remove", lambda _: False)
    assert podman.sweep() == containers.Swept(removed=1, left=0)


def test_s5_a_service_that_ignores_the_filter_does_not_make_us_end_the_owners_containers(
    service: FakePodman, podman: Podman
) -> None:
    service.ignores_filters = True
    others = Podman(service.path, clock=plans.CLOCK, owner="the-owner")
    theirs = others.ready(attrs.evolve(plans.shell("sleep 60"), owner="the-owner"), plans.deadline())
    theirs.start(b"", plans.deadline())
    assert podman.sweep().removed == 0
    assert len(service.containers) == 1
    theirs.close()


def test_a_call_counts_as_running_before_podman_knows_of_it(service: FakePodman, podman: Podman) -> None:
    """A sweep between the making of a container and the moment that we hear of it must not take it."""
    removed: list[int] = []

    def sweep_meanwhile(_: Exchange) -> bool:
        service.on("init", lambda _: False)
        removed.append(podman.sweep().removed)
        return False

    service.on("init", sweep_meanwhile)
    assert podman.run(PLAN, work(), lambda: None).exit == 0
    assert removed == [0]


def test_the_leash_breaks_when_brokerd_is_gone(service: FakePodman, podman: Podman, effect: Path) -> None:
    """What holds the stream is the process: with it, stdin of the container ends."""
    service_container = podman.ready(plans.shell(f"cat; touch {effect}"), plans.deadline())
    service_container.start(b"", plans.deadline())
    running = service_container._running
    time.sleep(0.1)
    assert not effect.exists()
    running._sock.close()
    running._api.close()
    for _ in range(200):
        if effect.exists():
            break
        time.sleep(0.02)
    assert effect.exists()


def test_what_podman_says_of_paths_is_not_repeated(service: FakePodman, podman: Podman) -> None:
    service.on("init", refuse)
    with pytest.raises(PodmanRefused, match="permission denied") as caught:
        podman.run(PLAN, work(), lambda: None)
    assert "/some/path" not in str(caught.value)

    def name_a_path(exchange: Exchange) -> bool:
        exchange.refuse(500, "open /home/owner/secret: no")
        return True

    service.on("init", name_a_path)
    with pytest.raises(PodmanRefused) as caught:
        podman.run(PLAN, work(), lambda: None)
    assert "secret" not in str(caught.value)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_calls_leave_no_descriptor_behind(service: FakePodman, podman: Podman) -> None:
    podman.run(PLAN, work(), lambda: None)
    before = _descriptors()
    for _ in range(20):
        podman.run(PLAN, work(), lambda: None)
        with pytest.raises(RunnerUnavailable):
            podman.run(attrs.evolve(PLAN, image="0" * 64), work(), lambda: None)
    time.sleep(0.2)  # the service's own ends close a moment later
    assert _descriptors() <= before + 2
