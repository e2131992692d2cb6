"""What changes while a backup is made: what a role may do to its own files, and what nobody does."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore.backupsource import Source, SourceChanged
from bxcore.files import NewTree, StateDenied, StateUnreadable
from bxctl import backupcreate
from bxctl.backupcreate import BackupUnreadable
from tests.fakes.backedup import SECRET, BackedUp, manifest_lines, tree_of


@pytest.fixture
def place(tmp_path: Path) -> BackedUp:
    made = BackedUp(tmp_path)
    made.fill()
    return made


class Meanwhile(NewTree):
    """Does something once, before the file that ends with a name is copied."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._name, self._act = name, act
        self._acted = False

    def make_file(self, path: Path):  # type: ignore[no-untyped-def]
        if not self._acted and str(path).endswith(self._name):
            self._acted = True
            self._act()
        return super().make_file(path)


def test_a_session_that_is_removed_meanwhile_goes_as_a_whole(place: BackedUp) -> None:
    gone = place.home / "sessions" / "s-2"
    directory = place.create(tree=Meanwhile("s-2/0.baseline.json", lambda: shutil.rmtree(gone)))
    assert place.findings(directory) == []
    assert not (directory / "sessions" / "s-2").exists()
    assert "left out: sessions/s-2, was removed while the backup was made" in place.out.getvalue()


def test_a_session_that_begins_meanwhile_is_not_in_it(place: BackedUp) -> None:
    with place.live() as live:
        directory = place.create(tree=Meanwhile("s-1/0.jsonl", lambda: live.turn("s-7", labels=SECRET)))
    assert place.findings(directory) == []
    assert not (directory / "sessions" / "s-7").exists()


def test_a_day_that_begins_meanwhile_is_not_in_it(place: BackedUp) -> None:
    with place.live() as live:

        def midnight() -> None:
            place.clock.wind(86_400_000)
            live.turn("s-1", labels=SECRET)

        directory = place.create(tree=Meanwhile("audit/2026-01-01.jsonl", midnight))
    assert place.findings(directory) == []
    assert sorted(path.name for path in (directory / "audit").iterdir()) == ["2026-01-01.jsonl", "2026-01-02.jsonl"]


def test_a_directory_that_a_role_swaps_for_a_link_meanwhile_leads_nowhere(place: BackedUp) -> None:
    """root reads where loopd may write: through the link loopd would have root copy what loopd may not read."""
    secret, session = place.top / "secret", place.home / "sessions" / "s-2"
    secret.mkdir()
    for path in session.iterdir():
        if path.is_file():
            (secret / path.name).write_text("not loopd's to read")

    def swap() -> None:
        shutil.rmtree(session)
        session.symlink_to(secret)

    directory = place.create(tree=Meanwhile("s-2/0.baseline.json", swap), code=1)
    assert not any("not loopd's to read" in path.read_text() for path in directory.rglob("*") if path.is_file())
    assert_lost(place, directory)


def assert_lost(place: BackedUp, directory: Path, session: str = "s-2") -> None:
    """One session is not in it, which is told; all else is."""
    assert not (directory / "sessions" / session).exists()
    assert {path.name for path in (place.home / "sessions").iterdir() if path.name.startswith("s-")} - {session} == {
        path.name for path in (directory / "sessions").iterdir()
    }
    assert place.findings(directory) == []
    kept = tree_of(place.home / "audit")
    assert tree_of(directory / "audit") == kept
    why = "was changed while the backup was made, as no role changes it"
    left_out = [(line["path"], line["why"]) for line in manifest_lines(directory) if line["type"] == "left_out"]
    assert (f"sessions/{session}", why) in left_out
    assert f"left out: sessions/{session}, {why}" in place.out.getvalue()
    assert "lacks 1 session that changed as no role changes them. [backup_source_changed]" in place.out.getvalue()


def test_a_file_that_grows_without_end_meanwhile_is_not_copied_without_end(place: BackedUp) -> None:
    path = place.home / "sessions" / "s-2" / "0.baseline.json"
    tree = Meanwhile("s-2/0.baseline.json", lambda: os.truncate(path, 10**12))
    assert_lost(place, place.create(tree=tree, code=1))


