"""The queue keeps what it took, whole or not at all, whatever fails under it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bxcore.ids import MattermostId
from bxcore.timestamp import DAY_MS, Timestamp
from gatewayd import queuefile
from gatewayd.entries import Asking, Kind, OpenTurn, Question, State, Taken, Thread, session_of, thread_of
from gatewayd.store import KEPT_MS, Store
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


# -- coming in ------------------------------------------------------------------------------------


def test_a_post_is_taken_once_however_often_it_comes(store: Store) -> None:
    first, second = incoming("one"), incoming("two", after_ms=5)
    assert store.accept([first]) == (first,)
    assert store.accept([first, second, second]) == (second,)
    assert store.waiting() == (first, second)


def test_a_post_that_comes_again_after_it_was_handled_is_not_new(store: Store) -> None:
    store.accept([incoming("one")])
    store.settle(an_id("one"), State.DONE)
    assert store.accept([incoming("one")]) == ()
    assert store.known(an_id("one")) is State.DONE
    assert store.waiting() == ()


def test_waiting_is_in_the_order_in_which_it_was_written_and_not_in_that_of_its_arrival(store: Store) -> None:
    store.accept([incoming("late", after_ms=9), incoming("b", after_ms=3)])
    store.accept([incoming("a", after_ms=3), incoming("early")])
    assert [post.id for post in store.waiting()] == [an_id("early"), an_id("a"), an_id("b"), an_id("late")]


def test_waiting_comes_in_pages_and_by_kind(store: Store) -> None:
    posts = [
        incoming("p", number, after_ms=number, kind=Kind.COMMAND if number % 2 else Kind.MESSAGE) for number in range(6)
    ]
    store.accept(posts)
    assert store.waiting(2) == tuple(posts[:2])
    assert store.waiting(2, after=posts[1]) == tuple(posts[2:4])
    assert store.waiting(kind=Kind.COMMAND) == tuple(posts[1::2])


def test_a_mark_moves_forward_only(store: Store) -> None:
    store.accept([], {DIRECT: Timestamp(50), TOWN: Timestamp(7)})
    store.accept([], {DIRECT: Timestamp(20), TOWN: Timestamp(8)})
    assert store.marks() == {DIRECT: 50, TOWN: 8}


def test_a_message_makes_its_thread_ours_and_a_command_does_not(store: Store) -> None:
    store.accept([incoming("one", thread=ROOT), incoming("two", kind=Kind.COMMAND)])
    assert store.thread(ROOT) == Thread(root=ROOT, channel=DIRECT, direct=True, user=OWNER)
    assert store.thread(an_id("two")) is None


def test_a_thread_belongs_to_whoever_spoke_first(store: Store) -> None:
    store.accept([incoming("one", thread=ROOT)])
    store.accept([incoming("two", thread=ROOT, user=OTHER)])
    store.own_thread(Thread(root=ROOT, channel=TOWN, direct=False, user=OTHER))
    assert store.thread(ROOT) == Thread(root=ROOT, channel=DIRECT, direct=True, user=OWNER)


def test_what_is_answered_at_once_is_done_in_the_same_step_and_answered_once(store: Store) -> None:
    taken = Taken(post=incoming("one"), state=State.DONE, outgoing=(outgoing("a"),))
    assert store.take([taken]) == (taken.post,)
    assert store.take([taken]) == ()
    assert store.known(an_id("one")) is State.DONE
    assert keys(store) == ["a"]
    assert store.waiting() == ()


def test_an_old_post_waits_to_be_listed_and_makes_no_thread_ours(store: Store) -> None:
    store.take([Taken(post=incoming("one", number), state=State.OLD, edited=number == 1) for number in range(3)])
    store.take([Taken(post=incoming("two", user=OTHER), state=State.OLD)])
    assert store.waiting() == ()
    assert store.thread(an_id("one")) is None
    assert store.old_authors() == {OWNER: 3, OTHER: 1}
    assert [(old.post.id, old.edited) for old in store.old(OWNER, 2)] == [
        (an_id("one", 1), True),
        (an_id("one", 2), False),
    ]
    assert store.counts().listed == 4


def test_a_list_is_kept_in_the_step_that_notes_it(store: Store) -> None:
    store.take([Taken(post=incoming("one"), state=State.OLD), Taken(post=incoming("two", user=OTHER), state=State.OLD)])
    store.list_old(OWNER, [outgoing("list")])
    assert store.known(an_id("one")) is State.LISTED
    assert store.old_authors() == {OTHER: 1}
    assert keys(store) == ["list"]


def test_which_of_many_are_known_is_one_question(store: Store) -> None:
    store.accept([incoming("one"), incoming("two")])
    assert store.known_of([an_id("two"), an_id("three"), an_id("one")]) == {an_id("one"), an_id("two")}
    assert store.known_of([]) == frozenset()


# -- edits and deletions ---------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["waiting", "asked", "done"])
def test_an_edit_is_told_once_where_the_first_text_was_used(store: Store, state: str) -> None:
    store.accept([incoming("one", text="first")])
    if state != "waiting":
        store.asked(an_id("one"), SESSION, 1)
    if state == "done":
        store.answered(SESSION, 1, [])
    assert not store.text_told(an_id("one"), "first", [outgoing("note")])
    assert store.text_told(an_id("one"), "second", [outgoing("note")])
    assert not store.text_told(an_id("one"), "third", [outgoing("other")])
    assert keys(store) == ["note"]


@pytest.mark.parametrize("taken", ["unknown", "old", "answered"])
def test_an_edit_of_what_was_not_used_is_not_told(store: Store, taken: str) -> None:
    if taken != "unknown":
        store.take([Taken(post=incoming("one"), state=State.OLD if taken == "old" else State.DONE)])
    assert not store.text_told(an_id("one"), "second", [outgoing("note")])
    assert keys(store) == []


def test_a_deleted_reply_that_was_not_said_is_dropped(store: Store) -> None:
    store.accept([incoming("root"), incoming("one", thread=ROOT, after_ms=1)])
    assert store.take_back(an_id("one")) == ()
    assert [post.id for post in store.waiting()] == [ROOT]


def test_a_deleted_reply_that_was_said_changes_nothing(store: Store) -> None:
    store.accept([incoming("root"), incoming("one", thread=ROOT)])
    store.asked(an_id("one"), SESSION, 1)
    assert store.take_back(an_id("one")) == ()
    assert store.known(an_id("one")) is State.ASKED


def test_a_deleted_root_drops_what_waits_and_names_the_session_at_work(store: Store) -> None:
    store.accept([incoming("root"), incoming("one", thread=ROOT), incoming("two"), incoming("three")])
    store.asked(ROOT, SESSION, 1)
    store.asked(an_id("three"), session_of(an_id("three")), 1)
    assert store.take_back(ROOT) == (SESSION,)
    assert [post.id for post in store.waiting()] == [an_id("two")]
    assert store.known(ROOT) is State.ASKED


def test_what_loopd_has_is_asked_although_it_was_taken_back_meanwhile(store: Store) -> None:
    store.accept([incoming("one")])
    store.take_back(an_id("one"))
    store.asked(an_id("one"), session_of(an_id("one")), 1)
    assert store.known(an_id("one")) is State.ASKED
    assert len(store.open_turns()) == 1


# -- saying ----------------------------------------------------------------------------------------


def test_posts_of_one_turn_are_one_open_turn(store: Store) -> None:
    store.accept([incoming("root"), incoming("one", thread=ROOT, after_ms=4), incoming("two", thread=ROOT, after_ms=5)])
    store.asked(ROOT, SESSION, 1)
    store.asked(an_id("one"), SESSION, 2)
    store.asked(an_id("two"), SESSION, 2)
    common: dict[str, Any] = {"session": SESSION, "channel": DIRECT, "thread": ROOT}
    assert store.open_turns() == (
        OpenTurn(turn=1, since=BEGIN, first=True, **common),
        OpenTurn(turn=2, since=Timestamp(BEGIN + 4), first=False, **common),
    )


def test_an_answer_ends_its_turn_once(store: Store) -> None:
    store.accept([incoming("root")])
    store.asked(ROOT, SESSION, 1)
    store.answered(SESSION, 1, [outgoing("k:1"), outgoing("k:2")])
    store.answered(SESSION, 1, [outgoing("k:1"), outgoing("k:2"), outgoing("k:3")])
    assert keys(store) == ["k:1", "k:2"]
    assert store.open_turns() == ()


def test_an_answered_text_is_in_the_file_no_more(tmp_path: Path, clock: HandClock) -> None:
    def connect(*arguments: Any, **named: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = sqlite3.connect(*arguments, **named)
        database.execute("PRAGMA secure_delete = OFF")  # some builds of SQLite have it on by themselves
        opened.append(database)
        return database

    opened: list[sqlite3.Connection] = []

    store = Store.open(tmp_path, clock, connect=connect)
    store.accept([incoming("root", text="a secret thing " * 1_000), incoming("other", text="a secret thing")])
    opened[0].execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"a secret thing" in (tmp_path / queuefile.FILE).read_bytes()
    store.asked(ROOT, SESSION, 1)
    store.answered(SESSION, 1, [])
    store.settle(an_id("other"), State.DONE)
    store.close()
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert queuefile.FILE in left
    assert not [name for name, content in left.items() if b"a secret thing" in content]


def test_settling_says_whether_the_post_still_waited(store: Store) -> None:
    store.accept([incoming("one")])
    assert store.settle(an_id("one"), State.DONE, [outgoing("a")])
    assert not store.settle(an_id("one"), State.DONE, [outgoing("b")])
    assert not store.settle(an_id("nothing"), State.DONE, [outgoing("c")])
    assert keys(store) == ["a"]


def test_a_parked_post_keeps_its_text_and_counts(store: Store) -> None:
    store.accept([incoming("one")])
    assert [store.attempted(an_id("one")) for _ in range(3)] == [1, 2, 3]
    assert store.attempted(an_id("nothing")) == 0
    store.settle(an_id("one"), State.PARKED)
    assert store.counts().parked == 1


@pytest.mark.parametrize("state", [State.PARKED, State.OLD])
def test_what_was_set_aside_is_not_asked_any_more(store: Store, state: State) -> None:
    store.accept([incoming("one")])
    store.settle(an_id("one"), state)
    store.asked(an_id("one"), SESSION, 1)
    assert store.known(an_id("one")) is state


# -- going out -------------------------------------------------------------------------------------


def test_a_key_is_posted_once_and_in_order(store: Store) -> None:
    store.add([outgoing("b"), outgoing("a")])
    store.add([outgoing("a", "another text"), outgoing("c")])
    assert keys(store) == ["b", "a", "c"]
    first = store.unsent()[0]
    store.trying(first.number)
    assert (store.unsent()[0].tried, store.unsent()[0].attempts) == (True, 1)
    store.sent(first.number, an_id("made"))
    store.add([outgoing("b")])
    assert keys(store) == ["a", "c"]


def test_a_replaced_answer_leaves_its_keys_known(store: Store) -> None:
    store.add([outgoing("s:1:0"), outgoing("s:1:1"), outgoing("s:10:0")])
    store.replace([unsent.number for unsent in store.of_answer("s:1:")], [outgoing("instead")])
    store.add([outgoing("s:1:1")])
    assert keys(store) == ["s:10:0", "instead"]


def test_parking_and_saying_so_is_one_step(store: Store) -> None:
    store.add([outgoing("a"), outgoing("b")])
    store.park([unsent.number for unsent in store.unsent()], "thread_deleted", [outgoing("sorry")])
    assert keys(store) == ["sorry"]
    counts = store.counts()
    assert (counts.parked, counts.outgoing) == (2, 1)


def test_a_question_is_noted_before_and_after_it_is_posted(store: Store) -> None:
    asking = Asking(key="q", id=7, channel=DIRECT, root=ROOT, message="May it?", made=BEGIN)
    question = Question(post=an_id("asked"), id=7, channel=DIRECT, root=ROOT, message="May it?")
    store.question_asking(asking)
    assert store.asking() == (asking,)
    store.question_posted(question, "q")
    assert (store.asking(), store.questions()) == ((), (question,))
    store.question_closed(question.post)
    assert store.questions() == ()


# -- tidying ---------------------------------------------------------------------------------------


def test_what_was_handled_long_ago_is_forgotten(store: Store, clock: HandClock) -> None:
    store.accept([incoming("one"), incoming("waits")], {DIRECT: Timestamp(BEGIN + 2 * DAY_MS)})
    store.settle(an_id("one"), State.DONE, [outgoing("a"), outgoing("waits")])
    store.sent(store.unsent()[0].number, an_id("made"))
    clock.wind(KEPT_MS)
    store.prune()
    assert store.known(an_id("one")) is State.DONE
    clock.wind(1)
    store.prune()
    assert store.known(an_id("one")) is None
    assert store.known(an_id("waits")) is State.WAITING
    assert keys(store) == ["waits"]


def test_what_catching_up_reads_again_is_never_forgotten(store: Store, clock: HandClock) -> None:
    """In a quiet channel the newest post is read at every start: forgotten, it would be new."""
    store.accept([incoming("one")], {DIRECT: BEGIN})
    store.settle(an_id("one"), State.DONE)
    clock.wind(10 * KEPT_MS)
    store.prune()
    assert store.accept([incoming("one")]) == ()


@pytest.mark.parametrize("text", ["\0", "a\0b", "\U0001f99e" * 100, "\u202e", "'; DROP TABLE posts; --"])
def test_any_text_comes_back_as_it_was(store: Store, text: str) -> None:
    store.accept([incoming("one", text=text)])
    assert store.waiting()[0].text == text


def test_a_session_is_its_thread() -> None:
    assert thread_of(SESSION) == ROOT
    assert [thread_of(session_of(MattermostId(other))) for other in ("", "short", "UPPER" * 6)] == [None] * 3
