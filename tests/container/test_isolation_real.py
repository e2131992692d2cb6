"""What one call sees and can do, looked at from inside a real container: INV-9, and statements 12, 17 and 18.

The container is made from the very plan that the runner makes for a call; only the program in it is another.
"""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from brokerd import mounts, probe
from brokerd.containerplan import ENVIRONMENT, Ids, Plan
from brokerd.runner import Runner
from brokerd.runnerfaults import Unenforced
from deploy.local.toolhost import ToolHost
from tests.container import realrunner
from tests.container.realrunner import RealRunner
from tests.fakes import calls
from tests.fakes.plans import MIB, work

PROGRAM = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
REFUSED = {"Operation not permitted", "Function not implemented", "Address family not supported by protocol"}


class Canary:
    """Listens on the host, by TCP, UDP and an abstract name, and counts whatever comes."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("0.0.0.0", 0))
        self.port: int = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("0.0.0.0", self.port))
        self.name = f"boxmaker-canary-{self.port}"
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(f"\0{self.name}")
        self.unix.listen()
        self.heard = 0
        self._threads = [
            threading.Thread(target=self._count, args=(one,), daemon=True) for one in (self.tcp, self.unix, self.udp)
        ]
        for thread in self._threads:
            thread.start()

    def _count(self, listener: socket.socket) -> None:
        while True:
            try:
                if listener is self.udp:
                    listener.recv(10)
                else:
                    listener.accept()[0].close()
            except OSError:
                return
            self.heard += 1

    def close(self) -> None:
        for listener in (self.tcp, self.unix, self.udp):
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # what is not connected wakes up all the same
            listener.close()
        for thread in self._threads:
            thread.join(5)


def own_addresses() -> list[str]:
    """Every address of this machine that a packet without a network could be meant for."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))  # sends nothing
            return ["127.0.0.1", str(asking.getsockname()[0])]
        except OSError:
            return ["127.0.0.1"]


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    made = Canary()
    yield made
    made.close()


@pytest.fixture(scope="module")
def real(tool_host: ToolHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRunner]:
    with realrunner.real_runner(tool_host, tmp_path_factory.mktemp("home"), "isolation-test") as made:
        yield made


def plan_of(runner: Runner, tool: str, path: Path) -> Plan:
    call = calls.call(tool, path=str(path))
    return runner._plan(call, 1, runner.image(), mounts.plan(call, runner._protected))


@pytest.fixture(scope="module")
def seen(real: RealRunner, canary: Canary) -> dict[str, Any]:
    """What a read_file call sees, the strictest of those with a file."""
    granted = real.write("granted.txt", "x")
    neighbour = real.write("neighbour.txt", "x")
    (real.outside / "secret").write_text("x")
    asked = {
        "addresses": [[address, canary.port] for address in own_addresses()],
        "abstract": canary.name,
        "paths": [
            str(path) for path in (granted, neighbour, real.outside, Path(__file__), Path("/root"), Path("/home"))
        ],
    }
    plan = attrs.evolve(
        plan_of(real.runner, "read_file", granted), argv=(*probe.PYTHON, "-c", PROGRAM, json.dumps(asked))
    )
    ended = real.podman.run(plan, work(output_bytes=MIB), lambda: None)
    assert ended.exit == 0, ended
    found: dict[str, Any] = json.loads(ended.stdout)
    return {**found, "granted": str(granted), "canary": canary}


def test_it_is_nobody_in_particular_and_can_become_nobody_else(seen: dict[str, Any]) -> None:
    status = seen["status"]
    assert status["Uid"] == status["Gid"] == ["1000"] * 4
    assert status["Groups"] in ([], ["1000"])
    assert all(int(status[name][0], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
    assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])
    assert seen["set-user programs"] == []


def test_nothing_of_the_hosts_environment_or_descriptors_is_there(seen: dict[str, Any]) -> None:
    assert seen["environment"] == {**ENVIRONMENT, "HOSTNAME": "tool"}
    assert seen["descriptors"][:3] == [0, 1, 2]
    assert len(seen["descriptors"]) <= 5, "its own look at them and at a namespace"


def test_the_dangerous_system_calls_are_refused(seen: dict[str, Any]) -> None:
    """Row S6: unshare, ptrace, the keyring, userfaultfd and their like; the seccomp profile closes them."""
    assert {name: said for name, said in seen["system calls"].items() if said not in REFUSED} == {}


def test_no_socket_but_plain_ones_can_be_made(seen: dict[str, Any]) -> None:
    assert {name: said for name, said in seen["sockets"].items() if said not in REFUSED} == {}


def test_e15_no_packet_leaves(seen: dict[str, Any]) -> None:
    """Canaries on the host's loopback, on its own address and in the abstract namespace hear nothing."""
    assert seen["interfaces"] == ["lo"]
    assert set(seen["reached"].values()) <= {"Network is unreachable", "Connection refused", "ok"}
    assert [name for name, said in seen["reached"].items() if said == "ok" and name != "udp 127.0.0.1"] == []
    assert seen["abstract"] == "Connection refused"
    assert seen["resolved"] != "ok"
    assert seen["canary"].heard == 0


def test_the_canaries_would_have_heard(canary: Canary) -> None:
    before = canary.heard
    with socket.create_connection(("127.0.0.1", canary.port)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"x", ("127.0.0.1", canary.port))
    with socket.socket(socket.AF_UNIX) as unix:
        unix.connect(f"\0{canary.name}")
    for _ in range(100):
        if canary.heard == before + 3:
            break
        threading.Event().wait(0.02)
    assert canary.heard == before + 3
    canary.heard = before


def test_nothing_is_writable_but_its_own_small_directory(seen: dict[str, Any]) -> None:
    assert seen["writable"] == ["/tmp"]


