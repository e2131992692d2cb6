"""Rows G5 and G7 of the bad-input list: the files of grants as they are now, whole and all right, or no set."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerd.grantset import GrantFiles
from bxcore.grants import GrantFaults, GrantSet
from tests.fakes.grantfiles import DENY, OTHER, TEXT, AlwaysStill, Later, NeverStill, faults, ids, put


@pytest.fixture
def clock() -> Later:
    return Later()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "grants"
    made.mkdir(mode=0o755)
    return made


@pytest.fixture(params=[None, NeverStill()], ids=["told by the kernel", "told nothing"])
def files(directory: Path, clock: Later, request: pytest.FixtureRequest) -> GrantFiles:
    return GrantFiles(directory, clock=clock, watch=request.param)


# -- what is read -----------------------------------------------------------------------------


def test_every_grant_is_read(directory: Path, files: GrantFiles) -> None:
    put(directory / "b.toml")
    put(directory / "a.toml", OTHER)
    assert [(grant.id, grant.paths) for grant in files.current().grants] == [("a", ("/etc",)), ("b", ("/srv",))]


def test_an_empty_directory_grants_nothing(files: GrantFiles) -> None:
    assert files.current() == GrantSet(grants=())


def test_g7_what_an_editor_leaves_is_no_grant(directory: Path, files: GrantFiles) -> None:
    put(directory / "a.toml")
    for name in [".a.toml.swp", "a.toml~", "#a.toml#", ".a.toml", "a.toml.bak", "a.toml.orig", "4913", "a.tml", "toml"]:
        put(directory / name, "no grant")
    (directory / ".#a.toml").symlink_to("someone@somewhere.1234:1")
    (directory / "sub").mkdir()
    put(directory / "sub" / "b.toml", "no grant")
    assert ids(files) == ["a"]


def test_a_name_in_other_letters_is_not_passed_over(directory: Path, files: GrantFiles) -> None:
    put(directory / "deny.TOML", DENY)
    [fault] = faults(files)
    assert fault.startswith("deny.TOML: expected a name of")


def test_g5_one_bad_file_and_no_grant_counts(directory: Path, files: GrantFiles) -> None:
    put(directory / "a.toml")
    put(directory / "b.toml", TEXT.replace("max_taint", "max_tant"))
    put(directory / "c.toml", "tool = ")
    assert [fault.split(": ")[0] for fault in faults(files)] == ["b.toml:1", "b.toml:3", "c.toml:1"]
    put(directory / "b.toml", TEXT)
    assert [fault.split(": ")[0] for fault in faults(files)] == ["c.toml:1"]
    (directory / "c.toml").unlink()
    assert ids(files) == ["a", "b"]


# -- what changes -----------------------------------------------------------------------------


def test_nothing_is_read_again_that_did_not_change(directory: Path, files: GrantFiles, clock: Later) -> None:
    put(directory / "a.toml")
    clock.beyond_ms = 3_600_000
    first = files.current()
    assert files.current() is first
    (directory / "a.toml").touch()
    assert files.current() is first  # read again, and it says the same


CHANGES: dict[str, Callable[[Path], object]] = {
    "written in place": lambda directory: put(directory / "a.toml", DENY),
    "written in place, as long as before": lambda directory: put(directory / "a.toml", OTHER),
    "replaced by another file": lambda directory: put(directory / "new", OTHER).rename(directory / "a.toml"),
    "removed": lambda directory: (directory / "a.toml").unlink(),
    "renamed": lambda directory: (directory / "a.toml").rename(directory / "b.toml"),
    "renamed to no grant": lambda directory: (directory / "a.toml").rename(directory / "a.toml.off"),
    "one more": lambda directory: put(directory / "b.toml"),
    "a remark more": lambda directory: put(directory / "a.toml", TEXT + "# remark\n"),
    "as long, its old time set back": lambda directory: _keep_time(directory / "a.toml", OTHER),
}


def _keep_time(path: Path, text: str) -> None:
    before = path.stat()
    put(path, text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("settled", [True, False], ids=["long ago", "just now"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_counts_at_the_next_look(
    directory: Path, files: GrantFiles, clock: Later, change: Callable[[Path], object], settled: bool
) -> None:
    put(directory / "a.toml")
    clock.beyond_ms = 3_600_000 if settled else 0
    before = files.current()
    _let_the_time_of_files_pass(directory)
    change(directory)
    after = files.current()
    assert after.digest != before.digest
    assert after == GrantFiles(directory, clock=clock).current()


def _let_the_time_of_files_pass(directory: Path) -> None:
    """Wait for the next tick of the file system, which a clock that runs ahead pretends to have seen."""
    probe = directory / "probe"
    probe.touch()
    begin = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == begin:
        probe.touch()
    probe.unlink()


def test_changes_within_one_tick_of_the_file_system_are_seen(directory: Path, files: GrantFiles) -> None:
    # Same name, inode and length, and often the same time: only the content tells.
    path = put(directory / "a.toml")
    for turn in range(300):
        text = OTHER if turn % 2 else TEXT
        path.write_text(text, encoding="utf-8")
        assert files.current().grants[0].paths == (("/etc",) if turn % 2 else ("/srv",))


def test_a_mended_mode_counts_at_the_next_look(directory: Path, files: GrantFiles, clock: Later) -> None:
    clock.beyond_ms = 3_600_000
    path = put(directory / "a.toml", mode=0o666)
    assert len(faults(files)) == 1
    path.chmod(0o644)
    assert ids(files) == ["a"]
    path.chmod(0o664)
    assert len(faults(files)) == 1


def test_a_directory_that_goes_and_comes_again_is_read_again(
    directory: Path, files: GrantFiles, clock: Later, tmp_path: Path
) -> None:
    clock.beyond_ms = 3_600_000
    put(directory / "a.toml")
    before = files.current()
    directory.rename(tmp_path / "away")
    assert faults(files) == [f"{directory}: there is no such directory"]
    (tmp_path / "away").rename(directory)
    assert files.current() == before


def test_another_directory_in_its_place_is_another_set(
    directory: Path, files: GrantFiles, clock: Later, tmp_path: Path
) -> None:
    clock.beyond_ms = 3_600_000
    put(directory / "a.toml")
    files.current()
    directory.rename(tmp_path / "away")
    directory.mkdir(mode=0o755)
    assert ids(files) == []


def test_g7_a_file_in_the_making_is_refused_until_it_is_whole(directory: Path, files: GrantFiles) -> None:
    put(directory / "a.toml")
    text, path = DENY.encode(), put(directory / "deny.toml", "")
    with path.open("ab", buffering=0) as half:
        for position in range(len(text)):
            try:
                assert "deny" in ids(files)
            except GrantFaults:
                assert position < len(text) - 1  # only the last newline may be missing
            half.write(text[position : position + 1])
    assert ids(files) == ["a", "deny"]


def test_a_file_that_never_stands_still_is_refused(directory: Path, clock: Later) -> None:
    path = put(directory / "a.toml")
    busy = [True]

    def touched(*args: Any, **more: Any) -> int:
        if busy[0]:
            path.write_text(path.read_text() + "# more\n", encoding="utf-8")
        return os.open(*args, **more)

    files = GrantFiles(directory, clock=clock, opener=touched)
    assert faults(files) == [f"{directory}: changes again and again while it is read"]
    busy[0] = False
    assert ids(files) == ["a"]


def test_what_the_kernel_does_not_tell_is_found_within_a_second(directory: Path, clock: Later) -> None:
    put(directory / "a.toml")
    files = GrantFiles(directory, clock=clock, watch=AlwaysStill())
    files.current()
    put(directory / "deny.toml", DENY)
    clock.beyond_ms += 1_000
    assert ids(files) == ["a", "deny"]


def test_a_faulty_set_is_kept_no_longer_than_a_good_one(directory: Path, clock: Later) -> None:
    path = put(directory / "a.toml", "tool = 1")
    watch = AlwaysStill()
    files = GrantFiles(directory, clock=clock, watch=watch)
    assert len(faults(files)) == len(faults(files)) == 3
    assert watch.begun == 1
    put(path)
    clock.beyond_ms += 1_000
    assert ids(files) == ["a"]


def test_the_kernels_word_counts_for_nothing_after_a_look_that_failed(directory: Path, clock: Later) -> None:
    put(directory / "a.toml")
    files = GrantFiles(directory, clock=clock, watch=AlwaysStill())
    files.current()
    clock.beyond_ms += 1_000
    directory.chmod(0o777)
    assert len(faults(files)) == 1
    assert len(faults(files)) == 1
    directory.chmod(0o755)
    assert ids(files) == ["a"]


def test_a_look_that_fails_for_no_known_reason_leaves_no_old_answer(
    directory: Path, files: GrantFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(directory / "a.toml")
    files.current()

    def broken(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(files, "_look", broken)
    with pytest.raises(MemoryError):
        files.current()
    with pytest.raises(MemoryError):
        files.current()


# -- threads and the log ----------------------------------------------------------------------


@pytest.fixture
def writer(directory: Path) -> Iterator[threading.Event]:
    """Replace the one grant again and again by another file: it names /srv or /etc, never anything between."""
    stop = threading.Event()

    def write() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            put(directory / "new", OTHER if turn % 2 else TEXT).rename(directory / "a.toml")

    put(directory / "a.toml")
    thread = threading.Thread(target=write)
    thread.start()
    yield stop
    stop.set()
    thread.join()


def test_many_threads_get_whole_sets_while_a_file_is_replaced(files: GrantFiles, writer: threading.Event) -> None:
    seen: list[str] = []

    def look() -> None:
        for _ in range(100):
            try:
                seen.append(files.current().grants[0].paths[0])
            except GrantFaults as error:
                seen.append(error.faults[0].text)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.set()
    assert len(seen) == 400
    assert set(seen) <= {"/srv", "/etc", "changes again and again while it is read"}
    assert set(seen) & {"/srv", "/etc"}


def test_a_look_that_began_before_a_caller_came_does_not_answer_it(
    directory: Path, files: GrantFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(directory / "a.toml")
    looked, go_on = threading.Event(), threading.Event()
    real = files._look

    def slow() -> GrantSet | tuple[object, ...]:
        answer = real()
        looked.set()
        assert go_on.wait(60)
        return answer

    monkeypatch.setattr(files, "_look", slow)
    early: list[list[str]] = []
    first = threading.Thread(target=lambda: early.append(ids(files)))
    first.start()
    assert looked.wait(60)
    put(directory / "b.toml")  # after the first one looked, and before the second one asks
    late: list[list[str]] = []
    second = threading.Thread(target=lambda: late.append(ids(files)))
    second.start()
    go_on.set()
    first.join()
    second.join()
    assert early == [["a"]]
    assert late == [["a", "b"]]


def test_a_change_is_logged_once(
    directory: Path, files: GrantFiles, caplog: pytest.LogCaptureFixture, clock: Later
) -> None:
    caplog.set_level("INFO")
    put(directory / "a.toml")
    for _ in range(3):
        files.current()
    put(directory / "b.toml", "tool = 1")
    for _ in range(3):
        faults(files)
    (directory / "b.toml").unlink()
    for _ in range(3):
        files.current()
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR", "INFO"]
