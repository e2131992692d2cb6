"""The runner with real containers: paths that change under it (rows P2 to P5, P8, P11) and limits (rows S5, S6)."""

import contextlib
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from brokerd import mounts, reach
from brokerd.containerplan import Ids
from brokerd.containers import Api
from brokerd.exited import Stop
from brokerd.mounts import MountDenied
from brokerd.reach import ToolUser
from brokerd.runner import Runner
from brokerd.runnerfaults import ImageMissing, PodmanRefused, RunnerUnavailable
from bxcore.deadline import Deadline
from bxcore.tools import TOOLS
from bxcore.wire.tools import ToolFailed, ToolResult
from deploy.local.toolhost import ToolHost
from tests.container import podman_peer, realrunner
from tests.container.realrunner import RealRunner, resolved
from tests.fakes import calls, plans

PYTHON = Path(__file__).resolve().parents[2] / "python"
SECRET = "the secret of somebody else"


@pytest.fixture
def real(tool_host: ToolHost, tmp_path: Path) -> Iterator[RealRunner]:
    with realrunner.real_runner(tool_host, tmp_path, "runner-test") as made:
        (made.outside / "secret").write_text(SECRET)
        made.give(made.outside / "secret")
        yield made


def text(answer: ToolResult | ToolFailed) -> str:
    return answer.content if isinstance(answer, ToolResult) else f"FAILED {answer.message}"


# -- what works ---------------------------------------------------------------------------------


def test_each_tool_with_a_path_does_its_work(real: RealRunner) -> None:
    real.write("a.txt", "one\ntwo\n")
    assert "two" in text(real.answer(resolved("read_file", real.files / "a.txt")))
    assert "a.txt" in text(real.answer(resolved("list_directory", real.files)))
    found = real.answer(calls.call("search_files", text=f'{{"path":"{real.files}","query":"two"}}'))
    assert "a.txt" in text(found)
    real.answer(resolved("write_file", real.files / "new"))
    assert (real.files / "new").read_text() == "x"
    real.answer(resolved("edit_file", real.files / "new"))
    assert (real.files / "new").read_text() == "y"
    assert "from the shell" in real.shell("echo from the shell; touch made")
    assert (real.files / "made").stat().st_uid == real.host.user.uid


def test_two_calls_share_nothing(real: RealRunner) -> None:
    real.shell("cd /tmp; echo here > mark; sleep 100 &")
    assert "here" not in real.shell("cd /tmp; cat mark; ps")


def test_a_granted_path_that_the_tool_user_cannot_reach_is_said(real: RealRunner) -> None:
    if not real.host.user.own:
        pytest.skip("the tools run as the user who tests, who may read his own files")
    closed = real.files / "closed"
    closed.mkdir(mode=0o700)
    (closed / "a.txt").write_text(SECRET)
    os.chown(closed, 0, 0)
    with pytest.raises(MountDenied, match="the user that tools run as may not reach this path"):
        real.answer(resolved("read_file", closed / "a.txt"))
    user = ToolUser.of(real.host.api_socket)
    assert user is not None
    said = reach.obstacle(str(closed / "a.txt"), TOOLS["read_file"], user)
    assert said == f"the user that tools run as (uid {real.host.user.uid}) may not enter {closed}"


def test_a_path_that_an_acl_opens_is_read_and_not_warned_of(real: RealRunner) -> None:
    if not real.host.user.own:
        pytest.skip("the tools run as the user who tests, who may read his own files")
    file = real.files / "by-acl.txt"
    file.write_text("opened")
    file.chmod(0o600)
    os.chown(file, 0, 0)
    user = ToolUser.of(real.host.api_socket)
    assert user is not None
    assert reach.obstacle(str(file), TOOLS["read_file"], user) is not None
    try:
        os.setxattr(file, "system.posix_acl_access", acl_for(user.uid))
    except OSError:
        pytest.skip("this file system has no ACLs")
    assert reach.obstacle(str(file), TOOLS["read_file"], user) is None
    assert text(real.answer(resolved("read_file", file))).endswith("opened")


