"""Seals save time and never a finding: what they do not vouch for is read line by line (rows A8, S10)."""

import hashlib
from pathlib import Path

import pytest

from brokerd import auditseals, auditstart
from brokerd.audit import AuditBroken, AuditLog
from brokerd.auditseals import Seal, SealFile
from bxcore import auditfiles, audithead
from bxcore.auditlog import Fault
from bxcore.chain import START, Head, Unsettled
from bxcore.errors import BadMessage
from bxcore.files import DiskFiles
from bxcore.ids import Hash32
from bxcore.wire.admin import Verdict
from tests.fakes.audited import SOME, calls, decided
from tests.fakes.clocks import HandClock
from tests.fakes.faulty_files import Fault as DiskFault
from tests.fakes.faulty_files import FaultyFiles

DAY_MS = 86_400_000


class Place:
    """Four days of records; the first three are closed."""

    def __init__(self, top: Path) -> None:
        self.audit, self.state, self.clock = top / "audit", top / "broker", HandClock()
        log = self.open()
        for day in range(4):
            if day:
                self.clock.wind(DAY_MS)
            for make in calls(2, first=6 * day + 1):
                log.append(make)
        log.close()

    def open(self, *, accept_break: bool = False) -> AuditLog:
        return AuditLog.open(self.audit, self.state, disk=DiskFiles(), clock=self.clock, accept_break=accept_break)

    def start(self, *, accept_break: bool = False) -> None:
        self.open(accept_break=accept_break).close()

    def seals(self) -> dict[str, Seal]:
        return dict(SealFile(self.state, DiskFiles()).read())

    def names(self) -> list[str]:
        return auditfiles.names(self.audit)

    def path(self, day: int) -> Path:
        return self.audit / self.names()[day]

    def read_lines(self) -> int:
        """Return how many lines a start would read one by one."""
        found = auditstart.examine(self.audit, seals=self.seals(), kept=None, whole=False, first_file="")
        return sum(found.report.counts.values())

    def seal_file(self) -> Path:
        return self.state / auditseals.FILE


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_seal_says_what_its_file_is(place: Place) -> None:
    seals = place.seals()
    assert list(seals) == place.names()[:3]
    first = seals[place.names()[0]]
    assert first.sha256 == hashlib.sha256(place.path(0).read_bytes()).hexdigest()
    assert (first.lines, first.seq, first.log_lines, first.before) == (6, 6, 6, START)
    assert first.sound
    assert seals[place.names()[1]].before == first.head


def test_a_start_reads_only_the_open_day_line_by_line(place: Place) -> None:
    assert place.read_lines() == 6
    place.start()
    assert place.read_lines() == 6


def test_the_open_day_is_sealed_piece_by_piece(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditseals, "EVERY_BYTES", 2_000)
    log = place.open()
    for make in calls(5, first=25):
        log.append(make)
    assert [log.find(seq) is not None for seq in range(1, 41)] == [True] * 39 + [False]
    assert [len(list(log.records(after=after))) for after in (0, 23, 24, 30, 38, 39)] == [39, 16, 15, 9, 1, 0]
    log.close()
    sealed = place.seals()[place.names()[3]]
    assert sealed.bytes < place.path(3).stat().st_size
    assert place.read_lines() == 39 - sealed.log_lines
    log = place.open()
    assert log.head.seq == 39
    assert log.append(decided()).seq == 40
    log.close()
    assert place.read_lines() == 40 - place.seals()[place.names()[3]].log_lines


@pytest.mark.parametrize("content", [None, b"", b"garbage\n\n\xff{}\n", b"\0" * 5_000], ids=str)
def test_seals_that_are_missing_or_damaged_cost_time_and_are_made_again(place: Place, content: bytes | None) -> None:
    place.seal_file().unlink()
    if content is not None:
        place.seal_file().write_bytes(content)
    assert place.read_lines() == 24
    place.start()
    assert place.read_lines() == 6


