"""The queue's file: whole after a kill, a full disk, a fault at any statement; refused where it is not ours."""

import fcntl
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bxcore.files import StateInUse, StateUnreadable, StateUnwritable
from bxcore.timestamp import Timestamp
from gatewayd import queuefile
from gatewayd.entries import Asking, Question, State, Taken, Thread, session_of
from gatewayd.store import Store
from tests.fakes.clocks import BEGIN, HandClock
from tests.fakes.queued import DIRECT, OTHER, OWNER, TOWN, an_id, incoming, keys, outgoing

ROOT = an_id("root")
SESSION = session_of(ROOT)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    opened = Store.open(tmp_path, clock)
    yield opened
    opened.close()


def contents(directory: Path) -> list[tuple[Any, ...]]:
    """Everything in the file but when it was written."""
    with sqlite3.connect(directory / queuefile.FILE) as database:
        rows = [
            row
            for statement in (
                "SELECT 'post', id, state, text, session, turn, attempts, edited, edit_told FROM posts ORDER BY id",
                "SELECT 'thread', root, channel, direct, user FROM threads ORDER BY root",
                "SELECT 'mark', channel, create_at FROM marks ORDER BY channel",
                "SELECT 'out', n, key, message, state, tried, attempts, post, why FROM outgoing ORDER BY n",
                "SELECT 'question', post, id FROM questions ORDER BY post",
                "SELECT 'asking', key, id FROM asking ORDER BY key",
            )
            for row in database.execute(statement)
        ]
    database.close()
    return rows


# -- the file --------------------------------------------------------------------------------------


def test_all_of_it_is_there_after_it_was_opened_again(tmp_path: Path, clock: HandClock) -> None:
    store = Store.open(tmp_path, clock)
    began = store.began()
    store.accept([incoming("one"), incoming("two")], {DIRECT: BEGIN})
    store.settle(an_id("one"), State.DONE, [outgoing("a")])
    store.close()
    store.close()
    clock.wind(1_000)
    again = Store.open(tmp_path, clock)
    assert (again.began(), again.marks(), keys(again)) == (began, {DIRECT: BEGIN}, ["a"])
    assert [post.id for post in again.waiting()] == [an_id("two")]
    again.close()


def test_a_second_process_is_refused_and_the_first_one_goes_on(store: Store, tmp_path: Path, clock: HandClock) -> None:
    with pytest.raises(StateInUse, match="another gatewayd"):
        Store.open(tmp_path, clock)
    assert store.accept([incoming("one")])
    store.close()
    Store.open(tmp_path, clock).close()


def test_nobody_else_can_read_it(store: Store, tmp_path: Path) -> None:
    store.accept([incoming("one")])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert queuefile.FILE in modes


def test_a_damaged_file_is_refused_at_the_start_and_left_as_it_is(tmp_path: Path, clock: HandClock) -> None:
    store = Store.open(tmp_path, clock)
    store.accept([incoming("one", number, text="x" * 500) for number in range(200)])
    store.close()
    path = tmp_path / queuefile.FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:8_192] + b"\xff" * 20_000 + whole[28_192:])
    damaged = path.read_bytes()
    with pytest.raises(StateUnreadable, match=r"queue\.sqlite"):
        Store.open(tmp_path, clock)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to look at" * 100, b"SQLite format 3\0"])
def test_a_file_that_is_no_queue_is_refused_and_an_empty_one_is_a_new_one(
    tmp_path: Path, clock: HandClock, content: bytes
) -> None:
    (tmp_path / queuefile.FILE).write_bytes(content)
    (tmp_path / queuefile.FILE).chmod(0o600)
    if content:
        with pytest.raises(StateUnreadable):
            Store.open(tmp_path, clock)
        assert (tmp_path / queuefile.FILE).read_bytes() == content
    else:
        Store.open(tmp_path, clock).close()


def test_another_versions_file_is_refused_and_left_as_it_is(tmp_path: Path, clock: HandClock) -> None:
    Store.open(tmp_path, clock).close()
    with sqlite3.connect(tmp_path / queuefile.FILE) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(StateUnreadable, match="another version"):
        Store.open(tmp_path, clock)
    with sqlite3.connect(tmp_path / queuefile.FILE) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (2,)
    database.close()