def acl_for(uid: int) -> bytes:
    """Return the ACL u::rw-,u:UID:r--,g::---,m::r--,o::--- as the kernel keeps it."""
    nobody, entries = 0xFFFFFFFF, [(0x01, 6), (0x02, 4), (0x04, 0), (0x10, 4), (0x20, 0)]
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, may, uid if tag == 0x02 else nobody) for tag, may in entries
    )


# -- paths --------------------------------------------------------------------------------------


def test_p1_p2_a_link_in_the_granted_directory_leads_nowhere_inside(real: RealRunner) -> None:
    for name, target in (("up", "../outside"), ("abs", str(real.outside)), ("etc", "/etc/shadow"), ("self", "self")):
        (real.files / name).symlink_to(target)
    said = real.shell("cat up/secret abs/secret etc self ../outside/secret; ls ..; ls -R")
    assert SECRET not in said
    assert "root:" not in said
    found = calls.call("search_files", text=f'{{"path":"{real.files}","query":"secret"}}')
    assert SECRET not in text(real.answer(found))


def test_p5_the_kernels_trees_inside_are_the_containers_own(real: RealRunner) -> None:
    said = real.shell("cat /proc/self/root/etc/passwd; ls /proc/self/root; cat /proc/1/environ; ls -l /dev/fd/")
    assert "root:x:0:0:root:/root" not in said
    assert "home" not in said.split()


def swapping(place: Path, first: Path, second: Path) -> Callable[[threading.Event], None]:
    """Return a loop that puts now `first`, now `second` in the place, in one step each."""

    def swap(end: threading.Event) -> None:
        aside = place.with_name(f"{place.name}.aside")
        while not end.is_set():
            for source in (second, first):
                if source.is_symlink() or source.is_file():
                    os.link(source, aside, follow_symlinks=False)
                else:
                    aside.symlink_to(source)
                aside.replace(place)
                time.sleep(0.001)

    return swap


@contextlib.contextmanager
def running(loop: Callable[[threading.Event], None]) -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=loop, args=(end,))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def test_p3_a_file_that_is_swapped_all_the_time_never_shows_another(real: RealRunner) -> None:
    """30 real calls; the same race 5,000 times without containers is in tests/unit/brokerd/test_mounts.py."""
    place = real.write("a.txt", "harmless")
    harmless = real.write("harmless", "harmless")
    link = real.outside / "link"
    link.symlink_to(real.outside / "secret")
    call = calls.call(path=str(place))
    outcomes: list[str] = []
    with running(swapping(place, harmless, link)):
        for _ in range(30):
            try:
                outcomes.append(text(real.answer(call)))
            except RunnerUnavailable as refused:  # by us, or by Podman, where there was nothing for a moment
                outcomes.append(str(refused))
    assert not [outcome for outcome in outcomes if SECRET in outcome]
    assert len(set(outcomes)) > 1, "the race was never met"


def test_p3_a_directory_that_becomes_a_link_right_before_the_mount_is_not_opened(real: RealRunner) -> None:
    """The worst moment: after the plan, before Podman mounts. What it then mounts is seen by the wrapper."""
    inner = real.files / "inner"
    inner.mkdir()
    (inner / "secret").write_text("harmless")
    real.give(inner)
    real.give(inner / "secret")
    original = mounts.plan

    def plan_then_swap(*args: object) -> tuple[mounts.Mount, ...]:
        planned = original(*args)  # type: ignore[arg-type]
        if inner.is_dir() and not inner.is_symlink():
            inner.rename(real.files / "moved")
            inner.symlink_to(real.outside)
        return planned

    real.runner.tend()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mounts, "plan", plan_then_swap)
        answer = real.answer(calls.call(path=str(inner / "secret")))
    assert isinstance(answer, ToolFailed)
    assert "no longer the file or directory" in answer.message


def test_p4_a_directory_that_is_renamed_while_a_call_runs_stays_the_one_that_was_decided(real: RealRunner) -> None:
    inner = real.files / "inner"
    inner.mkdir()
    (inner / "mine").write_text("x")
    real.give(inner)

    def rename(*_: object) -> None:
        inner.rename(real.files / "moved")
        inner.mkdir()
        (inner / "other").write_text("x")

    answer = real.answer(resolved("list_directory", inner), rename)
    assert "mine" in text(answer)
    assert "other" not in text(answer)


