"""A home with something of everything in it, written by the roles' own writers, and what `bxctl backup` makes of it."""

import itertools
import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from brokerd.audit import AuditLog
from brokerd.call import FRESH, Labels
from brokerd.expiryclock import ExpiryClock
from brokerd.labels import joined
from brokerd.sessionstate import SessionStates, of_records
from bxcore.auditlog import Ended, RunEnding
from bxcore.backupcheck import Finding
from bxcore.deadline import SystemClock
from bxcore.files import DiskFiles, NewTree
from bxcore.ids import CallId, Hash32, SessionId
from bxcore.sessionrecords import Record
from bxcore.settings.loopd import Sampling
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass
from bxctl import backupcreate, backuprestore, backupverify
from bxctl.adminport import AdminPort
from bxctl.backuprestore import Wish
from bxctl.backupverify import Checked
from bxctl.gatewayport import GatewayPort
from bxctl.loopport import LoopPort
from bxctl.render import Screen
from bxctl.sockets import Home
from bxctl.world import World
from loopd import baseline
from loopd.sessionlog import OpenLog, SessionStore
from tests.fakes.audited import SOME, decided
from tests.fakes.clocks import HandClock
from tests.fakes.faulty_files import FaultySystem
from tests.fakes.grantfiles import TEXT
from tests.fakes.records import end, said, start, user
from tests.fakes.screens import FakeTerminal

FRONT = baseline.make(sampling=Sampling(), tools="[]")
SECRET = Labels(data_class=DataClass.SECRET, untrusted=True)
HOUR_MS = 3_600_000
SWITCH_SECONDS = 0.0001
"""So often two threads take turns: in the middle of everything."""
RESULT_EVERY = 25
"""So often a result is too long for the log."""


def ended(decision: int, session: str, labels: Labels) -> Any:
    """A result after which `session` has `labels`."""

    def make(seq: int, time: Timestamp, prev: Hash32) -> Ended:
        return Ended(
            seq=seq,
            time=time,
            prev=prev,
            decision=decision,
            session=SessionId(session),
            ending=RunEnding.DONE,
            exit=0,
            size=1,
            sha256=SOME,
            truncated=False,
            data_class=labels.data_class,
            untrusted=labels.untrusted,
            taint_after=labels.data_class,
            untrusted_after=labels.untrusted,
        )

    return make


def unsynced() -> FaultySystem:
    """Return a disk on which nothing fails and nothing is waited for: what a power cut leaves is tried elsewhere."""
    return FaultySystem(None)


class Live:
    """What brokerd and loopd keep in one home, open for writing, by their own classes and in their own order."""

    def __init__(self, home: Path, clock: HandClock) -> None:
        disk = DiskFiles(unsynced())
        self.clock = clock
        self.audit = AuditLog.open(home / "audit", home / "broker", disk=disk, clock=clock)
        self.states = SessionStates(home / "broker" / "sessions", disk)
        if not self.states.is_whole:
            self.states.make_whole(self.audit.records())
        self.time = ExpiryClock(home / "broker" / "clock", disk, clock)
        self.store = SessionStore(home / "sessions", files=disk, clock=clock)
        self._logs: dict[str, OpenLog] = {}
        self._turns: dict[str, int] = {}

    def turn(self, session: str, text: str = "Hello.", *, labels: Labels = FRESH) -> None:
        """One turn with one tool call, in the order in which the roles write."""
        log = self._log(session)
        turn = self._turns[session] = self._turns[session] + 1
        log.append(user(f"k{turn}", text), start(turn, f"k{turn}"))
        number = self.audit.append(decided(session=session)).seq
        after = self.states.raise_to(SessionId(session), labels)
        self.audit.append(ended(number, session, after))
        if turn % RESULT_EVERY == 1:
            log.keep_result(CallId(turn), text)
        log.append(said("Hello too.", turn=turn), end(turn=turn))
        self.time.now_ms()

    def _log(self, session: str) -> OpenLog:
        if session not in self._logs:
            identity = SessionId(session)
            if self.store.exists(identity):
                stored, _, log = self.store.open(identity)
                self._turns[session] = sum(1 for _ in stored.records)
            else:
                _, _, log = self.store.create(identity, FRONT, slot=0)
                self._turns[session] = 0
            self._logs[session] = log
        return self._logs[session]

    def assert_labels_hold(self) -> None:
        """No session's labels are lower than the audit log makes them."""
        records = list(self.audit.records())
        for session in {record.session for record in records if isinstance(record, Ended)}:
            recorded = of_records(session, records)
            assert joined(self.states.labels(session), recorded) == self.states.labels(session)

    def records(self, session: str) -> list[Record]:
        return list(self.store.read(SessionId(session)))

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        self.audit.close()


class Writing:
    """How much a writer may still write: without a measure the log outgrows whoever copies it."""

    def __init__(self) -> None:
        self.wrote = threading.Event()
        self._left = threading.Semaphore(0)
        self._stopped = False

    def turns(self, count: int) -> None:
        """Have `count` more turns written, and return once the first one is."""
        self.wrote.clear()
        self._left.release(count)
        assert self.wrote.wait(60)

    def take(self) -> bool:
        """Wait until one more may be written; say whether that is so."""
        self._left.acquire()
        return not self._stopped

    def stop(self) -> None:
        self._stopped = True
        self._left.release()