@pytest.mark.parametrize("place", [queuefile.FILE, queuefile.LOCK])
def test_a_directory_in_the_place_of_a_file_is_refused(tmp_path: Path, clock: HandClock, place: str) -> None:
    (tmp_path / place).mkdir()
    with pytest.raises((StateUnreadable, StateUnwritable)):
        Store.open(tmp_path, clock)


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


SPOILT: dict[str, Callable[[Path], None]] = {
    "a link": _linked,
    "a pipe": _piped,
    "open to others": lambda path: path.chmod(0o640),
    "emptied": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_queue_that_is_not_as_it_was_made_is_refused(tmp_path: Path, clock: HandClock, how: str) -> None:
    Store.open(tmp_path, clock).close()
    SPOILT[how](tmp_path / queuefile.FILE)
    with pytest.raises(StateUnreadable, match=queuefile.FILE):
        Store.open(tmp_path, clock)


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_nothing_but_files_is_opened_beside_it(tmp_path: Path, clock: HandClock, end: str) -> None:
    Store.open(tmp_path, clock).close()
    os.mkfifo(tmp_path / f"{queuefile.FILE}{end}", 0o600)
    with pytest.raises(StateUnreadable, match=end):
        Store.open(tmp_path, clock)


def test_a_queue_of_somebody_else_is_refused(tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tmp_path, clock).close()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StateUnreadable, match="owner"):
        Store.open(tmp_path, clock)


def test_a_queue_that_was_moved_away_begins_anew(tmp_path: Path, clock: HandClock) -> None:
    """Also where the start before this one was killed as soon as the file was there."""
    (tmp_path / queuefile.FILE).touch(0o600)
    Store.open(tmp_path, clock).close()
    (tmp_path / queuefile.FILE).unlink()
    Store.open(tmp_path, clock).close()


def test_the_lock_is_not_taken_through_a_link(tmp_path: Path, clock: HandClock) -> None:
    (tmp_path / queuefile.LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateUnwritable):
        Store.open(tmp_path, clock)
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_is_no_lock(tmp_path: Path, clock: HandClock) -> None:
    os.mkfifo(tmp_path / queuefile.LOCK, 0o600)
    with pytest.raises(StateUnwritable, match="must be a file"):
        Store.open(tmp_path, clock)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path, clock: HandClock) -> None:
    with pytest.raises(StateUnwritable):
        Store.open(tmp_path / "nothing", clock)


def test_a_start_that_fails_gives_the_lock_back(tmp_path: Path, clock: HandClock) -> None:
    def refuses(*_: Any, **__: Any) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    with pytest.raises(StateUnreadable):
        Store.open(tmp_path, clock, connect=refuses)
    Store.open(tmp_path, clock).close()


def test_a_first_step_that_fails_gives_the_file_and_the_lock_back(tmp_path: Path, clock: HandClock) -> None:
    with pytest.raises(StateUnwritable):
        Store.open(
            tmp_path, clock, connect=failing(lambda statement: statement.startswith("INSERT OR IGNORE INTO kept"))
        )
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count
    Store.open(tmp_path, clock).close()
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208


def test_a_closed_queue_says_so(tmp_path: Path, clock: HandClock) -> None:
    store = Store.open(tmp_path, clock)
    store.close()
    with pytest.raises(StateUnwritable):
        store.accept([incoming("one")])
    with pytest.raises(StateUnreadable):
        store.waiting()


