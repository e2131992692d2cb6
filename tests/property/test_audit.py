"""What the audit log acknowledged is there after any power cut, and the log goes on (INV-6, rows A1, S2)."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from brokerd.audit import AuditLog
from bxcore import auditfiles
from bxcore.auditlog import Decided, Record
from bxcore.chain import Verifier
from bxcore.errors import StateError
from bxcore.files import DiskFiles
from tests.fakes.audited import decided
from tests.fakes.clocks import HandClock
from tests.fakes.faulty_files import Fault, FaultyFiles
from tests.fakes.power_loss import Choose, PowerCut, PowerLossSystem

DAY_MS = 86_400_000
WINDS = st.lists(st.sampled_from([0, 0, 1_000, DAY_MS, -DAY_MS]), max_size=6)


@contextmanager
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@st.composite
def arrivals(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw what a write that was not synced left on the disk."""
    length = draw(st.integers(0, len(data)))
    hole = draw(st.integers(0, len(data) - length))
    return draw(
        st.sampled_from(
            [
                b"",
                data,
                data[:length],
                b"\0" * len(data),
                data[:length].ljust(len(data), b"\0"),
                data[:length] + b"\0" * hole + data[length + hole :],
            ]
        )
        | st.binary(max_size=30).map(lambda junk: data[:length] + junk)
    )


def record(directory: Path, disk: DiskFiles, clock: HandClock, winds: list[int]) -> list[Record]:
    """Append one record for each turn of the clock; return what was acknowledged before the disk failed."""
    acknowledged: list[Record] = []
    log = None
    try:
        log = AuditLog.open(directory / "audit", directory / "broker", disk=disk, clock=clock)
        for wind in winds:
            clock.set_wall(wind)
            acknowledged.append(log.append(decided(arguments=str(len(acknowledged)))))
    except (PowerCut, StateError):
        pass  # what follows is the next start
    if log is not None:
        log.close()
    return acknowledged


def check(directory: Path, acknowledged: list[Record]) -> None:
    """The next start goes on: everything acknowledged is there, and the whole log verifies."""
    contents = {path: path.read_bytes() for path in directory.glob("audit/*.jsonl")}
    clock = HandClock()
    assert len(record(directory, FaultyFiles(None), clock, [0, 0])) == 2
    assert all(path.read_bytes().startswith(content) for path, content in contents.items())
    verifier = Verifier()
    names = auditfiles.names(directory / "audit")
    for name in names:
        auditfiles.feed(verifier, directory / "audit", name)
    report = verifier.finish()
    assert (report.findings, report.broken, report.torn) == ((), None, None)
    read = [entry.record for entry in auditfiles.entries(directory / "audit", names) if entry.record is not None]
    kept = [item for item in read if isinstance(item, Decided)]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(acknowledged) + 2 <= len(kept) <= len(acknowledged) + 3


@given(WINDS, st.integers(0, 40), st.booleans(), st.data())
def test_a_power_cut_takes_nothing_that_was_acknowledged(
    winds: list[int], cut_at: int, effect_first: bool, data: st.DataObject
) -> None:
    with home() as directory:
        live, found = directory / "live", directory / "found"
        live.mkdir()
        system = PowerLossSystem(live, cut_at=cut_at, effect_first=effect_first)
        acknowledged = record(live, DiskFiles(system), HandClock(), winds)
        for fd in list(system.opened):
            system.close(fd)
        system.after(found, Choose(lambda: data.draw(st.booleans()), lambda write: data.draw(arrivals(write))))
        for name in ("audit", "broker"):
            (found / name).mkdir(mode=0o700, exist_ok=True)
            (found / name).chmod(0o700)
        for path in found.glob("*/*"):
            path.chmod(0o600)
        check(found, acknowledged)


@given(
    WINDS,
    st.sampled_from(["open", "write", "fsync", "mkdir"]),
    st.integers(0, 25),
    st.integers(0, 800),
    st.booleans(),
)
def test_a_disk_that_fails_at_any_call_takes_nothing_that_was_acknowledged(
    winds: list[int], call: str, at: int, after_bytes: int, lasting: bool
) -> None:
    with home() as directory:
        disk = FaultyFiles(Fault(call=call, at=at, after_bytes=after_bytes, lasting=lasting))
        check(directory, record(directory, disk, HandClock(), winds))
