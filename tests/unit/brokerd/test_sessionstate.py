"""A session's labels only rise: under threads, failing disks, restarts, and when they are computed again."""

import itertools
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd import labels, sessionstate
from brokerd.call import FRESH, UNREADABLE, Labels
from brokerd.sessionstate import SessionStates
from bxcore.auditlog import Ended, Record, Recovered, RunEnding
from bxcore.errors import StateError
from bxcore.files import DiskFiles, Files, StateUnreadable
from bxcore.ids import Hash32, SessionId
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass
from tests.fakes.faulty_files import Fault, FaultyFiles
from tests.fakes.power_loss import Choose, PowerCut, PowerLossSystem

S, T = SessionId("s"), SessionId("t")
SECRET = Labels(data_class=DataClass.SECRET, untrusted=False)
WARNED = Labels(data_class=DataClass.PUBLIC, untrusted=True)
STEERED = Labels(data_class=DataClass.PRIVATE, untrusted=True)
ROUNDS = 1_000


def states(directory: Path, files: Files | None = None) -> SessionStates:
    return SessionStates(directory / "sessions", files or DiskFiles())


def stricter(first: Labels, second: Labels) -> bool:
    return labels.joined(first, second) == first


def test_a_session_starts_private_and_trusted_and_without_a_file(tmp_path: Path) -> None:
    assert states(tmp_path).labels(S) == FRESH
    assert states(tmp_path).raise_to(S, Labels(data_class=DataClass.PUBLIC, untrusted=False)) == FRESH
    assert list((tmp_path / "sessions").iterdir()) == []


def test_what_a_session_was_shown_stays_with_it_and_touches_no_other(tmp_path: Path) -> None:
    here = states(tmp_path)
    assert here.raise_to(S, SECRET) == SECRET
    assert here.raise_to(S, WARNED) == UNREADABLE
    assert (here.labels(S), here.labels(T)) == (UNREADABLE, FRESH)


def test_g17_a_restart_lowers_nothing(tmp_path: Path) -> None:
    for result, after in ((WARNED, STEERED), (FRESH, None), (SECRET, UNREADABLE)):
        states(tmp_path).raise_to(S, result)
        assert after is None or states(tmp_path).labels(S) == after
    assert states(tmp_path).raise_to(S, FRESH) == UNREADABLE


def test_the_file_is_one_line_that_the_owner_can_read(tmp_path: Path) -> None:
    states(tmp_path).raise_to(S, SECRET)
    file = tmp_path / "sessions" / "s.json"
    assert file.read_bytes() == b'{"v":1,"session":"s","taint":"secret","untrusted":false}\n'
    assert file.stat().st_mode & 0o777 == 0o600


def test_it_is_written_when_it_changes_and_once_by_each_process(tmp_path: Path) -> None:
    """Once by each: a file that is there may be one that never reached the disk."""
    for _ in range(2):
        files = FaultyFiles(None)
        here = states(tmp_path, files)
        for _ in range(5):
            here.raise_to(S, SECRET)
            here.raise_to(T, FRESH)
        assert files.calls["rename"] == 1


