import errno
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore import audithead
from bxcore.backupcheck import BackupUnfinished
from bxcore.errors import StateError
from bxcore.files import NewTree, StateInUse, lock_directory
from bxctl import backupcreate
from bxctl.backupcreate import BackupNothing, BackupTarget, BackupUnreadable
from tests.fakes.backedup import BackedUp, manifest_lines, tree_of
from tests.fakes.faulty_files import Fault, FaultySystem, killed_at


@pytest.fixture
def place(tmp_path: Path) -> BackedUp:
    made = BackedUp(tmp_path)
    made.fill()
    return made


def test_everything_that_is_kept_is_in_it_byte_for_byte(place: BackedUp) -> None:
    directory = place.create()
    there = tree_of(directory)
    assert there.pop("manifest.jsonl")
    kept = tree_of(place.home) | {f"etc/{path}": said for path, said in tree_of(place.etc).items()}
    assert there == kept
    assert {path.split("/")[0] for path in there} == {"sessions", "audit", "broker", "etc"}
    assert place.findings(directory) == []
    assert not (place.top / ".b.unfinished").exists()


def test_it_is_readable_by_its_maker_alone(place: BackedUp) -> None:
    directory = place.create()
    for path in (directory, *directory.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_the_manifest_says_what_when_and_up_to_which_record(place: BackedUp) -> None:
    begin, *between, end = manifest_lines(place.create())
    assert (begin["type"], begin["format"], begin["parts"]) == ("backup", 1, ["sessions", "audit", "broker", "etc"])
    kept = audithead.read((place.home / "broker" / "audit-head").read_bytes())
    assert begin["head"] == str(kept)
    assert {line["type"] for line in between} == {"file"}
    assert between[0].keys() == {"type", "path", "bytes", "sha256", "mode", "changed", "cut"}
    assert (end["type"], end["files"]) == ("end", len(between))


def test_nothing_of_the_home_is_changed(place: BackedUp) -> None:
    before = {path: (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in place.home.rglob("*")}
    place.create()
    assert {path: (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in place.home.rglob("*")} == before


def test_a_line_that_is_being_written_is_left_out_and_told(place: BackedUp) -> None:
    log, audit = place.home / "sessions" / "s-1" / "0.jsonl", place.home / "audit" / "2026-01-02.jsonl"
    for path in (log, audit):
        with path.open("ab") as file:
            file.write(b'{"half a')
    directory = place.create()
    assert place.findings(directory) == []
    assert (directory / "sessions" / "s-1" / "0.jsonl").read_bytes() == log.read_bytes().removesuffix(b'{"half a')
    assert {line["path"] for line in manifest_lines(directory) if line.get("cut") == 8} == {
        "sessions/s-1/0.jsonl",
        "audit/2026-01-02.jsonl",
    }
    assert place.out.getvalue().count("8 B at its end were no whole line yet, and were left out") == 2


def test_a_line_without_end_takes_no_memory(place: BackedUp) -> None:
    with (place.home / "sessions" / "s-1" / "0.jsonl").open("ab") as file:
        file.truncate(80_000_000)
    tracemalloc.start()
    try:
        directory = place.create()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 12_000_000
    assert place.findings(directory) == []


def test_what_is_no_state_is_left_out_and_told(place: BackedUp) -> None:
    sessions, broker = place.home / "sessions", place.home / "broker"
    (sessions / "s-9").symlink_to(sessions / "s-1")
    (sessions / "s-1" / "notes.txt").write_text("mine")
    (sessions / "Not One").mkdir()
    os.mkfifo(broker / "audit-seals.pipe")
    (broker / "state.db-wal").write_text("old")
    (place.home / "audit" / "copy.jsonl~").write_text("old")
    (place.etc / "grants" / "a.toml~").write_text("old")
    (place.etc / "loopd.toml").symlink_to("/nowhere/loopd.toml")
    (place.home / "gateway").mkdir()
    (place.home / "gateway" / "queue.sqlite").write_text("what was said")
    (place.home / "index").mkdir()
    (place.home / "index" / "memory.db-wal").write_text("old")
    (sessions / "s-1" / ".0.jsonl.1234.new").write_text("half")
    directory = place.create()
    assert {(line["path"], line["why"]) for line in manifest_lines(directory) if line["type"] == "left_out"} == {
        ("sessions/s-9", "a symbolic link"),
        ("sessions/s-1/notes.txt", "a file that is no part of Boxmaker's state"),
        ("sessions/Not One", "a directory that no role makes there"),
        ("broker/audit-seals.pipe", "no file"),
        ("broker/state.db-wal", "a file that is no part of Boxmaker's state"),
        ("audit/copy.jsonl~", "a file that is no part of Boxmaker's state"),
        ("etc/grants/a.toml~", "a file that is no part of Boxmaker's state"),
        ("etc/loopd.toml", "a symbolic link"),
    }
    assert "left out: sessions/s-9, a symbolic link" in place.out.getvalue()
    assert place.findings(directory) == []
    assert not (directory / "index").exists()
    assert not (directory / "gateway").exists()


@pytest.mark.parametrize("what", ["a link", "a pipe", "nothing"])
def test_a_session_without_a_log_is_told(place: BackedUp, what: str) -> None:
    log = place.home / "sessions" / "s-2" / "0.jsonl"
    log.rename(place.top / "moved")
    if what == "a link":
        log.symlink_to(place.top / "moved")
    elif what == "a pipe":
        os.mkfifo(log)
    directory = place.create()
    left_out = [(line["path"], line["why"]) for line in manifest_lines(directory) if line["type"] == "left_out"]
    assert ("sessions/s-2", "a session that has no log") in left_out
    told = {"a link": ["a symbolic link"], "a pipe": ["no file"], "nothing": []}
    assert [why for path, why in left_out if path == "sessions/s-2/0.jsonl"] == told[what]
    assert "left out: sessions/s-2, a session that has no log" in place.out.getvalue()
    assert not (directory / "sessions" / "s-2").exists()


def test_a_file_that_is_all_holes_fills_no_disk(place: BackedUp) -> None:
    (place.home / "sessions" / "s-1" / "results").mkdir(exist_ok=True)
    path = place.home / "sessions" / "s-1" / "results" / "7.txt"
    path.touch()
    os.truncate(path, 10**12)
    directory = place.create()
    words = "longer than anything that a role writes there"
    assert [(line["path"], line["why"]) for line in manifest_lines(directory) if line["type"] == "left_out"] == [
        ("sessions/s-1/results/7.txt", words)
    ]


def test_what_does_not_fit_is_refused_before_the_disk_is_full(place: BackedUp) -> None:
    disk = os.statvfs(place.top)
    os.truncate(place.home / "sessions" / "s-1" / "0.jsonl", min(2**43, 2 * disk.f_blocks * disk.f_frsize))
    with pytest.raises(BackupTarget, match="are free there, the backup takes"):
        place.create()
    assert not (place.top / ".b.unfinished").exists()


def test_memory_has_a_depth(place: BackedUp) -> None:
    deep = place.home.joinpath("memory", *["d"] * 40)
    deep.mkdir(parents=True)
    (deep / "a.md").write_text("x")
    (deep.parent.parent / "b.md").write_text("x")
    assert [line["path"] for line in manifest_lines(place.create()) if line["type"] == "left_out"] == [
        "memory/" + "/".join(["d"] * 33)
    ]


@pytest.mark.parametrize("what", ["audit-head", "audit-seals.jsonl", "clock"])
def test_what_lies_in_the_place_of_a_file_and_is_none_is_left_out(place: BackedUp, what: str) -> None:
    path = place.home / "broker" / what
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    directory = place.create()
    assert [line["path"] for line in manifest_lines(directory) if line["type"] == "left_out"] == [f"broker/{what}"]


def test_a_name_that_is_no_text_is_left_out(place: BackedUp) -> None:
    (place.home / "audit" / os.fsdecode(b"\xff\n")).write_text("x")
    assert manifest_lines(place.create())[-2]["path"] == "audit/\\xff\n"


def test_memory_is_copied_whole_but_for_its_index(place: BackedUp) -> None:
    memory = place.home / "memory"
    (memory / "people").mkdir(parents=True)
    for name in ("facts.md", "people/anna.md", "index.sqlite", "index.sqlite-wal", "index.db-shm", ".git"):
        (memory / name).write_text(name)
    directory = place.create()
    assert {path for path in tree_of(directory) if path.startswith("memory/")} == {
        "memory/facts.md",
        "memory/people/anna.md",
    }
    assert place.findings(directory) == []


def test_json_says_the_same(place: BackedUp, capsys: pytest.CaptureFixture[str]) -> None:
    (place.home / "sessions" / "s-9").symlink_to("s-1")
    assert backupcreate.create(place.world(), place.top / "b", etc=place.etc, json=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["whole"], said["left_out"]) == (True, {"sessions/s-9": "a symbolic link"})
    assert said["files"] == len([line for line in manifest_lines(place.top / "b") if line["type"] == "file"])


def test_a_log_that_is_broken_is_copied_as_it_is_and_told(place: BackedUp) -> None:
    path = place.home / "audit" / "2026-01-01.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"tool":"read_file"', b'"tool":"tead_file"', 1))
    directory = place.create(code=1)
    assert "[audit_broken]" in place.out.getvalue()
    assert (directory / "audit" / "2026-01-01.jsonl").read_bytes() == path.read_bytes()
    assert not place.check(directory).is_damaged


# -- refused ------------------------------------------------------------------------------------------


def _a_file(path: Path) -> None:
    path.write_text("x")


def _full(path: Path) -> None:
    path.mkdir()
    (path / "x").touch()


def _a_link(path: Path) -> None:
    path.symlink_to(path.parent)


@pytest.mark.parametrize("taken", [_a_file, _full, _a_link])
def test_a_place_that_is_taken_is_refused(place: BackedUp, taken: Callable[[Path], None]) -> None:
    taken(place.top / "b")
    before = sorted(place.top.iterdir())
    with pytest.raises(BackupTarget, match="is there already and not empty"):
        place.create()
    assert sorted(place.top.iterdir()) == before


def test_an_empty_directory_is_a_place(place: BackedUp) -> None:
    (place.top / "b").mkdir()
    assert place.findings(place.create()) == []


@pytest.mark.parametrize("name", ["nowhere/b", "home/sessions/b", "home/audit/b", "etc/b", ".b.unfinished"])
def test_a_place_that_cannot_be_one_is_refused(place: BackedUp, name: str) -> None:
    with pytest.raises(BackupTarget):
        place.create(name)


def test_a_home_without_anything_is_refused(tmp_path: Path) -> None:
    place = BackedUp(tmp_path)
    with pytest.raises(BackupNothing, match="holds none of sessions, audit, broker, memory"):
        place.create()
    assert not (tmp_path / "b").exists()


def test_two_at_once_in_one_place_are_refused(place: BackedUp) -> None:
    unfinished = place.top / ".b.unfinished"
    unfinished.mkdir()
    lock = lock_directory(unfinished)
    with pytest.raises(StateInUse, match="another backup is being made there"):
        place.create()
    lock.close()
    place.create()


# -- a disk that fails ----------------------------------------------------------------------------------


def calls(place: BackedUp) -> list[tuple[str, int]]:
    system = FaultySystem(None)
    place.create("counted", tree=NewTree(system))
    return [(call, at) for call, count in system.calls.items() for at in range(count)]


def test_a_disk_that_is_full_or_fails_at_any_call_leaves_nothing(place: BackedUp) -> None:
    tried = calls(place)
    assert len(tried) > 60
    for call, at in tried:
        fault = Fault(call=call, at=at, error=errno.ENOSPC, after_bytes=3)
        with pytest.raises(StateError) as refused:
            place.create(tree=NewTree(FaultySystem(fault)))
        assert refused.value.code == "state_unwritable"
        assert "No space left on device" in refused.value.detail
        assert not (place.top / ".b.unfinished").exists()
        if (place.top / "b").exists():  # its name alone was not made durable: it is whole, and nobody was told so
            assert at == max(number for name, number in tried if name == call)
            assert place.findings(place.top / "b") == []
            shutil.rmtree(place.top / "b")


def test_killed_at_any_call_it_leaves_no_backup_and_the_next_one_succeeds(place: BackedUp) -> None:
    at = 0
    while killed_at(at, lambda system: place.create(tree=NewTree(system))):
        at += 1
        if (place.top / "b").exists():  # moved, and killed before the move was durable
            assert place.findings(place.top / "b") == []
            shutil.rmtree(place.top / "b")
        else:
            with pytest.raises(BackupUnfinished):
                place.check(place.top / ".b.unfinished")
    assert at > 60
    assert place.findings(place.top / "b") == []
    assert not (place.top / ".b.unfinished").exists()


def test_what_a_killed_one_left_is_removed_and_told(place: BackedUp) -> None:
    assert killed_at(40, lambda system: place.create(tree=NewTree(system)))
    assert (place.top / ".b.unfinished").is_dir()
    place.create()
    assert not (place.top / ".b.unfinished").exists()
    assert "which a backup that was cut short had left" in place.err.getvalue()


def test_a_stranger_in_the_place_of_the_unfinished_one_is_not_touched(place: BackedUp) -> None:
    other = place.top / "other"
    other.mkdir()
    (other / "x").touch()
    (place.top / ".b.unfinished").symlink_to(other)
    with pytest.raises(BackupTarget, match="is in the way"):
        place.create()
    assert (other / "x").exists()


def test_a_socket_among_the_sessions_is_passed_over(place: BackedUp) -> None:
    listener = socket.socket(socket.AF_UNIX)
    short = f"/proc/self/fd/{os.open(place.home / 'sessions', os.O_RDONLY)}"  # a socket's path may have 107 bytes
    listener.bind(f"{short}/s.sock")
    listener.close()
    os.close(int(short.rpartition("/")[2]))
    assert manifest_lines(place.create())[-2]["why"] == "no file"


@pytest.mark.skipif(os.geteuid() != 0, reason="root reads everything, and only root becomes somebody else")
def test_who_may_not_read_a_roles_files_is_told_the_command(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="bxd") as name:  # tmp_path is closed to others
        place = BackedUp(Path(name))
        place.fill()
        for path in (place.top, place.home, place.etc):
            path.chmod(0o755)
        place.top.chmod(0o777)
        told = tmp_path / "told"
        with told.open("w") as file:
            child = os.fork()
            if child == 0:
                try:
                    os.setresuid(65_534, 65_534, 65_534)
                    place.create()
                except BackupUnreadable as error:
                    file.write(str(error))
                    file.flush()
                    os._exit(0)
                finally:
                    os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert "Permission denied" in told.read_text()
        assert re.search(r"do this as root: sudo .* backup create .*/b \[backup_unreadable\]$", told.read_text())
        assert sorted(path.name for path in place.top.iterdir()) == ["etc", "home"]