class Appending(NewTree):
    """Writes to a file whenever it is copied."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        self._source = source

    def make_file(self, path: Path):  # type: ignore[no-untyped-def]
        if path.name == self._source.name:
            with self._source.open("a") as file:
                file.write("x")
        return super().make_file(path)


def test_a_session_that_is_written_to_without_end_prevents_no_backup(
    place: BackedUp, capsys: pytest.CaptureFixture[str]
) -> None:
    results = place.home / "sessions" / "s-2" / "results"
    results.mkdir(exist_ok=True)
    (results / "7.txt").touch()
    assert_lost(place, place.create(tree=Appending(results / "7.txt"), code=1))
    tree = Appending(results / "7.txt")
    assert backupcreate.create(place.world(), place.top / "c", etc=place.etc, json=True, tree=tree) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["whole"], said["lost"]) == (False, ["sessions/s-2"])


@pytest.mark.parametrize("how", ["shortened", "replaced"])
def test_a_session_log_that_is_shortened_or_replaced_prevents_no_backup(place: BackedUp, how: str) -> None:
    path = place.home / "sessions" / "s-2" / "0.jsonl"

    def change() -> None:
        content = path.read_bytes()
        path.with_name(".beside").write_bytes(content)
        path.with_name(".beside").rename(path) if how == "replaced" else os.truncate(path, len(content) - 1)

    assert_lost(place, place.create(tree=Meanwhile("s-1/0.jsonl", change), code=1))


class Swapped(Source):
    """Finds a file in the place of a session's directory, at the `at`-th look into it."""

    at: int
    looks: int
    folder = "sessions/s-2"

    def _names(self, folder: str) -> list[str]:
        if folder == self.folder:
            Swapped.looks += 1
            if Swapped.looks == Swapped.at:
                raise StateUnreadable("sessions/s-2: Not a directory")
        return super()._names(folder)


def test_a_session_that_is_swapped_at_any_look_prevents_no_backup(
    place: BackedUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backupcreate, "Source", Swapped)
    Swapped.at, Swapped.looks = 0, 0
    place.create("counted")
    looks = Swapped.looks
    assert looks > 3
    for Swapped.at in range(1, looks + 1):
        Swapped.looks = 0
        place.out.truncate(0)
        assert_lost(place, place.create(f"b{Swapped.at}", code=1))


def test_who_may_not_read_a_session_makes_no_backup_without_it(
    place: BackedUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Source, folder: str) -> list[str]:
        if folder == "sessions/s-2":
            raise StateDenied("sessions/s-2: Permission denied")
        return names(self, folder)

    names = Source._names
    monkeypatch.setattr(Source, "_names", denied)
    with pytest.raises(BackupUnreadable):
        place.create()


@pytest.mark.parametrize("name", ["audit/2026-01-02.jsonl", "broker/audit-seals.jsonl"])
def test_what_nobody_removes_may_not_go(place: BackedUp, name: str) -> None:
    with pytest.raises(SourceChanged):
        place.create(tree=Meanwhile("audit-head", (place.home / name).unlink))
    assert not (place.top / "b").exists()
    assert not (place.top / ".b.unfinished").exists()


@pytest.mark.parametrize("how", ["shortened", "replaced"])
def test_a_log_that_is_shortened_or_replaced_is_refused(place: BackedUp, how: str) -> None:
    path = place.home / "audit" / "2026-01-02.jsonl"

    def change() -> None:
        content = path.read_bytes()
        beside = path.with_name(".beside")
        beside.write_bytes(content)
        beside.rename(path) if how == "replaced" else os.truncate(path, len(content) - 1)

    with pytest.raises(SourceChanged):
        place.create(tree=Meanwhile("audit-head", change))


def test_a_grant_that_is_removed_meanwhile_is_not_in_it(place: BackedUp) -> None:
    other = place.grant("other")
    directory = place.create(tree=Meanwhile("grants/notes.toml", other.unlink))
    assert place.findings(directory) == []
    assert not (directory / "etc" / "grants" / "other.toml").exists()


def test_the_labels_are_looked_at_last(place: BackedUp) -> None:
    paths = [wanted.path for wanted in Source(place.home, place.etc).files()]
    kinds = [path.rpartition("/")[0].partition("/s-")[0] for path in paths]
    assert list(dict.fromkeys(kinds)) == ["sessions", "broker", "audit", "etc/grants", "broker/sessions"]
    assert paths[-1] == "broker/clock"
    assert paths.index("broker/sessions/complete") < paths.index("broker/sessions/s-2.json")
