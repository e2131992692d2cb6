"""An audit log in a directory of a test's own, with brokerd's state beside it and a clock that is set by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brokerd.audit import AuditLog
from bxcore import auditfiles, audithead
from bxcore.chain import Head, Report, Verifier
from bxcore.files import DiskFiles, Files
from tests.fakes.audited import decided
from tests.fakes.clocks import HandClock

DAY_MS = 86_400_000
FIRST = "2026-01-01.jsonl"
"""The file of the day on which a HandClock begins."""


class Place:
    """A directory with an audit log and brokerd's state beside it."""

    def __init__(self, top: Path) -> None:
        self.audit, self.state, self.clock = top / "audit", top / "broker", HandClock()

    def open(self, *, disk: Files | None = None, accept_break: bool = False) -> AuditLog:
        return AuditLog.open(
            self.audit, self.state, disk=disk or DiskFiles(), clock=self.clock, accept_break=accept_break
        )

    @contextmanager
    def opened(self, *, accept_break: bool = False) -> Iterator[AuditLog]:
        log = self.open(accept_break=accept_break)
        try:
            yield log
        finally:
            log.close()

    def write(self, count: int = 3) -> None:
        with self.opened() as log:
            for _ in range(count):
                log.append(decided())

    def files(self) -> list[str]:
        return sorted(path.name for path in self.audit.iterdir())

    def content(self, name: str = FIRST) -> bytes:
        return (self.audit / name).read_bytes()

    def change(self, old: bytes, new: bytes, name: str = FIRST) -> None:
        content = self.content(name)
        assert old in content
        (self.audit / name).write_bytes(content.replace(old, new, 1))

    def kept(self) -> Head | None:
        return audithead.read((self.state / audithead.FILE).read_bytes())

    def report(self) -> Report:
        """Verify all of it, as `bxctl audit verify` does."""
        verifier = Verifier(kept=self.kept())
        for name in auditfiles.names(self.audit):
            auditfiles.feed(verifier, self.audit, name)
        return verifier.finish()

    def assert_whole(self) -> None:
        report = self.report()
        assert (report.findings, report.broken, report.torn) == ((), None, None)
