import hashlib
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore.errors import StateError
from bxcore.files import DiskFiles, StateInUse, StateUnreadable
from bxcore.ids import CallId, SessionId
from bxcore.jsonl import Recovery
from bxcore.sessionrecords import Record, SessionStart, User
from bxcore.settings.loopd import Sampling
from loopd import baseline, toolbox
from loopd.faults import SessionDamaged, SessionExists
from loopd.sessionlog import OpenLog, SessionStore
from tests.fakes.clocks import HandClock
from tests.fakes.faulty_files import Fault, FaultyFiles
from tests.fakes.records import end, said, start, user

S = SessionId("s")
FRONT = baseline.make(sampling=Sampling(), tools=toolbox.core_schemas())
OTHER_FRONT = baseline.make(sampling=Sampling(top_k=7), tools=toolbox.core_schemas())


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions", files=FaultyFiles(None), clock=HandClock())


def made(store: SessionStore, *records: Record, session: SessionId = S) -> None:
    _, _, log_file = store.create(session, FRONT, slot=0)
    log_file.append(*records)
    log_file.close()


def log_of(tmp_path: Path, session: str = "s") -> Path:
    return tmp_path / "sessions" / session / "0.jsonl"


def opened(store: SessionStore) -> list[Record]:
    stored, front, log_file = store.open(S)
    try:
        assert front == FRONT
        return list(stored.records)
    finally:
        log_file.close()


def test_a_log_is_opened_without_holding_it_in_memory(store: SessionStore, tmp_path: Path) -> None:
    made(store, *[said("x" * 1_000) for _ in range(2_000)])
    tracemalloc.start()
    try:
        stored, _, log_file = store.open(S)
        count = sum(1 for _ in stored.records)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    log_file.close()
    assert count == 2_001
    assert peak_bytes < log_of(tmp_path).stat().st_size / 4


# -- making and finding -------------------------------------------------------------------------------


def test_a_new_session_is_its_baseline_and_one_record(store: SessionStore, tmp_path: Path) -> None:
    made(store)
    (first,) = store.read(S)
    assert isinstance(first, SessionStart)
    content = (log_of(tmp_path).parent / "0.baseline.json").read_bytes()
    assert first.baseline == hashlib.sha256(content).hexdigest()
    assert (first.session, first.epoch, first.slot, first.format) == ("s", 0, 0, 1)


def test_its_files_are_the_owners_alone(store: SessionStore, tmp_path: Path) -> None:
    os.umask(0)
    made(store)
    folder = log_of(tmp_path).parent
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, *sorted(folder.iterdir()))] == [
        "0o700",
        "0o600",
        "0o600",
    ]


def test_a_session_exists_from_its_first_whole_record_on(store: SessionStore) -> None:
    assert not store.exists(S)
    made(store)
    assert store.exists(S)


def test_the_list_holds_sessions_and_nothing_else(store: SessionStore, tmp_path: Path) -> None:
    assert store.ids() == []
    made(store)
    made(store, session=SessionId("other-1"))
    top = tmp_path / "sessions"
    (top / "Upper").mkdir()
    (top / "empty").mkdir()
    (top / ".hidden").mkdir()
    (top / "notes.txt").write_text("x")
    assert sorted(store.ids()) == ["other-1", "s"]