def test_any_changed_byte_of_a_seal_makes_it_none(place: Place) -> None:
    line = place.seal_file().read_bytes().splitlines()[1]
    assert auditseals.encode(auditseals.decode(line)) == line
    for at in range(len(line)):
        with pytest.raises(BadMessage):
            auditseals.decode(line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :])


def test_a_damaged_seal_in_the_middle_costs_what_is_behind_it(place: Place) -> None:
    content = bytearray(place.seal_file().read_bytes())
    content[content.index(b"2026-01-02") + 3] ^= 1
    place.seal_file().write_bytes(content)
    assert place.read_lines() == 18
    place.start()
    assert place.read_lines() == 6


def test_a_changed_byte_in_a_sealed_file_is_found_and_located(place: Place) -> None:
    path = place.path(1)
    path.write_bytes(path.read_bytes().replace(b"/n/a", b"/n/b", 1))
    with pytest.raises(AuditBroken, match=r"2026-01-02.jsonl:2: line 1 was changed"):
        place.open()


def test_a_chain_that_was_written_anew_does_not_fit_its_seals(place: Place, tmp_path: Path) -> None:
    """Whoever rewrites the log, and even the head, but not the seals."""
    (tmp_path / "other").mkdir()
    other = Place(tmp_path / "other")
    place.path(0).write_bytes(b"")
    for day in range(4):
        content = other.path(day).read_bytes()
        place.path(day).write_bytes(content)
    assert place.seals() == other.seals()  # the same story, so they fit
    place.start()
    log = other.open()
    log.append(decided())
    log.close()
    rewritten = [decided(arguments="{}")] * 6
    forged = Place.__new__(Place)
    forged.audit, forged.state, forged.clock = tmp_path / "f" / "audit", tmp_path / "f" / "broker", HandClock()
    forged.audit.parent.mkdir()
    log = forged.open()
    for _ in range(4):
        for make in rewritten:
            log.append(make)
        forged.clock.wind(DAY_MS)
    log.close()
    for day in range(4):
        place.path(day).write_bytes(forged.path(day).read_bytes())
    (place.state / audithead.FILE).write_bytes((forged.state / audithead.FILE).read_bytes())
    with pytest.raises(AuditBroken, match=r"2026-01-01.jsonl was changed after it was verified and sealed"):
        place.open()
    log = place.open(accept_break=True)
    assert log.accepted is not None
    assert log.accepted.found is Fault.OTHER_BYTES
    log.close()
    place.start()
    assert place.read_lines() == 7


def test_a_sealed_file_that_was_cut_is_found(place: Place) -> None:
    path = place.path(2)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(AuditBroken, match="record 19 where 18 belongs"):
        place.open()


def accepted(place: Place, found: Fault) -> None:
    """The owner gets out: the break is accepted and on record, and the next starts are ordinary ones."""
    with pytest.raises(AuditBroken):
        place.open()
    log = place.open(accept_break=True)
    assert log.accepted is not None
    assert log.accepted.found is found
    assert log.find(log.head.seq) == log.accepted
    log.append(decided())
    log.close()
    for _ in range(2):
        place.start()


@pytest.mark.parametrize("head", [True, False], ids=["head kept", "head gone"])
@pytest.mark.parametrize("gone", [(0,), (1,), (2,), (3,), (2, 3), (0, 1, 2, 3)], ids=str)
def test_a_sealed_file_that_is_gone_is_a_break_that_can_be_accepted(
    place: Place, monkeypatch: pytest.MonkeyPatch, gone: tuple[int, ...], head: bool
) -> None:
    monkeypatch.setattr(auditseals, "EVERY_BYTES", 1_000)
    log = place.open()
    for make in calls(3, first=25):
        log.append(make)
    log.close()
    assert len(place.seals()) == 4
    for path in [place.path(day) for day in gone]:
        path.unlink()
    if not head:
        (place.state / audithead.FILE).unlink()
    last = 3 in gone
    in_the_chain = gone[0] < 3 and not last
    at_the_end = Fault.MISSING_END if head else Fault.OTHER_BYTES
    accepted(place, Fault.OUT_OF_ORDER if in_the_chain else at_the_end)


