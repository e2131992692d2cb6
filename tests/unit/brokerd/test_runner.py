"""brokerd.runner, with the fake Podman, and the toolkit's own programs as processes of this machine."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from brokerd import mounts, policy, results, tending
from brokerd import runner as runner_module
from brokerd.call import FRESH
from brokerd.containers import Podman, Swept
from brokerd.mounts import Mount, MountDenied, MountRefused
from brokerd.probe import Held
from brokerd.runner import order, protected_by
from brokerd.runnerfaults import ImageMissing, PodmanAway, PodmanRefused, RunnerUnavailable, Unenforced
from brokerd.tending import Tending
from bxcore import paths, tools
from bxcore.ids import Hash32
from bxcore.tools import TOOLS
from bxcore.wire.tools import ToolFailed, ToolResult
from tests.fakes import calls, plans
from tests.fakes.podman import IMAGE, Exchange
from tests.fakes.runnerplace import ALL_WALLS, Place, decided, probed, run


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="bxm") as name:
        made = Place(Path(name).resolve())
        with made.service:
            yield made


def test_a_decision_runs_and_its_result_comes_back(place: Place) -> None:
    answer, back = results.of(run(place.runner(), decided(calls.call(path=str(place.file)))), FRESH)
    assert isinstance(answer, ToolResult)
    assert "hello" in answer.content
    assert back.exit == 0


def test_a_tools_own_error_is_the_tools(place: Place) -> None:
    place.file.write_bytes(b"\x00\xff\xfe\x00" * 100)
    answer, _ = results.of(run(place.runner(), decided(calls.call(path=str(place.file)))), FRESH)
    assert isinstance(answer, ToolResult)


def test_inv_2_the_start_is_told_with_the_image_and_the_hash_of_what_was_asked_for(place: Place) -> None:
    specs: list[Any] = []
    told: list[tuple[str, Hash32]] = []
    place.service.twist = lambda described: specs.append(described["Config"]["Labels"])

    def started(image: str, plan: Hash32) -> None:
        told.append((image, plan))
        assert place.service.asked[-1] == "attach"

    runner = place.runner()
    run(runner, decided(calls.call(path=str(place.file))), started)
    ((image, digest),) = told
    assert image == IMAGE
    assert len(digest) == 64
    assert specs[-1]["boxmaker.call"] == "5"


def test_inv_2_a_decision_runs_once(place: Place) -> None:
    runner, decision = place.runner(), decided(calls.call(path=str(place.file)))
    run(runner, decision)
    before = list(place.service.asked)
    with pytest.raises(policy.SealError):
        run(runner, decision)
    assert place.service.asked == before


@pytest.mark.parametrize("fake", [None, "x", object()])
def test_inv_2_nothing_else_runs(place: Place, fake: Any) -> None:
    with pytest.raises(policy.SealError):
        run(place.runner(), fake)
    assert place.service.asked == []


def test_what_cannot_be_recorded_does_not_run(place: Place) -> None:
    target = place.directory / "files" / "new"
    call = calls.call("write_file", path=str(target))

    def refuse(*_: object) -> None:
        raise OSError(28, "no space left")

    with pytest.raises(OSError, match="no space"):
        run(place.runner(), decided(call), refuse)
    assert not target.exists()
    assert place.service.containers == {}


def test_p3_what_was_swapped_before_the_run_does_not_run(place: Place) -> None:
    decision = decided(calls.call(path=str(place.file)))
    place.file.unlink()
    place.file.symlink_to("/etc/passwd")
    with pytest.raises(MountRefused, match="link now"):
        run(place.runner(), decision)
    assert place.service.asked.count("create") == 2, "the probe's alone"


def forbidden(exchange: Exchange) -> bool:
    exchange.refuse(500, "permission denied")
    return True


@pytest.mark.parametrize("step", ["create", "init"])
def test_a_path_that_the_tool_user_may_not_reach_is_named_as_that(place: Place, step: str) -> None:
    runner = place.runner()
    decision = decided(calls.call(path=str(place.file)))
    runner.effects(calls.call(path=str(place.file)))  # the probe is over
    place.service.on(step, forbidden)
    with pytest.raises(MountDenied, match="the user that tools run as may not reach this path") as caught:
        run(runner, decision)
    assert caught.value.code == "mount_denied"
    assert place.service.containers == {}


def test_a_permission_that_no_path_can_be_the_cause_of_is_podmans_own(place: Place) -> None:
    place.service.on("create", forbidden)
    with pytest.raises(PodmanRefused, match="permission denied") as caught:
        run(place.runner(), decided(calls.call(path=str(place.file))))
    assert caught.value.code == "podman_refused"


def test_p3_what_is_swapped_between_the_plan_and_the_mount_is_seen_by_the_wrapper(place: Place) -> None:
    """The plan says which inode; the wrapper looks at what was mounted, before it reads anything."""
    secret = place.directory / "secret"
    secret.write_text("secret")

    def swap(*_: object) -> None:
        place.file.unlink()
        secret.rename(place.file)

    answer, back = results.of(run(place.runner(), decided(calls.call(path=str(place.file))), swap), FRESH)
    assert isinstance(answer, ToolFailed)
    assert "no longer the file or directory" in answer.message
    assert back.exit == 2


def test_the_order_is_the_one_that_the_wrapper_reads(place: Place) -> None:
    from toolkit import order as wrapper

    call = calls.call(path=str(place.file))
    huge = Mount(source=str(place.file), destination=str(place.file), writable=False, device=3, inode=2**64 - 1)
    read = wrapper.read(order(call, (huge,))[:-1])
    assert (read.tool, read.arguments, read.proxy) == ("read_file", call.arguments, None)
    assert [(mount.path, mount.device, mount.inode) for mount in read.mounts] == [(str(place.file), 3, 2**64 - 1)]
    fetch = wrapper.read(order(calls.call("http_fetch"), (place.egress.mount,))[:-1])
    assert (fetch.mounts, fetch.proxy) == ((), "/egress/proxy.sock")


def test_arguments_that_just_fitted_still_do_with_the_longest_path_that_they_may_lead_to(place: Place) -> None:
    """A write at the limit, through a short link to a name that is all quotation marks."""
    from toolkit import order as wrapper

    empty = calls.call("write_file", text='{"path":"/l","content":""}')
    size = len(tools.canonical(empty.arguments))
    content = "x" * (tools.MAX_ARGUMENT_BYTES - size)
    call = calls.call("write_file", text=f'{{"path":"/l","content":"{content}"}}')
    assert len(tools.canonical(call.arguments)) == tools.MAX_ARGUMENT_BYTES
    real = ("/" + '"' * 255) * 16
    assert len(real) == paths.MAX_BYTES
    line = order(attrs.evolve(call, path=real), ())
    read = wrapper.read(line[:-1])
    assert tools.asked_path(read.arguments) == real
    assert len(line) <= wrapper.MOST_BYTES


def test_the_wrapper_is_told_the_path_that_was_decided_not_the_asked_one(place: Place) -> None:
    link = place.directory / "files" / "link"
    link.symlink_to(place.file)
    call = attrs.evolve(calls.call(path=str(link)), path=mounts.resolve(str(link), TOOLS["read_file"]))
    answer, _ = results.of(run(place.runner(), decided(call)), FRESH)
    assert isinstance(answer, ToolResult)
    assert "hello" in answer.content


# -- the image, and what is proved of it --------------------------------------------------------

IMAGE_FILES = {"empty": "", "two": f"{IMAGE}\n{IMAGE}\n", "a name": "localhost/tools:latest\n", "short": "abc\n"}


@pytest.mark.parametrize("text", IMAGE_FILES.values(), ids=IMAGE_FILES.keys())
def test_s7_an_image_that_is_not_named_by_its_id_is_none(place: Place, text: str) -> None:
    (place.directory / "image").write_text(text)
    with pytest.raises(ImageMissing):
        place.runner().effects(calls.call(path=str(place.file)))


def test_s7_an_image_that_went_away_or_changed_is_seen_at_the_next_call(place: Place) -> None:
    runner, call = place.runner(), calls.call(path=str(place.file))
    assert runner.effects(call).image == IMAGE
    place.service.images.clear()
    with pytest.raises(ImageMissing):
        runner.effects(call)
    with pytest.raises(ImageMissing):
        run(runner, decided(call))
    (place.directory / "image").unlink()
    with pytest.raises(ImageMissing):
        runner.effects(call)


def test_the_image_may_be_written_as_podman_shows_it(place: Place) -> None:
    (place.directory / "image").write_text(f"sha256:{IMAGE}")
    assert place.runner().image() == IMAGE


def test_what_holds_here_is_found_out_once_an_image(place: Place) -> None:
    runner, call = place.runner(), calls.call(path=str(place.file))
    runner.effects(call)
    assert runner.held == Held(held=("time", "output", "open files"), missing=("cpu", "memory"))
    made = place.service.asked.count("create")
    runner.effects(call)
    assert place.service.asked.count("create") == made
    place.service.images.add("6" * 64)
    (place.directory / "image").write_text("6" * 64)
    runner.effects(call)
    assert place.service.asked.count("create") == made + 2


def test_a_container_that_dies_of_its_memory_proves_the_limit(place: Place) -> None:
    place.takes_memory = f"echo {2**30}; kill -9 $$"
    runner = place.runner()
    runner.tend()
    assert runner.held is not None
    assert "memory" in runner.held.held


@pytest.mark.parametrize("said", ["", f"echo {2**28};", "echo plenty;"])
def test_a_container_that_a_machine_without_memory_may_have_killed_proves_nothing(place: Place, said: str) -> None:
    place.takes_memory = f"{said} kill -9 $$"
    runner = place.runner()
    runner.tend()
    assert runner.held is not None
    assert "memory" in runner.held.missing


PROBES = {
    "a wall that does not hold": probed(walls={**dict.fromkeys(ALL_WALLS, True), "network": False}),
    "nothing": "",
    "nonsense": "Traceback",
    "something else": '{"walls":{}}',
}


@pytest.mark.parametrize("says", PROBES.values(), ids=PROBES.keys())
def test_no_tool_runs_where_a_wall_was_not_seen_to_hold(place: Place, says: str) -> None:
    place.says = says
    runner, call = place.runner(), calls.call(path=str(place.file))
    for _ in range(2):
        with pytest.raises(Unenforced):
            runner.effects(call)
    with pytest.raises(Unenforced):
        run(runner, decided(call))
    assert runner.held is None


# -- effects ------------------------------------------------------------------------------------


def test_effects_say_what_a_yes_is_a_yes_to(place: Place) -> None:
    effects = place.runner().effects(calls.call("write_file", path=f"{place.directory}/files/new"))
    (mount,) = effects.mounts
    assert (mount.source, mount.writable) == (f"{place.directory}/files", True)
    assert effects.hosts == ()
    assert effects.image == IMAGE
    assert "20 s" in effects.limits


def test_effects_of_a_fetch_are_its_host_and_no_file(place: Place) -> None:
    effects = place.runner().effects(calls.call("http_fetch"))
    assert (effects.mounts, effects.hosts) == ((), ("https://example.org:443",))


def test_p11_the_runners_own_files_and_podmans_store_are_no_tools(place: Place) -> None:
    (place.directory / "storage").mkdir()
    config = place.directory / "etc" / "brokerd.toml"
    config.parent.mkdir()
    config.write_text("")
    runner = place.runner(protected=protected_by(place.settings, config=config))
    for path in (place.directory, place.directory / "storage", config.parent, place.directory / "image"):
        with pytest.raises(MountRefused, match="Boxmaker's own"):
            runner.effects(calls.call("search_files", path=str(path)))


# -- tending ------------------------------------------------------------------------------------


def test_tending_sweeps_and_proves(place: Place) -> None:
    left = attrs.evolve(plans.shell("sleep 60"), owner="test")
    service = place.podman.ready(left, plans.deadline())
    service.start(b"", plans.deadline())
    runner = place.runner(podman=Podman(place.service.path, clock=plans.CLOCK, owner="test"))
    assert runner.tend().removed == 1
    assert runner.held is not None
    service.close()


def test_the_first_round_can_be_waited_for_and_need_not_be() -> None:
    go_on = threading.Event()

    def tend() -> Swept:
        go_on.wait(20)
        return Swept(removed=0, left=0)

    loop = Tending(tend, every_ms=60_000)
    loop.start()
    assert not loop.first(seconds=0.05)
    go_on.set()
    assert loop.first(seconds=20)
    loop.stop()


def test_a_call_does_not_wait_for_ever_for_a_probe_that_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "PROVING_S", 0.05)
    made, asked = place.runner(), threading.Event()
    go_on = threading.Event()

    def hold(_: Exchange) -> bool:
        asked.set()
        go_on.wait(20)
        return False

    place.service.on("info", hold)
    first = threading.Thread(target=made.tend)
    first.start()
    try:
        assert asked.wait(20)
        with pytest.raises(RunnerUnavailable, match="still being tried"):
            made.effects(calls.call(path=str(place.file)))
    finally:
        go_on.set()
        first.join()
    assert made.effects(calls.call(path=str(place.file))).image == IMAGE


def test_tending_goes_on_after_anything_and_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    rounds: list[int] = []
    enough = threading.Event()

    def tend() -> Swept:
        rounds.append(1)
        if len(rounds) == 6:
            enough.set()
        if len(rounds) < 4:
            raise PodmanAway("away")
        if len(rounds) == 4:
            raise ValueError("a fault of ours")
        return Swept(removed=0, left=0)

    loop = Tending(tend, every_ms=1, away_ms=1)
    loop.start()
    assert enough.wait(20)
    loop.stop()
    assert sum("no tool can run" in record.message for record in caplog.records) == 1
    assert tending.AWAY_MS > 0