def test_the_newest_come_first(store: SessionStore, tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c")):
        made(store, session=SessionId(name))
        os.utime(log_of(tmp_path, name), ns=(number, {"a": 2, "b": 3, "c": 1}[name] * 10**9))
    assert store.newest(2) == ["b", "a"]
    assert store.newest(9) == ["b", "a", "c"]


# -- going on -----------------------------------------------------------------------------------------


def test_what_was_appended_is_read_back(store: SessionStore) -> None:
    records: list[Record] = [user("k", 'Ünï "x"\n\u2028'), start(1, "k"), said(None, reasoning="hm"), end()]
    made(store, *records)
    assert opened(store)[1:] == records
    assert opened(store)[1:] == records


def test_appending_goes_on_where_it_stopped(store: SessionStore) -> None:
    made(store, user("k"))
    _, _, log_file = store.open(S)
    log_file.append(start(1, "k"))
    log_file.close()
    assert [type(record).__name__ for record in opened(store)] == ["SessionStart", "User", "TurnStart"]


def test_s36_a_torn_last_line_is_kept_described_and_skipped(store: SessionStore, tmp_path: Path) -> None:
    """Statement 36: a torn line must not blank the conversation."""
    made(store, user("k1", "one"), start(1, "k1"), said("answer"), end())
    torn = b'{"type":"user","time":"2026-01-01T00:00:00.000Z","key":"k2","con'
    before = log_of(tmp_path).read_bytes()
    log_of(tmp_path).write_bytes(before + torn)
    _, _, log_file = store.open(S)
    log_file.append(user("k3", "three"))
    log_file.close()
    records = opened(store)
    assert [type(record).__name__ for record in records[1:]] == [
        "User",
        "TurnStart",
        "Assistant",
        "TurnEnd",
        "Recovery",
        "User",
    ]
    (recovery,) = [record for record in records if isinstance(record, Recovery)]
    assert recovery.sha256 == hashlib.sha256(torn).hexdigest()
    assert log_of(tmp_path).read_bytes().startswith(before + torn + b"\n")


def test_a_session_whose_first_record_was_cut_off_at_any_byte_can_be_made_again(tmp_path: Path) -> None:
    for place in range(1, 300):
        store = SessionStore(tmp_path / str(place) / "sessions", files=FaultyFiles(None), clock=HandClock())
        (tmp_path / str(place)).mkdir()
        made(store)
        log = log_of(tmp_path / str(place))
        whole = log.read_bytes()
        cut = whole[: min(place, len(whole) - 1)]
        log.write_bytes(cut)
        assert not store.exists(S)
        assert store.ids() == []
        made(store, user("k", "Hello"))
        assert store.ids() == [S]
        assert [record.content for record in opened(store) if isinstance(record, User)] == ["Hello"]
        assert log.read_bytes().startswith(cut + b"\n")


@pytest.mark.parametrize("left", [b"\0" * 300, b"\n\xff{\n", b"\0" * 20 + b"\n", b"null\n"], ids=repr)
def test_a_session_of_which_a_power_cut_left_no_record_can_be_made_again(
    store: SessionStore, tmp_path: Path, left: bytes
) -> None:
    made(store)
    log_of(tmp_path).write_bytes(left)
    assert not store.exists(S)
    made(store, user("k", "Hello"))
    assert [record.content for record in opened(store) if isinstance(record, User)] == ["Hello"]
    assert log_of(tmp_path).read_bytes().startswith(left)


def test_a_session_that_was_cut_off_twice_at_its_beginning_can_be_made_again(
    store: SessionStore, tmp_path: Path
) -> None:
    """The second crash comes between the recovery record and the new session_start."""
    made(store)
    whole = log_of(tmp_path).read_bytes()
    log_of(tmp_path).write_bytes(whole[:40])
    failing = SessionStore(
        tmp_path / "sessions", files=FaultyFiles(Fault(call="write", at=2, lasting=True)), clock=HandClock()
    )
    with pytest.raises(StateError):
        failing.create(S, FRONT, slot=0)
    assert log_of(tmp_path).read_bytes().count(b"\n") == 2
    assert not store.exists(S)
    made(store, user("k", "Hello"))
    assert [record.content for record in opened(store) if isinstance(record, User)] == ["Hello"]


# -- refusals -----------------------------------------------------------------------------------------

NEW_FORMAT = b'"format":2,'


def damaged_by(tmp_path: Path, old: bytes, new: bytes) -> bytes:
    content = log_of(tmp_path).read_bytes().replace(old, new, 1)
    log_of(tmp_path).write_bytes(content)
    return content


DAMAGE = {
    "a line that is no JSON": (b'{"type":"turn_start"', b'x"type":"turn_start"', "0.jsonl:3:"),
    "a field that is gone": (b'"key":"k",', b"", "0.jsonl:2:"),
    "a type that does not exist": (b'"turn_end"', b'"turn_and"', "0.jsonl:5:"),
    "a line of zeros": (b'{"type":"user"', b"\0" * 14, "0.jsonl:2:"),
    "a later format": (b'"format":1,', NEW_FORMAT, "newer version"),
    "another beginning": (b'{"type":"session_start"', b'{"type":"session_staat"', "0.jsonl:1:"),
    "another baseline": (b'"baseline":"', b'"baseline":"0', "0.jsonl:1:"),
}


@pytest.mark.parametrize(("old", "new", "named"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_refused_with_its_place_and_nothing_is_written(
    store: SessionStore, tmp_path: Path, old: bytes, new: bytes, named: str
) -> None:
    made(store, user("k"), start(1, "k"), said("a"), end())
    content = damaged_by(tmp_path, old, new)
    with pytest.raises(SessionDamaged, match=named):
        opened(store)
    assert log_of(tmp_path).read_bytes() == content


def test_a_baseline_that_is_gone_is_named(store: SessionStore, tmp_path: Path) -> None:
    made(store)
    (log_of(tmp_path).parent / "0.baseline.json").unlink()
    with pytest.raises(SessionDamaged, match=r"0\.baseline\.json: not there"):
        opened(store)


def test_a_baseline_that_was_edited_is_refused(store: SessionStore, tmp_path: Path) -> None:
    made(store)
    path = log_of(tmp_path).parent / "0.baseline.json"
    path.write_bytes(path.read_bytes().replace(b"Boxmaker", b"Boxmakes", 1))
    with pytest.raises(SessionDamaged.__mro__[1], match="differs"):
        opened(store)


def test_s39_a_log_that_another_process_has_open_is_refused_and_left_alone(store: SessionStore, tmp_path: Path) -> None:
    """The lock is on the file itself and goes with its process, whatever became of a pid file."""
    made(store)
    _, _, mine = store.open(S)
    other = SessionStore(tmp_path / "sessions", files=DiskFiles(), clock=HandClock())
    with pytest.raises(StateInUse):
        other.open(S)
    mine.append(user("k"))
    mine.close()
    _, _, theirs = other.open(S)
    theirs.close()


def test_a_session_that_another_process_has_begun_meanwhile_keeps_its_baseline(
    store: SessionStore, tmp_path: Path
) -> None:
    """Two loopds that both found no session of the name: neither touches what the other has written."""
    other = SessionStore(tmp_path / "sessions", files=DiskFiles(), clock=HandClock())
    _, _, mine = store.create(S, FRONT, slot=0)
    before = (log_of(tmp_path).parent / "0.baseline.json").read_bytes()
    with pytest.raises(StateInUse):
        other.create(S, OTHER_FRONT, slot=0)
    mine.append(user("k", "Hello"))
    mine.close()
    for _ in range(2):  # the second shows that the first gave the lock back
        with pytest.raises(SessionExists):
            other.create(S, OTHER_FRONT, slot=0)
    assert (log_of(tmp_path).parent / "0.baseline.json").read_bytes() == before
    assert [record.content for record in opened(store) if isinstance(record, User)] == ["Hello"]


def test_a_session_directory_that_is_a_symbolic_link_is_refused_and_nothing_is_written_behind_it(
    store: SessionStore, tmp_path: Path
) -> None:
    made(store, user("k"))
    outside = tmp_path / "outside"
    log_of(tmp_path).parent.rename(outside)
    log_of(tmp_path).parent.symlink_to(outside)
    content = (outside / "0.jsonl").read_bytes()
    assert store.newest(9) == [S]  # shown, as damaged: its owner should know
    for attempt in (
        lambda: opened(store),
        lambda: list(store.read(S)),
        lambda: list(store.raw_lines(S)),
        lambda: made(store),
    ):
        with pytest.raises(StateError):
            attempt()
    with pytest.raises(SessionDamaged, match="s: a symbolic link"):
        opened(store)
    assert sorted(path.name for path in outside.iterdir()) == ["0.baseline.json", "0.jsonl"]
    assert (outside / "0.jsonl").read_bytes() == content


def test_a_copy_of_a_session_under_another_name_is_refused(store: SessionStore, tmp_path: Path) -> None:
    made(store, user("k"))
    shutil.copytree(log_of(tmp_path).parent, log_of(tmp_path, "copy").parent)
    with pytest.raises(SessionDamaged, match=r"copy/0\.jsonl: is the log of another session"):
        store.open(SessionId("copy"))


@pytest.mark.parametrize("name", ["0.jsonl", "0.baseline.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_what_is_no_file_is_refused_at_once_and_leaks_nothing(
    store: SessionStore, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    made(store, user("k"))
    path = log_of(tmp_path).with_name(name)
    path.unlink()
    make(path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        assert store.newest(9) == [S]
        with pytest.raises(StateUnreadable, match=f"{name}: not a regular file"):
            opened(store)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_log_that_is_a_symbolic_link_to_one_elsewhere_is_refused(store: SessionStore, tmp_path: Path) -> None:
    made(store)
    target = tmp_path / "elsewhere.jsonl"
    log_of(tmp_path).rename(target)
    log_of(tmp_path).symlink_to(target)
    with pytest.raises(StateError):
        opened(store)


def test_a_directory_that_cannot_be_read_is_a_fault_and_no_empty_list(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("not a directory")
    with pytest.raises(StateUnreadable):
        SessionStore(tmp_path / "sessions", files=DiskFiles(), clock=HandClock()).ids()


# -- results ------------------------------------------------------------------------------------------


def test_a_whole_result_lies_beside_the_log(store: SessionStore, tmp_path: Path) -> None:
    _, _, log_file = store.create(S, FRONT, slot=0)
    log_file.keep_result(CallId(7), "Ünï\x00\n" * 3)
    log_file.keep_result(CallId(8), "x")
    log_file.close()
    folder = log_of(tmp_path).parent / "results"
    assert (folder / "7.txt").read_bytes() == ("Ünï\x00\n" * 3).encode()
    assert sorted(path.name for path in folder.iterdir()) == ["7.txt", "8.txt"]


def test_a_log_that_was_closed_takes_nothing_more(store: SessionStore) -> None:
    _, _, log_file = store.create(S, FRONT, slot=0)
    log_file.close()
    log_file.close()
    with pytest.raises(StateError):
        log_file.append(user("k"))
    assert isinstance(log_file, OpenLog)


def test_raw_lines_are_the_bytes_on_disk(store: SessionStore, tmp_path: Path) -> None:
    made(store, user("k"))
    log_of(tmp_path).write_bytes(log_of(tmp_path).read_bytes() + b"not a record\n\xff torn")
    lines = [line.raw for _, line in store.raw_lines(S)]
    assert json.loads(lines[0])["type"] == "session_start"
    assert lines[2:] == [b"not a record", b"\xff torn"]
