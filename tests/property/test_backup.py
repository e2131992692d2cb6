"""Row S10: backups that are taken while both roles write as fast as they can; each verifies and is gone on with."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import backupmanifest
from bxcore.backupmanifest import Begin, File, LeftOut, Reader
from bxcore.ids import Hash32
from bxcore.timestamp import Timestamp
from tests.fakes.backedup import BackedUp, tree_of

HOMES, ROUNDS = 20, 10
GONE_ON_WITH_EVERY = 5


@pytest.mark.parametrize("_home", range(HOMES))
def test_s10_each_of_two_hundred_backups_during_writes_verifies_and_restores(tmp_path: Path, _home: int) -> None:
    """A new home every ten rounds: a log that has grown hides what goes wrong while one is small."""
    place, least = BackedUp(tmp_path), 0
    with place.being_written() as wrote:
        for number in range(ROUNDS):
            wrote.clear()
            assert wrote.wait(60)  # so that it is written between any two
            least = one_round(place, number, least)
    with place.live() as live:  # what was backed up is as it was
        live.assert_labels_hold()


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
BEGIN = Begin(format=1, time=Timestamp(0), boxmaker="0.1.0", parts=("audit",), head=None)


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
