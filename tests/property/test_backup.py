"""Row S10: backups that are taken while both roles write; each verifies and is gone on with."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import backupmanifest
from bxcore.auditlog import Decided
from bxcore.backupmanifest import Begin, File, LeftOut, Reader
from bxcore.backupsource import Cut, Source
from bxcore.ids import Hash32
from bxcore.sessionrecords import TurnEnd
from bxcore.timestamp import Timestamp
from bxctl import backupcreate
from tests.fakes.audited import decided
from tests.fakes.backedup import HOUR_MS, SECRET, BackedUp, Live, tree_of

HOMES, ROUNDS = 5, 10
GONE_ON_WITH_EVERY = 5
TURNS = 40
"""In each round: more than are written while the files are looked at, fewer than make the log long."""


@pytest.mark.parametrize("_home", range(HOMES))
def test_s10_each_of_fifty_backups_during_writes_verifies_and_restores(tmp_path: Path, _home: int) -> None:
    """A new home every ten rounds: a log that has grown hides what goes wrong while one is small."""
    place, least = BackedUp(tmp_path), 0
    with place.being_written() as writing:
        for number in range(ROUNDS):
            writing.turns(TURNS)
            least = one_round(place, number, least)
    with place.live() as live:  # what was backed up is as it was
        live.assert_labels_hold()


class Interrupted(Source):
    """Has one turn written at the `at`-th look at a file or at the names of a directory."""

    left: int
    act: Callable[[], object]

    def _cut_of(self, path: str) -> Cut | None:
        self._tick()
        return super()._cut_of(path)

    def _names(self, folder: str) -> list[str]:
        self._tick()
        return super()._names(folder)

    def _read_head(self) -> bytes | None:
        self._tick()
        return super()._read_head()

    def _tick(self) -> None:
        Interrupted.left -= 1
        if Interrupted.left == 0:
            Interrupted.act()


def test_s10_a_turn_at_any_moment_of_the_cut_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every moment once, and in each a turn whole: its session, its records, its labels."""
    monkeypatch.setattr(backupcreate, "Source", Interrupted)
    place, number = BackedUp(tmp_path), 0
    place.fill()
    with place.live() as live:
        Interrupted.act = lambda: live.turn("s-1", labels=SECRET)
        Interrupted.left = 1
        while Interrupted.left <= 0 or number == 0:
            number += 1
            Interrupted.left = number
            directory = place.create(f"b{number}")
            assert place.findings(directory) == [], number
            with place.live(place.restore(directory, f"r{number}")) as restored:
                restored.assert_labels_hold()
                calls = [record.session for record in restored.audit.records() if isinstance(record, Decided)]
                for session in restored.store.ids():
                    told = sum(isinstance(record, TurnEnd) for record in restored.records(session))
                    assert told == calls.count(session), (number, session)
    assert number > 30


def test_s10_a_record_at_any_moment_of_the_cut_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """brokerd records while no session goes on, so the cut is made once: head and seals are not ahead of the log."""
    monkeypatch.setattr(backupcreate, "Source", Interrupted)
    number = Interrupted.left = 0
    while Interrupted.left <= 0:
        number += 1
        (tmp_path / str(number)).mkdir()
        place = BackedUp(tmp_path / str(number))  # anew: each day is one more file, and so one more moment
        place.fill()
        with place.live() as live:

            def new_day(place: BackedUp = place, live: Live = live) -> None:
                live.audit.append(decided(session="s-1"))
                place.clock.wind(24 * HOUR_MS)
                live.audit.append(decided(session="s-1"))

            Interrupted.act, Interrupted.left = new_day, number
            directory = place.create()
            assert place.findings(directory) == [], number
        with place.live(place.restore(directory)) as restored:
            assert restored.audit.recovered is None
            restored.turn("s-1")
    assert number > 30


def one_round(place: BackedUp, number: int, least: int) -> int:
    directory = place.create(f"b{number}")
    checked = place.check(directory)
    assert checked.findings == (), number
    assert checked.report is not None
    assert checked.report.torn is None
    assert checked.report.head.seq > least
    home = place.restore(directory, f"r{number}")
    copied = {path: said for path, said in tree_of(directory).items() if not path.startswith(("etc", "manifest"))}
    assert tree_of(home) == copied
    if number % GONE_ON_WITH_EVERY == 0:
        go_on(place, home)
    return checked.report.head.seq


def go_on(place: BackedUp, home: Path) -> None:
    """The roles start on it, lose nothing, and go on."""
    with place.live(home) as live:
        assert live.audit.recovered is None
        live.assert_labels_hold()
        recorded = {record.session for record in live.audit.records() if hasattr(record, "session")}
        for session in live.store.ids():
            assert live.records(session)
            assert session in recorded or len(live.records(session)) <= 3  # its first call was not decided yet
            live.turn(session)


NAMES = st.sampled_from(
    ["audit/2026-01-01.jsonl", "memory/a.md", "sessions/s/0.jsonl", "etc/grants/x.toml", "broker/clock"]
)
FILES = st.lists(
    st.builds(
        File,
        path=NAMES,
        bytes=st.integers(0, 2**53 - 1),
        sha256=st.just(Hash32("a" * 64)),
        mode=st.sampled_from(["0600", "0640"]),
        changed=st.integers(0, 10**12).map(Timestamp),
        cut=st.integers(0, 99),
    ),
    unique_by=lambda file: file.path,
)
LEFT_OUT = st.lists(st.builds(LeftOut, path=st.text(max_size=9), why=st.text(max_size=9)))
BEGIN = Begin(
    format=1, time=Timestamp(0), boxmaker="0.1.0", parts=("sessions", "audit", "broker", "memory", "etc"), head=None
)


def read(lines: list[bytes]) -> backupmanifest.Manifest:
    reader = Reader()
    for line in lines:
        reader.take(line.removesuffix(b"\n"))
    return reader.finish()


@given(FILES.filter(lambda files: sum(file.bytes for file in files) < 2**53), LEFT_OUT)
def test_a_manifest_is_read_as_it_was_written(files: list[File], left_out: list[LeftOut]) -> None:
    found = read(list(backupmanifest.encode(BEGIN, files, left_out)))
    assert (found.begin, list(found.files.values()), list(found.left_out)) == (BEGIN, files, left_out)


@given(st.lists(st.text(alphabet="abs./0jsonlmery-", max_size=12), max_size=5))
def test_no_path_that_a_backup_holds_leads_out_of_it(names: list[str]) -> None:
    for first in ("audit", "broker", "sessions", "memory", "etc"):
        path = "/".join((first, *names))
        if backupmanifest.belongs(path):
            assert (Path("/b") / path).resolve().is_relative_to(f"/b/{first}")
            assert str(Path("/b") / path) == f"/b/{path}"
            assert not any(part.startswith(".") for part in path.split("/"))