def test_of_many_that_raise_at_once_none_is_lost(tmp_path: Path) -> None:
    here = states(tmp_path, FaultyFiles(None))
    results = (SECRET, WARNED, FRESH)
    seen: dict[SessionId, list[Labels]] = {SessionId(f"s{number}"): [] for number in range(ROUNDS)}
    together = threading.Barrier(len(results), timeout=60)  # one that failed must not hang the rest

    def run(result: Labels) -> None:
        for session, said in seen.items():
            together.wait()
            after = here.raise_to(session, result)
            assert stricter(after, result)
            said.append(after)

    threads = [threading.Thread(target=run, args=(result,)) for result in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session, said in seen.items():
        assert len(said) == len(results)
        assert here.labels(session) == UNREADABLE
        assert states(tmp_path).labels(session) == UNREADABLE


# -- a disk that fails ----------------------------------------------------------------------------

# What one replacement does: opens the new file and the directory, writes, syncs both, renames.
PLACES = [("open", 0), ("open", 1), ("write", 0), ("fsync", 0), ("fsync", 1), ("rename", 0)]


@pytest.mark.parametrize(("call", "at"), PLACES)
@pytest.mark.parametrize("after_bytes", [0, 7])
def test_a_raise_that_could_not_be_made_durable_is_no_raise(
    tmp_path: Path, call: str, at: int, after_bytes: int
) -> None:
    """S2, R37: the result is not released then, and the next raise is written whatever the file says already."""
    states(tmp_path).raise_to(S, WARNED)
    before = states(tmp_path).labels(S)
    disk = FaultyFiles(None)
    here = states(tmp_path, disk)
    disk.system.fault = Fault(call=call, at=disk.calls.get(call, 0) + at, after_bytes=after_bytes)
    with pytest.raises(StateError):
        here.raise_to(S, SECRET)
    for now in (here, states(tmp_path)):
        assert stricter(now.labels(S), before)
    renamed = disk.calls.get("rename", 0)
    assert here.raise_to(S, SECRET) == UNREADABLE
    assert disk.calls["rename"] == renamed + 1
    assert states(tmp_path).labels(S) == UNREADABLE


def test_a_full_disk_lets_no_result_out_for_as_long_as_it_is_full(tmp_path: Path) -> None:
    disk = FaultyFiles(Fault(call="write", lasting=True))
    here = states(tmp_path, disk)
    for _ in range(3):
        with pytest.raises(StateError):
            here.raise_to(S, SECRET)
    assert here.labels(S) == FRESH
    assert here.raise_to(S, FRESH) == FRESH  # nothing to write: nothing to fail


@given(st.integers(0, 14), st.booleans(), st.data())
def test_s2_what_was_acknowledged_survives_a_power_cut(
    tmp_path_factory: pytest.TempPathFactory, cut_at: int, effect_first: bool, data: st.DataObject
) -> None:
    top = tmp_path_factory.mktemp("power")
    (top / "live").mkdir()
    system = PowerLossSystem(top / "live", cut_at=cut_at, effect_first=effect_first)
    acknowledged = FRESH
    try:
        here = states(top / "live", DiskFiles(system))
        for result in (WARNED, SECRET):
            acknowledged = here.raise_to(S, result)
    except PowerCut:
        pass  # what was acknowledged before it is what counts
    system.after(top / "next", Choose(lambda: data.draw(st.booleans()), lambda it: data.draw(torn(it))))
    assert stricter(states(top / "next").labels(S), acknowledged)
    shutil.rmtree(top)


def torn(written: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from([b"", written[: len(written) // 2], b"\0" * len(written), written])


# -- a state that is no state ---------------------------------------------------------------------

GOOD = b'{"v":1,"session":"s","taint":"secret","untrusted":true}\n'

BAD: dict[str, bytes] = {
    "empty": b"",
    "cut short": GOOD[:-5],
    "zeros": b"\0" * len(GOOD),
    "two lines": GOOD + GOOD,
    "another session's": GOOD.replace(b'"s"', b'"t"'),
    "no session": GOOD.replace(b'"s"', b'"../x"'),
    "an older version": GOOD.replace(b'"v":1', b'"v":0'),
    "a version that is no number": GOOD.replace(b'"v":1', b'"v":true'),
    "S11 a newer version": GOOD.replace(b'"v":1', b'"v":2'),
    "S11 a newer version with more in it": GOOD.replace(b'"v":1', b'"v":2,"more":[]'),
    "an unknown key": GOOD.replace(b'"v":1', b'"v":1,"w":1'),
    "a key twice": GOOD.replace(b'"untrusted":true', b'"untrusted":true,"untrusted":false'),
    "no taint": GOOD.replace(b'"taint":"secret",', b""),
    "an unknown taint": GOOD.replace(b"secret", b"none"),
    "a taint that no session has": GOOD.replace(b"secret", b"public"),
    "untrusted as a number": GOOD.replace(b"true", b"1"),
    "a list": b"[]",
    "longer than a state can be": GOOD + b" " * 5000,
}


def content_of(file: Path) -> object:
    if file.is_symlink():
        return file.readlink()
    return file.read_bytes() if file.is_file() else None


def attempts(here: SessionStates) -> list[Callable[[], Labels]]:
    return [lambda: here.labels(S), lambda: here.raise_to(S, FRESH), lambda: here.raise_to(S, UNREADABLE)]


@pytest.mark.parametrize("content", BAD.values(), ids=BAD.keys())
def test_a_state_that_is_none_is_no_guess(tmp_path: Path, content: bytes) -> None:
    here, file = states(tmp_path), tmp_path / "sessions" / "s.json"
    file.write_bytes(content)
    file.chmod(0o600)
    for attempt in attempts(here):
        with pytest.raises(StateUnreadable, match=r"sessions/s\.json: "):
            attempt()
    assert content_of(file) == content
    assert here.labels(T) == FRESH


def test_every_cut_of_a_state_is_refused_or_whole(tmp_path: Path) -> None:
    here, file = states(tmp_path), tmp_path / "sessions" / "s.json"
    for size in range(len(GOOD) - 1):
        file.write_bytes(GOOD[:size])
        file.chmod(0o600)
        with pytest.raises(StateUnreadable):
            here.labels(S)


def a_link(file: Path) -> None:
    target = file.with_name("t.json")
    target.write_bytes(GOOD)
    file.symlink_to(target)


def open_to_others(file: Path) -> None:
    file.write_bytes(GOOD)
    file.chmod(0o666)


STRANGERS: dict[str, Callable[[Path], None]] = {
    "a link": a_link,
    "a link to nothing": lambda file: file.symlink_to(file.with_name("nothing")),
    "a pipe": os.mkfifo,
    "a directory": lambda file: file.mkdir(),
    "a file that others may write": open_to_others,
}


@pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS.keys())
def test_what_another_may_have_put_there_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    here, file = states(tmp_path), tmp_path / "sessions" / "s.json"
    make(file)
    before = content_of(file)
    for attempt in attempts(here):
        with pytest.raises(StateUnreadable):
            attempt()
    assert content_of(file) == before


def test_a_state_that_vanishes_is_not_a_fresh_session(tmp_path: Path) -> None:
    here = states(tmp_path)
    here.raise_to(S, SECRET)
    (tmp_path / "sessions" / "s.json").unlink()
    with pytest.raises(StateUnreadable, match="gone since it was written"):
        here.labels(S)
    shutil.rmtree(tmp_path / "sessions")
    with pytest.raises(StateUnreadable):
        here.labels(T)


def test_a_state_that_is_put_back_from_a_copy_is_not_lower(tmp_path: Path) -> None:
    here, file = states(tmp_path), tmp_path / "sessions" / "s.json"
    here.raise_to(S, WARNED)
    copy = file.read_bytes()
    here.raise_to(S, SECRET)
    file.write_bytes(copy)
    assert here.labels(S) == UNREADABLE
    assert here.raise_to(S, FRESH) == UNREADABLE
    assert states(tmp_path).labels(S) == UNREADABLE


def test_a_directory_where_others_may_write_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions").chmod(0o777)
    with pytest.raises(StateUnreadable):
        states(tmp_path)


# -- computed again -------------------------------------------------------------------------------


def ended(result: Labels, after: Labels, *, session: SessionId = S, ending: RunEnding = RunEnding.DONE) -> Ended:
    return Ended(
        seq=1,
        time=Timestamp(1),
        prev=Hash32("0" * 64),
        decision=1,
        session=session,
        ending=ending,
        exit=0,
        size=0,
        sha256=Hash32("0" * 64),
        truncated=False,
        data_class=result.data_class,
        untrusted=result.untrusted,
        taint_after=after.data_class,
        untrusted_after=after.untrusted,
    )


NOISE = Recovered(seq=1, time=Timestamp(1), prev=Hash32("0" * 64), file="x", line=1, bytes=1, sha256=Hash32("0" * 64))

RECORDED: dict[str, tuple[list[Record], Labels]] = {
    "nothing": ([], FRESH),
    "other records": ([NOISE], FRESH),
    "another session": ([ended(UNREADABLE, UNREADABLE, session=T)], FRESH),
    "a secret": ([ended(SECRET, SECRET)], SECRET),
    "two that join": ([ended(WARNED, FRESH), NOISE, ended(SECRET, SECRET)], UNREADABLE),
    "a tool's own error, which was shown": (
        [ended(WARNED, FRESH, ending=RunEnding.TOOL_ERROR)],
        STEERED,
    ),
    "a failure, which shows fixed text": ([ended(UNREADABLE, FRESH, ending=RunEnding.FAILED)], FRESH),
    "a call that nobody knows the end of": ([ended(UNREADABLE, FRESH, ending=RunEnding.UNKNOWN)], FRESH),
    "what the session was called after a failure": (
        [ended(FRESH, STEERED, ending=RunEnding.FAILED)],
        STEERED,
    ),
}


@pytest.mark.parametrize(("records", "expected"), RECORDED.values(), ids=RECORDED.keys())
def test_labels_are_computed_from_what_was_returned(tmp_path: Path, records: list[Record], expected: Labels) -> None:
    assert sessionstate.of_records(S, records) == expected
    assert states(tmp_path).rebuild(S, iter(records)) == expected
    assert states(tmp_path).labels(S) == expected


def holding(content: bytes) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        file.write_bytes(content)
        file.chmod(0o600)

    return make


DAMAGED = {
    **{name: holding(content) for name, content in BAD.items() if not name.startswith("S11")},
    **{name: make for name, make in STRANGERS.items() if name != "a directory"},
}


@pytest.mark.parametrize("make", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_state_is_computed_again_on_demand(tmp_path: Path, make: Callable[[Path], None]) -> None:
    here, file = states(tmp_path), tmp_path / "sessions" / "s.json"
    make(file)
    assert here.rebuild(S, [ended(SECRET, SECRET)]) == SECRET
    assert file.is_file()
    assert not file.is_symlink()
    assert states(tmp_path).labels(S) == SECRET


@pytest.mark.parametrize("content", [text for name, text in BAD.items() if name.startswith("S11")])
def test_s11_a_state_of_a_newer_version_is_never_rewritten(tmp_path: Path, content: bytes) -> None:
    here, file = states(tmp_path), tmp_path / "sessions" / "s.json"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(StateUnreadable, match="newer Boxmaker"):
        here.rebuild(S, [ended(SECRET, SECRET)])
    assert file.read_bytes() == content


def test_computing_again_lowers_nothing_that_can_be_read(tmp_path: Path) -> None:
    states(tmp_path).raise_to(S, SECRET)
    assert states(tmp_path).rebuild(S, []) == SECRET
    assert states(tmp_path).rebuild(S, [ended(WARNED, FRESH)]) == UNREADABLE


def test_computing_again_lowers_nothing_that_this_process_knows(tmp_path: Path) -> None:
    here = states(tmp_path)
    here.raise_to(S, SECRET)
    (tmp_path / "sessions" / "s.json").write_bytes(b"")
    assert here.rebuild(S, []) == SECRET
    (tmp_path / "sessions" / "s.json").unlink()
    assert here.rebuild(S, []) == SECRET


@given(st.lists(st.sampled_from([SECRET, WARNED, FRESH]), max_size=6))
def test_what_is_computed_again_is_what_was_kept(
    tmp_path_factory: pytest.TempPathFactory, results: list[Labels]
) -> None:
    top = tmp_path_factory.mktemp("again")
    here = states(top, FaultyFiles(None))
    records = [ended(result, here.raise_to(S, result)) for result in results]
    assert sessionstate.of_records(S, records) == here.labels(S)
    rising = [labels.joined(FRESH, first) for first in itertools.accumulate(results, labels.joined)]
    assert [attrs.evolve(FRESH, data_class=it.taint_after, untrusted=it.untrusted_after) for it in records] == rising
    shutil.rmtree(top)


# -- a directory that somebody deleted ------------------------------------------------------------------------


def test_a_new_directory_is_not_whole_until_the_log_was_asked(tmp_path: Path) -> None:
    here = states(tmp_path)
    assert not here.is_whole
    assert here.make_whole([]) == 0
    assert states(tmp_path).is_whole


def test_a_directory_that_was_deleted_comes_back_from_the_log_for_every_session(tmp_path: Path) -> None:
    records = [ended(SECRET, FRESH), ended(STEERED, FRESH, session=T), ended(FRESH, FRESH)]
    assert states(tmp_path).make_whole(records) == 2
    again = states(tmp_path)
    assert again.labels(S) == SECRET
    assert again.labels(T) == STEERED


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
@pytest.mark.parametrize("at", range(3))
def test_a_start_that_is_cut_short_asks_the_log_again(tmp_path: Path, call: str, at: int) -> None:
    records = [ended(SECRET, FRESH), ended(STEERED, FRESH, session=T)]
    with pytest.raises(StateError):
        states(tmp_path, FaultyFiles(Fault(call=call, at=at))).make_whole(records)
    assert not states(tmp_path).is_whole
    states(tmp_path).make_whole(records)
    assert (states(tmp_path).labels(S), states(tmp_path).labels(T)) == (SECRET, STEERED)
