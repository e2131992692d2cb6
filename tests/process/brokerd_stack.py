"""The real brokerd as a process, before a container service that runs the real tool programs as plain processes."""

import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bxcore import auditfiles
from bxcore.auditlog import Record
from bxcore.client import Connection
from bxcore.deadline import SystemClock
from bxcore.envelope import Envelope
from bxcore.ids import CallId, SessionId
from bxcore.wire import admin
from bxcore.wire.tools import ToolPending, ToolRequest
from tests.fakes.brokered import grant_text
from tests.fakes.podman import IMAGE, FakePodman
from tests.process.role import ROOT, Role

CLOCK = SystemClock()
LONG_MS = 3_600_000
TOOLKIT = (
    f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r}); from toolkit import contract; sys.exit(contract.main())"
)
WALLS = json.dumps({"walls": {"network": True}, "limits": {"processes": True, "cpu": False}})


class Stack:
    """A home, a container service, and brokerd when it is started."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / "etc" / "brokerd.toml"
        for name in ("grants", "audit", "state", "files", "calls", "etc", "podman"):
            (home / name).mkdir(mode=0o700)
        self.podman = FakePodman(home / "podman" / "podman.sock")
        self.podman.program = self._program
        self.tool: Sequence[str] = [sys.executable, "-I", "-c", TOOLKIT]
        for name in ("broker", "admin", "state"):
            (home / "run" / name).mkdir(mode=0o750, parents=True)
        (home / "etc" / "image").write_text(f"{IMAGE}\n")
        (home / "etc" / "seccomp.json").write_text("{}")
        self.note = home / "files" / "note.txt"
        self.note.write_text("fair wind\n")
        self.started: list[Mapping[str, Any]] = []
        """What was asked for each container of a tool that was started."""
        self._number = 0
        self.configure()

    def configure(self, more: str = "") -> None:
        """Write brokerd.toml; `more` are further tables."""
        where = self.home
        self.config.write_text(
            f'grants = "{where}/grants"\naudit = "{where}/audit"\nstate = "{where}/state"\n'
            f'[listen]\nbroker = "{self.socket("broker")}"\nadmin = "{self.socket("admin")}"\n'
            f'state = "{self.socket("state")}"\n'
            f'[podman]\nsocket = "{self.podman.path}"\nimage_file = "{where}/etc/image"\ncalls = "{where}/calls"\n'
            f'seccomp = "{where}/etc/seccomp.json"\n{more}'
        )

    def socket(self, name: str) -> Path:
        return self.home / "run" / name / f"{name}.sock"

    @contextmanager
    def brokerd(self, *options: str) -> Iterator[Role]:
        """brokerd, ready."""
        with self.start(*options) as role:
            yield role.wait_ready()

    def start(self, *options: str) -> Role:
        return Role("brokerd", "--config", str(self.config), *options, home=self.home)

    def grant(self, name: str = "g", **keys: str) -> Path:
        path = self.home / "grants" / f"{name}.toml"
        beside = path.with_name(f".{name}.new")
        beside.write_text(grant_text(**{"paths": f'["{self.home}/files"]', **keys}))
        beside.chmod(0o600)
        beside.rename(path)
        return path

    # -- asking -----------------------------------------------------------------------------------

    def request(self, tool: str = "read_file", **arguments: Any) -> ToolRequest:
        """Return the next call of session `s`, of the note where no path is given."""
        self._number += 1
        session, number = arguments.pop("session", "s"), arguments.pop("number", self._number)
        return ToolRequest(
            session=SessionId(session),
            call=CallId(number),
            tool=tool,
            arguments=json.dumps({"path": str(self.note), **arguments}),
        )

    def dial(self, name: str = "broker") -> Connection:
        return Connection(self.socket(name), clock=CLOCK, connect_ms=LONG_MS)

    def ask(self, request: ToolRequest | None = None) -> Any:
        """Send a call that asks no question; return the answer."""
        with self.dial() as connection:
            [answer] = connection.request(request or self.request(), idle_ms=LONG_MS)
        return answer.msg

    def tell(self, message: object, name: str = "admin") -> list[Any]:
        with self.dial(name) as connection:
            return [answer.msg for answer in connection.request(message, idle_ms=LONG_MS)]

    def status(self) -> admin.BrokerStatusReport:
        [report] = self.tell(admin.BrokerStatus())
        assert isinstance(report, admin.BrokerStatusReport)
        return report

    def yes(self, number: int) -> admin.ApprovalOutcome:
        """Look at a question and approve what was shown."""
        shown = self.tell(admin.ApprovalShow(id=number))[-1]
        answer = admin.ApprovalAnswer(id=number, approve=True, canonical=shown.canonical, reason=None)
        [outcome] = self.tell(answer)
        assert isinstance(outcome, admin.ApprovalOutcome)
        return outcome

    @contextmanager
    def question(self, request: ToolRequest | None = None) -> Iterator[tuple[ToolPending, Iterator[Envelope]]]:
        """A call that asks: its pending frame, and the answers that are still to come."""
        with self.dial() as connection:
            answers = connection.request(request or self.request(), idle_ms=LONG_MS)
            pending = next(answers).msg
            assert isinstance(pending, ToolPending)
            yield pending, answers

    def records(self) -> list[Record]:
        directory = self.home / "audit"
        entries = auditfiles.entries(directory, auditfiles.names(directory))
        return [entry.record for entry in entries if entry.record is not None]

    # -- containers -------------------------------------------------------------------------------

    def left(self) -> int:
        """Return how many containers there are now."""
        return len(self.podman.containers)

    def _program(self, spec: Mapping[str, Any]) -> Sequence[str]:
        if spec["labels"]["boxmaker.part"] == "probe":
            takes = json.loads(spec["entrypoint"][-1])["take_memory"]
            return ["/bin/sh", "-c", "echo 99999999999; kill -9 $$" if takes else f"echo '{WALLS}'"]
        self.started.append(spec)
        return self.tool


@contextmanager
def stack() -> Iterator[Stack]:
    """A stack in a directory whose name is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="bxb") as name:
        made = Stack(Path(name).resolve())
        with made.podman:
            yield made


def kill(role: Role) -> None:
    """Kill brokerd from within a step of the container service, without waiting for it."""
    os.kill(role.process.pid, signal.SIGKILL)


def silent(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    return client
