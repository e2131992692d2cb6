"""A runner on the fake Podman, with the toolkit's own programs as processes of this machine."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from brokerd import mounts, policy
from brokerd.call import FRESH, Call
from brokerd.containerplan import Plan
from brokerd.containers import Podman
from brokerd.mounts import Mount
from brokerd.policy import Decision
from brokerd.protected import Protected
from brokerd.runner import Ran, Runner
from bxcore import hosts
from bxcore.deadline import Deadline
from bxcore.hosts import Target
from bxcore.settings import brokerd as settings_of
from bxcore.settings.brokerd import BrokerdSettings, Listen
from bxcore.timestamp import Timestamp
from tests.fakes import calls, plans
from tests.fakes.podman import IMAGE, FakePodman

PYTHON = Path(__file__).resolve().parents[2] / "python"
TOOLKIT = f"import sys; sys.path.insert(0, {str(PYTHON)!r}); from toolkit import contract; sys.exit(contract.main())"

ALL_WALLS = ("system calls", "capabilities", "network")
SOME_LIMITS = {"open files": True, "cpu": False}


def probed(walls: Mapping[str, bool] = dict.fromkeys(ALL_WALLS, True), limits: Mapping[str, bool] = SOME_LIMITS) -> str:
    return json.dumps({"walls": walls, "limits": limits})


class Place:
    """A runner with all that it stands on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.service = FakePodman(directory / "podman.sock")
        self.service.program = self._program
        self.says = probed()
        self.takes_memory = "echo taken"
        (directory / "image").write_text(f"{IMAGE}\n")
        for name in ("grants", "audit", "state", "run", "files"):
            (directory / name).mkdir()
        self.settings = BrokerdSettings(
            listen=Listen(broker=directory / "run/broker.sock", admin=directory / "run/admin.sock"),
            grants=directory / "grants",
            audit=directory / "audit",
            state=directory / "state",
            podman=settings_of.Podman(
                socket=self.service.path,
                image_file=directory / "image",
                calls=directory / "calls",
                seccomp=directory / "seccomp.json",
            ),
        )
        self.podman = Podman(self.service.path, clock=plans.CLOCK, owner="test")
        self.egress = FakeEgress()
        self.file = directory / "files" / "a.txt"
        self.file.write_text("hello\n")

    def runner(self, **changes: Any) -> Runner:
        given: dict[str, Any] = {
            "podman": self.podman,
            "egress": self.egress,
            "clock": plans.CLOCK,
            "protected": Protected.of(self.settings),
        }
        return Runner(changes.pop("settings", self.settings), **{**given, **changes})

    def _program(self, spec: Mapping[str, Any]) -> Sequence[str]:
        if spec["labels"]["boxmaker.part"] == "probe":
            takes = json.loads(spec["entrypoint"][-1])["take_memory"]
            return ["/bin/sh", "-c", self.takes_memory if takes else f"echo '{self.says}'"]
        return [sys.executable, "-I", "-c", TOOLKIT]


class FakeEgress:
    """Counts proxies; none of them is one."""

    def __init__(self) -> None:
        self.open: list[Target] = []
        self.prepared = self.started = 0
        self.images: list[str] = []
        self.fault: Exception | None = None

    def prepare(self, *, seq: int, target: Target, image: str, deadline: Deadline) -> "FakeEgress":
        self.open.append(target)
        self.images.append(image)
        self.prepared += 1
        return self

    def start(self, deadline: Deadline) -> None:
        self.started += 1
        if self.fault is not None:
            raise self.fault

    @property
    def plan(self) -> Plan:
        return attrs.evolve(plans.PLAN, part="egress", mounts=(attrs.evolve(self.mount, writable=True),))

    def sweep(self) -> int:
        return 0

    @property
    def mount(self) -> Mount:
        return Mount(source="/srv/calls/1", destination=mounts.PROXY_PLACE, writable=False, device=1, inode=1)

    def close(self) -> None:
        self.open.clear()


def decided(call: Call) -> Decision:
    """A Decision as policy makes one."""
    rules = [] if call.target is None else [hosts.rule(call.target.host)]
    grant = calls.grant(tool=call.kind.name, paths=("/tmp",) if call.path else (), hosts=tuple(rules))
    decision = policy.decide(calls.grant_set(grant), call, FRESH, Timestamp(0))
    assert isinstance(decision, Decision), decision
    return decision


def run(runner: Runner, decision: Decision, started: Any = lambda *_: None) -> Ran:
    return runner.run(decision, seq=5, started=started, cancelled=lambda: False)
