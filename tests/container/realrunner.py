"""A runner on the real Podman of the tool host, for tests: settings, fitting grants, directories for tools."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import attrs

from brokerd import mounts, policy, results
from brokerd.call import FRESH, Call
from brokerd.containers import Podman
from brokerd.probe import Held
from brokerd.protected import Protected
from brokerd.results import Ran
from brokerd.runner import Runner
from bxcore.ids import Hash32
from bxcore.settings import brokerd as settings_of
from bxcore.settings.brokerd import BrokerdSettings, Limits, Listen
from bxcore.timestamp import Timestamp
from bxcore.tools import TOOLS, asked_path
from bxcore.wire.tools import ToolFailed, ToolResult
from deploy.local.toolhost import ToolHost
from tests.fakes import calls, plans

MIB = 1024 * 1024
SMALL = Limits(memory_bytes=128 * MIB, file_bytes=8 * MIB, tmpfs_bytes=4 * MIB, output_bytes=MIB, processes=24)
"""What a test may take of a machine that it shares."""


class Host(Protocol):
    """What is needed of a tool host: a process that a test kills gets these alone."""

    @property
    def api_socket(self) -> Path: ...
    @property
    def image_id_file(self) -> Path: ...
    @property
    def calls_dir(self) -> Path: ...
    @property
    def seccomp_path(self) -> Path: ...


def settings(host: Host, home: Path, limits: Limits = SMALL) -> BrokerdSettings:
    return BrokerdSettings(
        listen=Listen(broker=home / "run/broker/broker.sock", admin=home / "run/admin/admin.sock"),
        grants=home / "grants",
        audit=home / "audit",
        state=home / "state",
        podman=settings_of.Podman(
            socket=host.api_socket, image_file=host.image_id_file, calls=host.calls_dir, seccomp=host.seccomp_path
        ),
        limits=limits,
    )


@attrs.frozen(kw_only=True)
class RealRunner:
    """`files` is a directory that tools may see; `outside`, beside it, one that no grant names."""

    host: ToolHost
    runner: Runner
    podman: Podman
    files: Path
    outside: Path

    def give(self, path: Path) -> Path:
        self.host.give(path)
        return path

    def write(self, name: str, text: str | bytes) -> Path:
        """Make a file in `files` that the tool user owns."""
        path = self.files / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return self.give(path)

    def run(
        self,
        call: Call,
        *,
        seq: int = 1,
        started: Callable[[str, Hash32], None] = lambda *_: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Ran:
        """Run a call as if the owner had just said yes to it."""
        return self.runner.run(approved(call), seq=seq, started=started, cancelled=cancelled)

    def answer(self, call: Call, started: Callable[[str, Hash32], None] = lambda *_: None) -> ToolResult | ToolFailed:
        return results.of(self.run(call, started=started), FRESH)[0]

    def shell(self, command: str, **arguments: int) -> str:
        """Return what a command says, run in `files`."""
        given: dict[str, str | int] = {"directory": str(self.files), "command": command, **arguments}
        text = json.dumps(given)
        answer = self.answer(calls.call("shell", text=text))
        return answer.content if isinstance(answer, ToolResult) else f"FAILED {answer.message}"

    def left(self) -> list[str]:
        """Return the containers of this test's owner that there are."""
        told = self.host.podman("ps", "--all", "--quiet", f"--filter=label=boxmaker.owner={self.podman.owner}")
        return told.split()


def approved(call: Call) -> policy.Decision:
    """Return a Decision as policy makes one, after a yes where the tool is always asked about."""
    path = Path(call.path or "/")
    granted = path.parent if call.kind.name in {"write_file", "edit_file"} else path
    grants = calls.grant_set(calls.grant(tool=call.kind.name, paths=(str(granted),)))
    outcome = policy.decide(grants, call, FRESH, Timestamp(0))
    if isinstance(outcome, policy.Ask):
        outcome = policy.redecide(outcome, grants, call, FRESH, Timestamp(0))
    assert isinstance(outcome, policy.Decision), outcome
    return outcome


def resolved(tool: str, path: Path | str) -> Call:
    """Return a call of `tool` on what `path` leads to, as brokerd reads one."""
    call = calls.call(tool, path=str(path))
    return attrs.evolve(call, path=mounts.resolve(asked_path(call.arguments) or "", TOOLS[tool]))


_proved: dict[tuple[Path, str], Held] = {}


def prove_once(runner: Runner, podman: Podman) -> None:
    """Let the runner prove the walls of the image, unless one of this session has: so brokerd does it, too."""
    key = (podman.path, runner.image())
    if key not in _proved:
        runner.tend()
        assert runner.held is not None
        _proved[key] = runner.held
        return
    runner._probed = (runner.image(), _proved[key])
    places = (*runner._protected.places, *podman.places())
    runner._protected = attrs.evolve(runner._protected, places=places)


@contextmanager
def real_runner(host: ToolHost, home: Path, owner: str, limits: Limits = SMALL) -> Iterator[RealRunner]:
    """Give a runner whose containers bear a label of their own, and see that none is left."""
    top = host.shared_dir / owner
    shutil.rmtree(top, ignore_errors=True)
    for directory in (top, top / "files", top / "outside"):
        directory.mkdir()
        host.give(directory)
    given = settings(host, home, limits)
    podman = Podman(host.api_socket, clock=plans.CLOCK, owner=owner)
    runner = Runner(given, podman=podman, egress=None, clock=plans.CLOCK, protected=Protected.of(given))
    prove_once(runner, podman)
    made = RealRunner(host=host, runner=runner, podman=podman, files=top / "files", outside=top / "outside")
    try:
        yield made
        podman.sweep()
        assert made.left() == []
    finally:
        shutil.rmtree(top, ignore_errors=True)