def test_a_stop_does_not_wait_for_another_program_that_has_the_file(tmp_path: Path, clock: HandClock) -> None:
    """Not one try after it; in the middle of one, no further."""
    tries: list[str] = []
    hurry_at: dict[int, Callable[[], None]] = {}

    class Counting(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            if statement == "BEGIN IMMEDIATE":
                tries.append(statement)
                hurry_at.get(len(tries), lambda: None)()
            return super().execute(statement, *values)

    store = Store.open(
        tmp_path, clock, connect=lambda *args, **named: sqlite3.connect(*args, factory=Counting, **named)
    )
    other = sqlite3.connect(tmp_path / queuefile.FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for hurry, count in (({}, queuefile.TRIES), ({2: store.hurry}, 2), ({}, 1)):
        tries.clear()
        hurry_at.clear()
        hurry_at.update(hurry)
        with pytest.raises(StateUnwritable, match="locked"):
            store.add([outgoing("a")])
        assert len(tries) == count
    other.execute("ROLLBACK")
    store.add([outgoing("a")])
    assert keys(store) == ["a"]
    other.close()
    store.close()


def test_threads_write_at_once_and_nothing_is_lost(store: Store) -> None:
    def work(name: str) -> None:
        for number in range(40):
            store.accept([incoming(name, number)], {DIRECT: Timestamp(number)})
            store.settle(an_id(name, number), State.DONE, [outgoing(f"{name}{number}")])

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.unsent(1_000)) == 120
    assert store.marks() == {DIRECT: 39}


# -- each effect broken once -----------------------------------------------------------------------

Step = Callable[[Store], object]

STEPS: dict[str, Step] = {
    "accept": lambda store: store.accept([incoming("new"), incoming("next", thread=ROOT)], {TOWN: Timestamp(5)}),
    "take": lambda store: store.take(
        [Taken(post=incoming("new"), state=State.DONE, outgoing=(outgoing("n"),))], {TOWN: Timestamp(5)}
    ),
    "list_old": lambda store: store.list_old(OTHER, [outgoing("list")]),
    "text_told": lambda store: store.text_told(an_id("waits"), "another", [outgoing("note")]),
    "take_back": lambda store: store.take_back(ROOT),
    "asked": lambda store: store.asked(an_id("waits"), SESSION, 2),
    "answered": lambda store: store.answered(SESSION, 1, [outgoing("k:1"), outgoing("k:2")]),
    "settle": lambda store: store.settle(an_id("waits"), State.DONE, [outgoing("s")]),
    "attempted": lambda store: store.attempted(an_id("waits")),
    "own_thread": lambda store: store.own_thread(Thread(root=an_id("own"), channel=TOWN, direct=False, user=OWNER)),
    "add": lambda store: store.add([outgoing("one"), outgoing("two")]),
    "trying": lambda store: store.trying(1),
    "sent": lambda store: store.sent(1, an_id("made")),
    "park": lambda store: store.park([1], "mattermost_denied", [outgoing("sorry")]),
    "replace": lambda store: store.replace([1], [outgoing("instead")]),
    "question_asking": lambda store: store.question_asking(
        Asking(key="k", id=2, channel=DIRECT, root=None, message="May it?", made=BEGIN)
    ),
    "question_never": lambda store: store.question_never("asking"),
    "question_posted": lambda store: store.question_posted(
        Question(post=an_id("asked"), id=7, channel=DIRECT, root=None, message="May it?"), "asking"
    ),
    "question_closed": lambda store: store.question_closed(an_id("question")),
}


def prepare(store: Store) -> None:
    """Something in every state, so that each step has something to do."""
    store.accept([incoming("root"), incoming("waits", thread=ROOT, after_ms=1)], {DIRECT: BEGIN})
    store.asked(ROOT, SESSION, 1)
    store.take([Taken(post=incoming("old", user=OTHER), state=State.OLD)])
    store.add([outgoing("first")])
    store.question_asking(Asking(key="asking", id=1, channel=DIRECT, root=None, message="May it?", made=BEGIN))
    store.question_posted(Question(post=an_id("question"), id=1, channel=DIRECT, root=None, message="May it?"))


def failing(fails: Callable[[str], bool]) -> Callable[..., sqlite3.Connection]:
    """Return what opens a database whose statements fail where `fails` says so, before they have an effect."""

    class Failing(sqlite3.Connection):
        def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
            if fails(statement):
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(statement, values)

        def executemany(self, statement: str, values: Any, /) -> sqlite3.Cursor:
            if fails(statement):
                raise sqlite3.OperationalError("disk I/O error")
            return super().executemany(statement, values)

    def connect(*args: Any, **named: Any) -> sqlite3.Connection:
        return sqlite3.connect(*args, factory=Failing, **named)

    return connect


class Countdown:
    """Fails at the k-th statement after it was armed, and at every later one while it is `lasting`."""

    def __init__(self, *, lasting: bool) -> None:
        self.left: int | None = None
        self.lasting = lasting

    def __call__(self, statement: str) -> bool:
        if self.left is None or statement.startswith("PRAGMA"):
            return False
        self.left -= 1
        return self.left < 0 if self.lasting else self.left == -1


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_a_step_that_fails_anywhere_has_changed_nothing_and_can_be_repeated(
    tmp_path: Path, clock: HandClock, step: Step, lasting: bool
) -> None:
    countdown = Countdown(lasting=lasting)
    store = Store.open(tmp_path, clock, connect=failing(countdown))
    prepare(store)
    before = contents(tmp_path)
    statements = 0
    while True:
        countdown.left = statements
        try:
            step(store)
        except StateUnwritable:
            pass
        else:
            break
        countdown.left = None
        assert contents(tmp_path) == before, f"half of it, cut at statement {statements}"
        statements += 1
    assert statements >= 3  # BEGIN, something, COMMIT
    assert contents(tmp_path) != before
    store.close()


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_what_a_step_wrote_is_there_after_a_kill_right_behind_it(tmp_path: Path, clock: HandClock, step: Step) -> None:
    """The files are copied while the process lives, as a kill would leave them: nothing was closed in order."""
    live, killed = tmp_path / "live", tmp_path / "killed"
    live.mkdir()
    store = Store.open(live, clock)
    prepare(store)
    step(store)
    shutil.copytree(live, killed)
    expected = contents(live)
    store.close()
    again = Store.open(killed, clock)
    again.close()
    assert contents(killed) == expected


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_a_commit_that_is_torn_is_whole_or_not_there(tmp_path: Path, clock: HandClock, step: Step) -> None:
    """The log of the last transaction cut at every page and within one: what a power cut may leave."""
    live = tmp_path / "live"
    live.mkdir()
    store = Store.open(live, clock)
    prepare(store)
    before, wal = contents(live), live / f"{queuefile.FILE}-wal"
    size = wal.stat().st_size
    step(store)
    after = contents(live)
    written = wal.read_bytes()
    assert len(written) > size
    for number, cut in enumerate([*range(size, len(written), 1_024), len(written)]):
        torn = tmp_path / str(number)
        shutil.copytree(live, torn)
        (torn / wal.name).write_bytes(written[:cut])
        (torn / f"{queuefile.FILE}-shm").unlink(missing_ok=True)
        Store.open(torn, clock).close()
        assert contents(torn) == (after if cut == len(written) else before)
    store.close()


def test_a_full_disk_refuses_a_step_and_keeps_what_was_there(tmp_path: Path, clock: HandClock) -> None:
    opened: list[sqlite3.Connection] = []

    def connect(*args: Any, **named: Any) -> sqlite3.Connection:
        opened.append(sqlite3.connect(*args, **named))
        return opened[0]

    store = Store.open(tmp_path, clock, connect=connect)
    prepare(store)
    [pages] = opened[0].execute("PRAGMA page_count").fetchone()
    opened[0].execute(f"PRAGMA max_page_count = {pages}")
    before = contents(tmp_path)
    with pytest.raises(StateUnwritable, match="full"):
        store.accept([incoming("big", number, text="x" * 1_000) for number in range(100)], {TOWN: Timestamp(5)})
    assert contents(tmp_path) == before
    opened[0].execute("PRAGMA max_page_count = 100000")
    assert len(store.accept([incoming("big", number, text="x" * 1_000) for number in range(100)])) == 100
    store.close()


def test_a_read_only_directory_is_refused_with_words(tmp_path: Path, clock: HandClock) -> None:
    def connect(path: Path, **named: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, **named)
        return database

    Store.open(tmp_path, clock).close()
    with pytest.raises(StateUnwritable, match="readonly"):
        Store.open(tmp_path, clock, connect=connect)


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_fd: int, _operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StateUnwritable, match="No locks"):
        Store.open(tmp_path, clock)
