"""brokerd's one path whole, on real files, with containers that only pretend to run.

Everything but the container service is the real thing: grants are files, the log and the labels are on disk.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brokerd import mounts, policy
from brokerd.approvals import Approvals
from brokerd.audit import AuditLog
from brokerd.broker import Answer, Asker, Broker
from brokerd.call import Call
from brokerd.claims import Claims
from brokerd.couriers import Couriers
from brokerd.exited import Exited, Stop
from brokerd.expiryclock import ExpiryClock
from brokerd.grantset import GrantFiles
from brokerd.ledger import Ledger
from brokerd.mounts import Mount
from brokerd.pace import Pace
from brokerd.policy import Decision
from brokerd.reading import Reading
from brokerd.recovery import Found, recent, recover
from brokerd.results import Ran
from brokerd.runner import Effects
from brokerd.running import Running
from brokerd.sessionstate import SessionStates
from bxcore import auditfiles
from bxcore.auditlog import Record
from bxcore.deadline import Clock
from bxcore.files import DiskFiles, Files
from bxcore.ids import Hash32
from bxcore.server import PeerGone
from bxcore.settings.brokerd import Approvals as ApprovalLimits
from bxcore.settings.brokerd import Limits
from bxcore.wire.tools import ToolPending, ToolRequest
from tests.fakes import calls
from tests.fakes.clocks import HandClock

PATIENCE_SECONDS = 60
IMAGE = "1a" * 32
PLAN = Hash32("2b" * 32)
SAID = b"the content of the file\n"


def exited(stdout: bytes = SAID, *, code: int | None = 0, stop: Stop = Stop.END, out_of_memory: bool = False) -> Exited:
    return Exited(stop=stop, exit=code, stdout=stdout, size=len(stdout), out_of_memory=out_of_memory)


class Containers:
    """The runner: spends the decision, says that it starts, and ends as the test says."""

    def __init__(self) -> None:
        self.image = IMAGE
        self.limits: tuple[str, ...] = ("10 s",)
        self.ends: Exited = exited()
        self.unfit: Exception | None = None
        self.fails_before: BaseException | None = None
        self.fails_after: BaseException | None = None
        self.while_it_runs: Callable[[Callable[[], bool]], None] = lambda _cancelled: None
        self.before_it_starts: Callable[[], None] = lambda: None
        self.on_disk: Callable[[], list[Record]] = list
        self.looked: list[Call] = []
        self.approved: list[Effects | None] = []
        self.ran: list[tuple[int, Call, list[Record]]] = []
        """Each run: the seq of its decision, the call, and the records that were on disk when it began."""

    def effects(self, call: Call) -> Effects:
        self.looked.append(call)
        if self.unfit is not None:
            raise self.unfit
        found: tuple[Mount, ...] = ()
        if call.path is not None:
            found = (Mount(source=call.path, destination=call.path, writable=call.kind.writes, device=1, inode=2),)
        hosts = () if call.target is None else (call.target.authority,)
        return Effects(mounts=found, hosts=hosts, image=self.image, limits=self.limits)

    def run(
        self,
        decision: Decision,
        *,
        seq: int,
        started: Callable[[str, Hash32], None],
        cancelled: Callable[[], bool],
        approved: Effects | None,
    ) -> Ran:
        call = policy.spend(decision)
        self.approved.append(approved)
        self.before_it_starts()
        if self.fails_before is not None:
            raise self.fails_before
        started(self.image, PLAN)
        self.ran.append((seq, call, self.on_disk()))
        self.while_it_runs(cancelled)
        if self.fails_after is not None:
            raise self.fails_after
        return Ran(kind=call.kind, limits=Limits(), exited=self.ends)


class Peer:
    """Whoever asked: what it was told, and whether it is still there."""

    def __init__(self) -> None:
        self.told: list[ToolPending] = []
        self.asked = threading.Event()
        self.gone = threading.Event()
        self.deaf = False
        self.asker = Asker(pending=self._pending, left=self.gone.is_set)

    def _pending(self, pending: ToolPending) -> None:
        if self.deaf:
            raise PeerGone("the peer left")
        self.told.append(pending)
        self.asked.set()


class Brokered:
    """A brokerd in `home`. `grant` writes a grant file; `ask` sends a call through the path."""

    def __init__(
        self,
        home: Path,
        *,
        disk: Files | None = None,
        clock: Clock | None = None,
        containers: Containers | None = None,
        limits: ApprovalLimits | None = None,
        look_ms: int = 5,
        running: int = 4,
        pace: Pace | None = None,
    ) -> None:
        self.home, self.clock = home, clock or HandClock()
        self.grants, self.audit_dir, self.state = home / "grants", home / "audit", home / "state"
        for directory in (self.grants, self.audit_dir, self.state):
            directory.mkdir(mode=0o700, exist_ok=True)
        disk = disk or DiskFiles()
        self.containers = containers or Containers()
        self.containers.on_disk = self.records
        self.audit = AuditLog.open(self.audit_dir, self.state, disk=disk, clock=self.clock)
        self.states = SessionStates(self.state / "sessions", disk)
        self.ledger = Ledger(self.audit, self.states)
        self.time = ExpiryClock(self.state / "clock", disk, self.clock)
        self.files = GrantFiles(self.grants, clock=self.clock)
        self.reading = Reading(grants=self.files, resolve=mounts.resolve, effects=self.containers.effects)
        self.approvals = Approvals(
            ledger=self.ledger,
            reading=self.reading,
            couriers=Couriers([]),
            limits=limits or ApprovalLimits(),
            clock=self.clock,
            now=self.time.now_ms,
            look_ms=look_ms,
        )
        self.claims = Claims()
        self.claims.learn(recent(self.audit_dir))
        self.running = Running(running, self.clock, room_ms=0)
        self.broker = Broker(
            ledger=self.ledger,
            reading=self.reading,
            approvals=self.approvals,
            claims=self.claims,
            runner=self.containers,
            running=self.running,
            pace=pace or Pace(self.clock, per_second=1_000_000),
            now=self.time.now_ms,
        )
        self._number = 0

    def recover(self) -> Found:
        return recover(self.audit, self.ledger, self.reading)

    def close(self) -> None:
        self.audit.close()

    def grant(self, name: str = "g", text: str = "", **keys: str) -> Path:
        """Write a grant for read_file below /data; `keys` change its lines, `text` stands for the whole."""
        path = self.grants / f"{name}.toml"
        beside = self.grants / f".{name}.new"
        beside.write_text(text or grant_text(**keys))
        beside.chmod(0o600)
        beside.rename(path)
        return path

    def request(self, tool: str = "read_file", **arguments: Any) -> ToolRequest:
        """Return the next call of session `s`."""
        self._number += 1
        session = arguments.pop("session", "s")
        number = arguments.pop("number", self._number)
        text = arguments.pop("text", None) or calls.arguments(tool, **arguments)
        return calls.request(tool, text, session=session, number=number)

    def ask(self, request: ToolRequest | None = None, peer: Peer | None = None) -> Answer:
        return self.broker.handle(request or self.request(), (peer or Peer()).asker)

    @contextmanager
    def asking(self, request: ToolRequest | None = None, peer: Peer | None = None) -> Iterator["Asking"]:
        """A call in a thread of its own, which is over when the block is."""
        asking = Asking(self, request or self.request(), peer or Peer())
        try:
            yield asking
        finally:
            asking.peer.gone.set()
            asking.answer()

    def records(self) -> list[Record]:
        """Return what is on disk."""
        which = auditfiles.names(self.audit_dir)
        return [entry.record for entry in auditfiles.entries(self.audit_dir, which) if entry.record is not None]


class Asking:
    """One call under way."""

    def __init__(self, brokered: Brokered, request: ToolRequest, peer: Peer) -> None:
        self.request, self.peer = request, peer
        self._answers: list[Answer] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(brokered.ask(request, peer)))
        self._thread.start()

    def pending(self) -> ToolPending:
        """Return the question that was opened; fails where the call was answered at once."""
        assert self.peer.asked.wait(PATIENCE_SECONDS)
        return self.peer.told[0]

    def answer(self) -> Answer:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        [answer] = self._answers
        return answer


def grant_text(
    tool: str = "read_file",
    mode: str = "auto",
    *,
    max_taint: str = "private",
    paths: str = '["/data"]',
    hosts: str = "",
    more: str = "",
) -> str:
    constraints = f"hosts = {hosts}" if hosts else f"paths = {paths}"
    return f'tool = "{tool}"\nmode = "{mode}"\nmax_taint = "{max_taint}"\n{more}\n[constraints]\n{constraints}\n'