def test_of_the_host_it_sees_the_granted_file_and_nothing_beside_it(seen: dict[str, Any]) -> None:
    """Statement 17: the mount is the limit, not a check of the text."""
    assert [path for path, there in seen["exists"].items() if there] == [seen["granted"]]
    ours = ("/etc/hostname", "/run/.containerenv")  # Podman's
    binds = [point for root, point, _, kind in seen["mounts"] if kind not in _MEMORY and point != "/"]
    assert sorted(point for point in binds if point not in ours) == [seen["granted"]]
    (options,) = [options for _, point, options, _ in seen["mounts"] if point == seen["granted"]]
    assert {"ro", "nosuid", "nodev", "noexec"} <= set(options.split(","))


_MEMORY = {"proc", "tmpfs", "devpts", "devtmpfs", "mqueue"}


def test_the_kernels_trees_are_empty_or_hidden(seen: dict[str, Any]) -> None:
    assert set(seen["read"].values()) == {0}
    points = {point: options for _, point, options, _ in seen["mounts"]}
    assert all("ro" in points[point].split(",") for point in ("/sys", "/sys/fs/cgroup", "/dev/mqueue", "/"))
    assert not [kind for *_, kind in seen["mounts"] if kind in {"sysfs", "cgroup", "cgroup2"}]
    assert "shm" not in seen["devices"]
    assert not {"kvm", "fuse", "mem", "vda", "kmsg"} & set(seen["devices"])


def test_it_is_alone_and_has_no_name_of_the_hosts(seen: dict[str, Any]) -> None:
    assert seen["processes"] == [1]
    assert seen["host name"] == "tool"
    assert socket.gethostname() not in seen["hosts"]
    assert seen["oom"] == "1000", "if the machine runs out of memory, the tool goes first"


def test_a_call_without_a_file_is_nobody_on_the_host(real: RealRunner) -> None:
    granted = real.write("granted.txt", "x")
    plan = plan_of(real.runner, "read_file", granted)
    bare = attrs.evolve(plan, mounts=(), ids=Ids.OWN, argv=(*probe.PYTHON, "-c", PROGRAM, "{}"))
    ended = real.podman.run(bare, work(output_bytes=MIB), lambda: None)
    assert ended.exit == 0
    found = json.loads(ended.stdout)
    assert found["uid map"][:2] != ["0", "0"]
    assert found["writable"] == ["/tmp"]
    assert {name: said for name, said in found["system calls"].items() if said not in REFUSED} == {}


def test_a_directory_for_a_shell_is_the_only_other_place_to_write(real: RealRunner) -> None:
    plan = attrs.evolve(plan_of(real.runner, "shell", real.files), argv=(*probe.PYTHON, "-c", PROGRAM, "{}"))
    ended = real.podman.run(plan, work(output_bytes=MIB), lambda: None)
    assert json.loads(ended.stdout)["writable"] == sorted(["/tmp", str(real.files)])


INTO_THE_TOOL = """
import os
def tried(name, act):
    try:
        act()
    except OSError as error:
        print(name, error.strerror)
    else:
        print(name, "DONE")
for name in ("mem", "environ", "maps", "fd/1", "cwd", "root", "auxv"):
    tried(name, lambda: os.open("/proc/1/" + name, os.O_RDONLY))
tried("mem to write", lambda: os.open("/proc/1/mem", os.O_RDWR))
tried("descriptors", lambda: os.listdir("/proc/1/fd"))
tried("own memory", lambda: os.open("/proc/self/mem", os.O_RDWR))
"""


def test_s6_a_command_cannot_look_into_the_tool_that_runs_it(real: RealRunner) -> None:
    """They are one user: else a command could write its own answer, or end as it likes, beside the wrapper's back."""
    (real.files / "into.py").write_text(INTO_THE_TOOL)
    real.give(real.files / "into.py")
    first, *said = real.shell("python3 -I -S into.py").splitlines()
    assert first == "[exit code 0]"
    assert said.pop() == "own memory DONE", "what it may do to itself shows that the attempts are real ones"
    assert len(said) == 9
    assert [line for line in said if not line.endswith("Permission denied")] == []


def test_s6_memory_that_is_shared_is_bounded_as_well(real: RealRunner) -> None:
    """The limit on a process's data does not count it."""
    bound = realrunner.SMALL.memory_bytes + 128 * MIB
    said = real.shell(
        f"ulimit -H -v; python3 -I -S -c 'import mmap; mmap.mmap(-1, {bound})'; "
        "python3 -I -S -c 'import mmap; mmap.mmap(-1, 1 << 25); print(\"taken\")'"
    ).splitlines()
    assert said[1] == str(bound // 1024)
    assert "Cannot allocate memory" in said[-2]
    assert said[-1] == "taken"


def test_the_probe_finds_the_walls_and_says_which_limits_hold(real: RealRunner) -> None:
    real.runner.tend()
    held = real.runner.held
    assert held is not None
    assert {"time", "output", "open files", "processes", "file size", "temporary files"} <= set(held.held)
    assert "memory of a process" in held.held
    assert set(held.missing) <= {"cpu", "memory"}


def test_the_probe_notices_a_missing_filter(tool_host: ToolHost, real: RealRunner, tmp_path: Path) -> None:
    """A profile that forbids nothing: the container gets it, Podman does not say so, and no tool may run."""
    permissive = real.outside / "permissive.json"
    permissive.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}))
    real.give(permissive)
    settings = realrunner.settings(tool_host, tmp_path)
    settings = attrs.evolve(settings, podman=attrs.evolve(settings.podman, seccomp=permissive))
    with pytest.raises(Unenforced, match="system calls"):
        probe.run(real.podman, image=real.runner.image(), seccomp=str(permissive))