def test_a_sealed_file_that_is_gone_is_named(place: Place) -> None:
    for path in (place.path(2), place.path(3)):
        path.unlink()
    (place.state / audithead.FILE).unlink()
    with pytest.raises(AuditBroken, match=r"2026-01-03.jsonl is not there, and was verified and sealed"):
        place.open()


def test_an_open_day_that_is_shorter_than_its_seal_is_found_without_a_head(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditseals, "EVERY_BYTES", 1_000)
    log = place.open()
    for make in calls(3, first=25):
        log.append(make)
    log.close()
    path = place.path(3)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    (place.state / audithead.FILE).unlink()
    with pytest.raises(AuditBroken, match=r"2026-01-04.jsonl was changed after it was verified"):
        place.open()


@pytest.mark.parametrize("day", range(4))
def test_a_day_that_was_removed_is_found(place: Place, day: int) -> None:
    place.path(day).unlink()
    with pytest.raises(AuditBroken):
        place.open()


def test_lines_added_to_a_closed_day_are_found(place: Place) -> None:
    path = place.path(1)
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])
    with pytest.raises(AuditBroken, match=r"2026-01-02.jsonl:7: record 12 where 13 belongs"):
        place.open()


def test_days_behind_an_accepted_break_are_sealed_again(place: Place) -> None:
    path = place.path(1)
    path.write_bytes(path.read_bytes().replace(b"/n/a", b"/n/b", 1))
    place.start(accept_break=True)
    assert [seal.sound for seal in place.seals().values()] == [True, False, False]
    log = place.open()
    place.clock.wind(DAY_MS)
    for make in calls(1, first=26):
        log.append(make)
    log.close()
    place.start()
    assert list(place.seals()) == place.names()[:4]
    assert place.read_lines() == 3  # the stretch that was accepted is compared as a whole, too
    path.write_bytes(path.read_bytes().replace(b"/n/a", b"/n/b", 1))
    with pytest.raises(AuditBroken):
        place.open()


def test_open_calls_of_sealed_days_are_known(place: Place) -> None:
    log = place.open()
    for make in (decided(Verdict.ASK), decided()):
        log.append(make)
    place.clock.wind(DAY_MS)
    log.append(decided())
    log.close()
    assert place.read_lines() == 1
    log = place.open()
    assert log.unsettled == Unsettled(asked=(25,), allowed=(26, 27))
    log.close()


def test_a_kept_head_in_a_sealed_day_is_looked_up(place: Place) -> None:
    lines = [line for day in range(4) for line in place.path(day).read_bytes().splitlines()]
    head = place.state / audithead.FILE
    for digest, fits in ((Hash32(hashlib.sha256(lines[6]).hexdigest()), True), (SOME, False)):
        head.unlink()
        _, line = audithead.slot(Head(seq=7, hash=digest))
        head.write_bytes(line)
        if fits:
            place.start()
        else:
            with pytest.raises(AuditBroken, match="no record of this log"):
                place.open()


def test_seals_that_cannot_be_written_stop_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seals = SealFile(tmp_path, FaultyFiles(DiskFault(call="write")))
    seal = Seal(
        file="2026-01-01.jsonl",
        bytes=1,
        lines=1,
        sha256=SOME,
        before_seq=0,
        before_hash=SOME,
        seq=1,
        hash=SOME,
        log_lines=1,
        sound=True,
        asked=(),
        allowed=(),
        started=(),
    )
    seals.add(seal)
    assert "takes longer" in caplog.text
    assert seals.read() == {}
    seals.add()
    seals.add(seal)
    assert seals.read() == {seal.file: seal}