def test_p8_what_is_no_regular_file_inside_holds_nobody_up(real: RealRunner) -> None:
    os.mkfifo(real.files / "pipe")
    with (real.files / "huge").open("wb") as huge:
        huge.truncate(1024**4)
    real.give(real.files / "huge")
    for name in ("pipe", "huge"):
        real.give(real.files / name)
    assert "pipe" in text(real.answer(resolved("list_directory", real.files)))
    found = calls.call("search_files", text=f'{{"path":"{real.files}","query":"x"}}')
    assert isinstance(real.answer(found), ToolResult)
    assert isinstance(real.answer(resolved("read_file", real.files / "huge")), ToolResult)


BIND = """
import json, os, subprocess, sys
sys.path[:0] = [{python!r}, {root!r}]
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "--bind", {shown!r}, {alias!r}], check=True)
from pathlib import Path
from brokerd import mounts
from brokerd.protected import Protected
from tests.fakes import calls
ours = Protected(whole=(Path({ours!r}),))
said = []
for tool, path in {asked!r}:
    try:
        mounts.plan(calls.call(tool, path=path), ours)
        said.append("planned")
    except mounts.MountRefused as refused:
        said.append(str(refused))
print(json.dumps(said))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts; by inodes alone it is tested in test_mounts.py")
@pytest.mark.parametrize("part", [".", "deep/er"])
def test_p11_a_bind_mount_of_ours_elsewhere_is_no_way_round(tmp_path: Path, part: str) -> None:
    ours, above = tmp_path / "grants", tmp_path / "granted"
    alias = above / "alias"
    (ours / "deep" / "er").mkdir(parents=True)
    alias.mkdir(parents=True)
    for directory in (ours, ours / part):
        (directory / "a.toml").write_text("x")
    asked = (
        *(("read_file", f"{alias}/a.toml"), ("list_directory", f"{alias}"), ("write_file", f"{alias}/new")),
        ("shell", f"{above}"),
    )
    given = {"python": str(PYTHON), "root": str(PYTHON.parent), "ours": str(ours), "shown": str(ours / part)}
    program = BIND.format(**given, alias=str(alias), asked=asked)
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.count("Boxmaker's own") == 3, done.stdout
    assert done.stdout.count("another file system is mounted below") == 1
    assert "planned" not in done.stdout


# -- limits -------------------------------------------------------------------------------------


def test_s6_a_fork_bomb_ends_with_its_call(real: RealRunner) -> None:
    said = real.shell("bomb() { bomb | bomb & }; bomb; sleep 2; echo survived", timeout_ms=8_000)
    assert "fork" in said or "Resource temporarily unavailable" in said
    assert real.left() == []


def test_s6_a_process_that_takes_all_memory_is_refused_it(real: RealRunner) -> None:
    said = real.shell("python3 -c 'x = bytearray(1 << 30); print(len(x))'")
    assert "MemoryError" in said
    assert "1073741824" not in said


def test_s6_endless_output_is_stopped_and_the_limit_named(real: RealRunner) -> None:
    said = real.shell("yes | head -c 10000000000", timeout_ms=60_000)
    assert "limit" in said.splitlines()[0]
    assert real.left() == []


def test_s6_a_tool_that_floods_brokerd_itself_is_stopped(real: RealRunner) -> None:
    """Not even the wrapper could: here the container's own program writes without end."""
    call = calls.call(path=str(real.write("a.txt", "x")))
    plan = real.runner._plan(call, 1, real.runner.image(), ())
    flood = attrs.evolve(plan, argv=("/bin/sh", "-c", "yes; true"), ids=Ids.OWN)
    ended = real.podman.run(flood, plans.work(output_bytes=1_000_000), lambda: None)
    assert (ended.stop, len(ended.stdout)) == (Stop.OUTPUT, 1_000_000)


def test_s6_the_small_directory_is_small(real: RealRunner) -> None:
    said = real.shell("cd /tmp; head -c 100000000 /dev/zero > full; wc -c < full")
    assert int(said.split()[-1]) == realrunner.SMALL.tmpfs_bytes