class BackedUp:
    """A directory with a home, a configuration directory, and a terminal on which bxctl speaks."""

    def __init__(self, top: Path) -> None:
        self.top, self.home, self.etc = top, top / "home", top / "etc"
        self.clock = HandClock()
        for path in (self.home, self.etc, self.etc / "grants"):
            path.mkdir(mode=0o700)
        self.grant("notes")
        self.out, self.err = FakeTerminal(terminal=False), FakeTerminal(terminal=False)

    def grant(self, name: str, text: str = TEXT) -> Path:
        path = self.etc / "grants" / f"{name}.toml"
        path.write_text(text)
        path.chmod(0o600)
        return path

    @contextmanager
    def live(self, home: Path | None = None) -> Iterator[Live]:
        live = Live(home or self.home, self.clock)
        try:
            yield live
        finally:
            live.close()

    def fill(self) -> None:
        """Three sessions, two days of the audit log."""
        with self.live() as live:
            live.turn("s-1")
            live.turn("s-2", labels=SECRET)
            self.clock.wind(24 * HOUR_MS)
            live.turn("s-1", "x" * 5_000)
            live.turn("s-3")
        # Apart by more than a backup tells, whatever the disk's clock ticks.
        for seconds_ago, session in enumerate(("s-3", "s-1", "s-2"), 1):
            log = self.home / "sessions" / session / "0.jsonl"
            os.utime(log, ns=(log.stat().st_mtime_ns - seconds_ago * 1_000_000_000,) * 2)

    @contextmanager
    def being_written(self) -> Iterator["Writing"]:
        """Both roles write, in another thread, as many turns as they are given, an hour passing with each."""
        writing, number = Writing(), itertools.count(1)
        seldom, interval = sys.setswitchinterval, sys.getswitchinterval()
        seldom(SWITCH_SECONDS)
        with ThreadPoolExecutor(1) as pool, self.live() as live:

            def write() -> None:
                while writing.take():
                    turn = next(number)
                    labels = SECRET if turn % 7 == 0 else FRESH
                    live.turn(f"s-{turn % 5}-{turn // 400}", "y" * (turn % 50), labels=labels)
                    self.clock.wind(HOUR_MS)
                    writing.wrote.set()

            ended = pool.submit(write)
            try:
                yield writing
            finally:
                writing.stop()
                seldom(interval)
            ended.result()

    # -- bxctl ------------------------------------------------------------------------------------

    def world(self, home: Path | None = None) -> World:
        where, clock = Home(path=home or self.home, chosen=True), SystemClock()
        return World(
            home=where,
            clock=clock,
            port=LoopPort(where, clock),
            admin=AdminPort(where, clock),
            gateway=GatewayPort(where, clock),
            screen=Screen(self.out, {}),
            errors=Screen(self.err, {}),
            pause=lambda _: None,
        )

    def create(self, name: str = "b", *, tree: NewTree | None = None, code: int = 0) -> Path:
        directory = self.top / name
        tree = tree or NewTree(unsynced())
        assert backupcreate.create(self.world(), directory, etc=self.etc, json=False, tree=tree) == code
        return directory

    def check(self, directory: Path) -> Checked:
        return backupverify.check(self.world(), directory)

    def findings(self, directory: Path) -> list[str]:
        return [str(finding) for finding in self.check(directory).findings]

    def damage(self, directory: Path) -> list[Finding]:
        return [finding for finding in self.check(directory).findings if finding.damaged]

    def restore(
        self,
        directory: Path,
        name: str = "restored",
        *,
        etc: bool = True,
        accept: bool = False,
        tree: NewTree | None = None,
    ) -> Path:
        into = self.top / name
        wish = Wish(backup=directory, into=into, etc=self.top / f"{name}-etc" if etc else None, accept_faults=accept)
        assert backuprestore.restore(self.world(), wish, json=False, tree=tree or NewTree(unsynced())) == 0
        return into


def tree_of(top: Path) -> dict[str, str]:
    """Every file below `top` by its path: hash, mode and time. Hidden ones, locks and the like, are left out."""
    return {
        str(path.relative_to(top)): f"{sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns // 1_000_000}"
        for path in sorted(top.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def manifest_lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "manifest.jsonl").read_bytes().splitlines()]


def seal_manifest(directory: Path, lines: list[dict[str, Any]]) -> None:
    """Write a manifest whose end fits its lines, as somebody who knows how could."""
    encoded = [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines[:-1]]
    files = [line for line in lines if line["type"] == "file"]
    end_line = {
        "type": "end",
        "files": len(files),
        "bytes": sum(line["bytes"] for line in files),
        "sha256": sha256(b"".join(encoded)).hexdigest(),
    }
    path = directory / "manifest.jsonl"
    os.truncate(path, 0)
    path.write_bytes(b"".join(encoded) + json.dumps(end_line, separators=(",", ":")).encode() + b"\n")
