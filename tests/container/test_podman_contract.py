"""brokerd.containers against Podman: the same tests for the fake and for the real service.

What the fake gets wrong, one of the two runs shows: the other tests may rely on it.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from brokerd.containerplan import Plan
from brokerd.containers import Podman, Work
from brokerd.exited import Exited, Stop
from brokerd.runnerfaults import ImageMissing, PodmanRefused
from deploy.local.toolhost import ToolHost
from tests.container import podman_peer
from tests.container.podman_peer import Peer
from tests.fakes import plans
from tests.fakes.plans import MIB, work


@pytest.fixture(params=["fake", "real"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    if request.param == "fake":
        # Short enough for a socket's name, which pytest's own directories need not be.
        with tempfile.TemporaryDirectory(prefix="bxm") as directory, podman_peer.fake(Path(directory)) as chosen:
            yield chosen
    else:
        yield podman_peer.real(request.getfixturevalue("tool_host"), owner="contract-test")


def run(peer: Peer, command: str, given: Work | None = None) -> Exited:
    return peer.podman.run(plans.shell(command, peer.plan), given or work(), lambda: None)


def leave(peer: Peer, plan: Plan) -> None:
    """Leave a container behind, as a brokerd that was killed does."""
    gone = Podman(peer.podman.path, clock=plans.CLOCK, owner=plan.owner)
    service = gone.ready(plan, plans.deadline())
    service.start(b"", plans.deadline())
    running = service._running
    running._sock.close()
    running._api.close()


def test_stdout_and_the_exit_code_come_back(peer: Peer) -> None:
    assert run(peer, "echo hello; exit 7") == Exited(
        stop=Stop.END, exit=7, stdout=b"hello\n", size=6, out_of_memory=False
    )


def test_stderr_is_counted_and_kept_apart(peer: Peer) -> None:
    ended = run(peer, "echo out; echo error >&2")
    assert (ended.stdout, ended.size) == (b"out\n", 10)


def test_nothing_is_lost_of_a_long_output(peer: Peer) -> None:
    ended = run(peer, "head -c 3000000 /dev/zero; echo end", work(output_bytes=4 * MIB))
    assert (ended.stop, ended.exit, ended.stdout) == (Stop.END, 0, bytes(3_000_000) + b"end\n")


def test_stdin_arrives_whole_while_output_is_read(peer: Peer) -> None:
    payload = bytes(range(256)) * 4_000
    ended = run(peer, f"head -c {len(payload)}", work(payload, output_bytes=4 * MIB))
    assert ended.stdout == payload


def test_who_does_not_want_its_input_may_end(peer: Peer) -> None:
    """Podman may lose its output then: ours read all of their input before they say a word."""
    ended = run(peer, "echo no", work(bytes(2_000_000)))
    assert ended.exit == 0
    assert ended.stdout in {b"no\n", b""}


def test_stdin_stays_open_as_long_as_the_call(peer: Peer) -> None:
    ended = run(peer, "cat; echo ended", work(b"x", ms=1_500))
    assert (ended.stop, ended.stdout) == (Stop.DEADLINE, b"x")


def test_a_container_without_a_voice_is_waited_for(peer: Peer) -> None:
    assert run(peer, "exec >&- 2>&-; sleep 0.3; exit 3").exit == 3


def test_a_container_without_a_voice_ends_at_the_deadline(peer: Peer) -> None:
    ended = run(peer, "exec >&- 2>&-; sleep 60", work(ms=1_500))
    assert (ended.stop, ended.exit) == (Stop.DEADLINE, None)
    assert peer.containers() == set()


ENDED: dict[str, tuple[str, Work, Stop]] = {
    "deadline": ("sleep 60", work(ms=1_000), Stop.DEADLINE),
    "output": ("yes", work(output_bytes=100_000, ms=60_000), Stop.OUTPUT),
    "errors": ("yes >&2", work(output_bytes=100_000, ms=60_000), Stop.OUTPUT),
    "cancelled": ("sleep 60", work(cancelled=True), Stop.CANCELLED),
}


@pytest.mark.parametrize("ending", ENDED)
def test_s5_s6_what_must_end_is_ended_with_all_in_it(peer: Peer, ending: str) -> None:
    command, given, stop = ENDED[ending]
    ended = run(peer, f"trap '' TERM; {command} & {command}; wait", given)
    assert (ended.stop, ended.exit) == (stop, None)
    assert len(ended.stdout) <= given.output_bytes
    assert peer.containers() == set()


def test_nothing_is_left_after_a_call(peer: Peer) -> None:
    run(peer, "true")
    assert peer.containers() == set()


def test_nothing_runs_where_the_start_could_not_be_recorded(peer: Peer) -> None:
    class Unrecorded(Exception):
        pass

    def refuse() -> None:
        raise Unrecorded

    with pytest.raises(Unrecorded):
        peer.podman.run(plans.shell("sleep 60", peer.plan), work(), refuse)
    assert peer.containers() == set()


def test_s7_a_missing_image_is_said_and_nothing_is_made(peer: Peer) -> None:
    assert peer.podman.has_image(peer.plan.image)
    assert not peer.podman.has_image("0" * 64)
    with pytest.raises(ImageMissing):
        peer.podman.run(attrs.evolve(peer.plan, image="0" * 64), work(), lambda: None)
    assert peer.containers() == set()


def test_s5_what_was_left_behind_is_swept_by_our_label_alone(peer: Peer) -> None:
    """Row S5, issues 6520 and 8524 of Podman: what a killed brokerd left, and what is the owner's own."""
    for call in range(3):
        leave(peer, attrs.evolve(plans.shell("sleep 600", peer.plan), call=call))
    leave(peer, attrs.evolve(plans.shell("sleep 600", peer.plan), owner="somebody-else"))
    before = peer.containers()
    try:
        assert peer.podman.sweep().removed == 3
        left = peer.containers()
        assert len(left) == 1
        assert left < before
    finally:
        Podman(peer.podman.path, clock=plans.CLOCK, owner="somebody-else").sweep()
    assert peer.podman.sweep().removed == 0


def test_a_call_that_runs_is_not_swept(peer: Peer) -> None:
    def sweep() -> None:
        assert peer.podman.sweep().removed == 0

    assert peer.podman.run(plans.shell("echo still here", peer.plan), work(), sweep).stdout == b"still here\n"


def test_a_service_container_talks_until_it_is_closed(peer: Peer) -> None:
    service = peer.podman.ready(plans.shell("read line; echo got $line; cat", peer.plan), plans.deadline())
    assert service.read(most_bytes=1_000) == b""
    service.start(b"x\n", plans.deadline())
    said = b""
    while not said:
        said = service.read(most_bytes=1_000)
    assert said == b"got x\n"
    service.close()
    assert peer.containers() == set()


def test_a_program_that_is_not_there_never_counts_as_started(tool_host: ToolHost) -> None:
    """Real alone: the fake starts what this machine has."""
    peer = podman_peer.real(tool_host, owner="contract-test")
    started: list[bool] = []
    with pytest.raises(PodmanRefused):
        peer.podman.run(attrs.evolve(peer.plan, argv=("/no/such", "x")), work(), lambda: started.append(True))
    assert started == []
    assert peer.containers() == set()