def test_s6_a_file_may_not_grow_without_end(real: RealRunner) -> None:
    said = real.shell("head -c 100000000 /dev/zero > big; wc -c < big")
    assert (real.files / "big").stat().st_size <= realrunner.SMALL.file_bytes
    assert "File size limit" in said or "too large" in said or str(realrunner.SMALL.file_bytes) in said


def test_s6_a_hundred_thousand_files_end_with_their_call(real: RealRunner) -> None:
    many = "import os\nfor n in range(100000):\n os.close(os.open(str(n), os.O_CREAT))\nprint('made')"
    said = real.shell(f'cd /tmp; python3 -c "{many}"', timeout_ms=60_000)
    assert "made" in said or "No space left" in said
    assert "empty" in real.shell('test -z "$(ls /tmp)" && echo empty')


def test_s6_a_set_user_program_gives_nothing(real: RealRunner) -> None:
    said = real.shell("cp /bin/busybox su; chmod 4755 su; ./su id -u; cp su /tmp; cd /tmp; ./su id -u; id -u")
    assert "Permission denied" in said
    assert [line for line in said.splitlines() if line.isdecimal()] == ["1000"]


def test_s5_a_call_that_ignores_every_signal_ends_at_its_time(real: RealRunner) -> None:
    kind = attrs.evolve(TOOLS["shell"], default_ms=2_500)
    command = 'trap \\"\\" TERM INT HUP; setsid sh -c \\"trap \'\' TERM; sleep 600\\" & sleep 600'
    call = calls.call("shell", text=f'{{"directory":"{real.files}","command":"{command}"}}')
    ran = real.run(attrs.evolve(call, kind=kind))
    assert ran.exited.stop is Stop.DEADLINE
    assert real.left() == []
    assert _processes("sleep 600") == []


def test_s5_a_cancelled_call_ends_with_all_in_it(real: RealRunner) -> None:
    begun = threading.Event()
    call = calls.call("shell", text=f'{{"directory":"{real.files}","command":"sleep 601"}}')
    ran = real.run(call, started=lambda *_: begun.set(), cancelled=begun.is_set)
    assert ran.exited.stop is Stop.CANCELLED
    assert _processes("sleep 601") == []


def _processes(words: str) -> list[int]:
    """Return the processes of this machine whose command line holds these words."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdecimal() and words in (path / "cmdline").read_text().replace("\0", " "):
                found.append(int(path.name))
    return [pid for pid in found if pid != os.getpid()]


def test_s5_two_hundred_left_overs_are_gone_after_the_first_sweep(tool_host: ToolHost) -> None:
    """Made, never started: what a brokerd leaves that is killed again and again. One is not ours."""
    peer = podman_peer.real(tool_host, owner="sweep-test")
    plan = attrs.evolve(peer.plan, ids=Ids.HOST_USER)  # ranges of their own would run out
    with contextlib.closing(Api(peer.podman.path, Deadline.after(plans.CLOCK, milliseconds=200_000))) as api:
        for one in [plan] * 200 + [attrs.evolve(plan, owner="the-owner")]:
            api.ask("POST", "/containers/create", one.spec(), accept=(201,))
    try:
        assert peer.podman.sweep().removed == 200
        assert len(peer.containers()) == 1
    finally:
        podman_peer.real(tool_host, owner="the-owner").podman.sweep()


def test_s7_another_image_than_the_one_named_is_not_used(real: RealRunner, tmp_path: Path) -> None:
    named = tmp_path / "image-id"
    settings = realrunner.settings(real.host, tmp_path)
    settings = attrs.evolve(settings, podman=attrs.evolve(settings.podman, image_file=named))
    named.write_text("0" * 64)
    runner = Runner(settings, podman=real.podman, egress=None, clock=plans.CLOCK, protected=real.runner._protected)
    with pytest.raises(ImageMissing):
        runner.effects(calls.call(path=str(real.write("a.txt", "x"))))


def test_s7_a_missing_seccomp_profile_means_no_container(real: RealRunner) -> None:
    call = calls.call(path=str(real.write("a.txt", "x")))
    plan = real.runner._plan(call, 1, real.runner.image(), ())
    with pytest.raises(PodmanRefused):
        real.podman.run(attrs.evolve(plan, seccomp="/no/such/profile.json"), plans.work(), lambda: None)
