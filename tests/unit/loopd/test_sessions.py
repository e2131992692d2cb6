import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bxcore.errors import BoxmakerError, StateError
from bxcore.files import DiskFiles
from bxcore.ids import SessionId
from bxcore.sessionrecords import TurnStart, User
from bxcore.settings.loopd import Limits, Sampling, Slots
from bxcore.wire.channel import TurnEnding
from loopd.faults import NoSession, SessionDamaged, SessionExists, TooBusy
from tests.fakes.faulty_files import Fault, FaultyFiles
from tests.fakes.loop import PATIENCE_SECONDS, Loop, heard
from tests.fakes.scripted_model import Script, answer
from tests.fakes.strict_server import complaints

S = SessionId("s")


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path, limits=Limits(open_sessions=3, running_turns=4))
    yield made
    made.close()
    assert [found for body in made.model.bodies for found in complaints(body)] == []


class Held:
    """A reply that does not go on until it is let go."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def script(self, text: str = "held") -> Script:
        return [self._hold, *answer(text)]

    def _hold(self) -> None:
        self.reached.set()
        assert self.go.wait(PATIENCE_SECONDS)

    def wait(self) -> None:
        assert self.reached.wait(PATIENCE_SECONDS)


# -- new and old --------------------------------------------------------------------------------------


def test_a_session_is_made_only_where_one_was_asked_for(loop: Loop) -> None:
    with pytest.raises(NoSession):
        loop.accept("Hi", new=False)
    assert loop.store.ids() == []
    loop.say("Hi", new=True)
    assert loop.store.ids() == ["s"]


@pytest.mark.parametrize("ask", ["follow", "cancel"])
def test_looking_makes_no_session(loop: Loop, ask: str) -> None:
    with pytest.raises(NoSession):
        loop.sessions.follow(S, 0) if ask == "follow" else loop.sessions.cancel(S)
    assert loop.store.ids() == []


def test_a_new_session_does_not_take_the_name_of_an_old_one(loop: Loop, tmp_path: Path) -> None:
    loop.say("Hi", new=True)
    with pytest.raises(SessionExists):
        loop.accept("Hi", new=True)
    loop.close()
    with pytest.raises(SessionExists):
        Loop(tmp_path).accept("Hi", new=True)


def test_a_new_session_that_is_asked_for_again_with_the_same_message_is_the_same(loop: Loop) -> None:
    loop.say("Hi", key="k1", new=True)
    _, accepted = loop.accept("Hi", key="k1", new=True)
    assert (accepted.turn, accepted.duplicate) == (1, True)


def test_a_new_session_in_which_nothing_could_be_said_is_still_new(tmp_path: Path) -> None:
    """The disk fills up between its first record and the message: the client asks for the same again."""
    files = FaultyFiles(Fault(call="write", at=2, lasting=True))
    loop = Loop(tmp_path, files=files)
    with pytest.raises(StateError):
        loop.accept("Hi", key="k1", new=True)
    assert loop.store.exists(S)
    files.system.fault = None
    assert loop.say("Hi", key="k1", new=True).ended.ending is TurnEnding.ANSWERED
    loop.close()


def test_a_session_begun_before_a_crash_and_never_spoken_in_is_still_new(loop: Loop, tmp_path: Path) -> None:
    loop.say("Hi", key="k1")
    loop.close()
    first = loop.log().read_bytes().splitlines(keepends=True)[0]
    loop.log().write_bytes(first)
    later = Loop(tmp_path)
    assert later.say("Hi", key="k1", new=True).ended.ending is TurnEnding.ANSWERED
    later.close()


# -- how many -----------------------------------------------------------------------------------------


def test_idle_sessions_are_let_go_and_read_again_when_they_speak(loop: Loop) -> None:
    for number in range(6):
        loop.say("Hi", session=f"s{number}", key="k1")
    assert loop.sessions.open_count() == 3
    before = loop.model.bodies[0]
    loop.say("More", session="s0")
    assert loop.model.bodies[-1].startswith(before.removesuffix(b"]}"))
    assert loop.sessions.open_count() == 3


def test_a_session_whose_turn_runs_is_not_let_go(loop: Loop) -> None:
    for number in range(6):
        loop.say("Hi", session=f"s{number}")
    held = Held()
    loop.model.expect(held.script())
    _, accepted = loop.accept("Hi", session="busy")
    held.wait()
    for number in range(6):
        loop.sessions.follow(SessionId(f"s{number}"), 0)
    assert loop.sessions.running() == 1
    assert loop.sessions.cancel(SessionId("busy")) == 1
    held.go.set()
    assert heard(accepted.listener)


@pytest.fixture
def full(loop: Loop) -> Iterator[Held]:
    """As many turns run as may: one holds the slot, the others wait for it."""
    loop.say("Hi", session="old", key="k1")
    held = Held()
    loop.model.expect(held.script())
    running = [loop.accept("Hi", session=f"s{number}") for number in range(4)]
    held.wait()
    assert loop.sessions.running() == 4
    yield held
    held.go.set()
    for _, accepted in running:
        heard(accepted.listener)


def test_one_turn_too_many_is_refused_without_a_trace(loop: Loop, full: Held) -> None:
    """A session that was made on disk could not be asked for again."""
    with pytest.raises(TooBusy):
        loop.accept("Hi", session="fifth", key="k1", new=True)
    assert not loop.store.exists(SessionId("fifth"))
    full.go.set()
    loop.settle()
    assert loop.say("Hi", session="fifth", key="k1", new=True).ended.ending is TurnEnding.ANSWERED


def test_a_busy_loopd_still_takes_messages_for_turns_that_run(loop: Loop, full: Held) -> None:
    _, queued = loop.accept("more", session="s0")
    assert queued.queued
    full.go.set()
    heard(queued.listener)


def test_a_busy_loopd_still_answers_what_it_knows(loop: Loop, full: Held) -> None:
    _, again = loop.accept("Hi", session="old", key="k1")
    assert (again.turn, again.duplicate) == (1, True)


# -- damage and failure -------------------------------------------------------------------------------


def test_a_damaged_session_is_refused_until_it_is_mended_and_harms_no_other(loop: Loop, tmp_path: Path) -> None:
    loop.say("Hi", key="k1")
    loop.close()
    good = loop.log().read_bytes()
    later = Loop(tmp_path)
    loop.log().write_bytes(good.replace(b'"type":"turn_start"', b'"type":"turn_stxrt"', 1))
    for _ in range(3):
        with pytest.raises(SessionDamaged, match=r"0\.jsonl:3:"):
            later.accept("More")
    assert later.say("Hi", session="other").ended.ending is TurnEnding.ANSWERED
    loop.log().write_bytes(good)
    assert later.say("More").ended.ending is TurnEnding.ANSWERED
    later.close()


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_what_cannot_be_opened_leaves_no_descriptor_behind(loop: Loop, tmp_path: Path) -> None:
    loop.say("Hi", key="k1")
    loop.close()
    loop.log().write_bytes(loop.log().read_bytes().replace(b'"type":"turn_start"', b'"type":"turn_stxrt"', 1))
    later = Loop(tmp_path)
    before = open_files()
    for _ in range(20):
        with pytest.raises(SessionDamaged):
            later.sessions.follow(S, 0)
    assert open_files() <= before


def test_a_full_disk_while_a_killed_turn_is_completed_wedges_nothing(loop: Loop, tmp_path: Path) -> None:
    loop.say("Hi", key="k1")
    loop.close()
    loop.log().write_bytes(b"".join(loop.log().read_bytes().splitlines(keepends=True)[:3]))
    files = FaultyFiles(Fault(call="write", lasting=True))
    later = Loop(tmp_path, files=files)
    for _ in range(3):
        with pytest.raises(StateError) as refused:
            later.accept("More", key="k2")
        assert refused.value.code == "state_unwritable"
    files.system.fault = None
    assert later.say("More", key="k2").ended.ending is TurnEnding.ANSWERED
    later.close()


def test_s39_a_session_that_another_loopd_has_open_is_refused(loop: Loop, tmp_path: Path) -> None:
    loop.say("Hi")
    other = Loop(tmp_path, files=DiskFiles())
    with pytest.raises(StateError) as refused:
        other.accept("Hi")
    assert refused.value.code == "state_in_use"
    loop.close()
    assert other.say("Hi").ended.ending is TurnEnding.ANSWERED
    other.close()


# -- configuration changes ----------------------------------------------------------------------------


def test_m8_a_change_of_settings_touches_only_sessions_that_begin_later(loop: Loop, tmp_path: Path) -> None:
    loop.say("Hi", key="k1")
    loop.close()
    before = loop.model.bodies[0]
    later = Loop(tmp_path, sampling=Sampling(top_k=7), slots=Slots(main=1, background=0))
    later.say("More")
    later.say("Hi", session="young")
    tools_on = before[before.index(b'"temperature"') :].removesuffix(b"]}")
    assert later.model.bodies[0][later.model.bodies[0].index(b'"temperature"') :].startswith(tools_on)
    assert b'"top_k":20' in later.model.bodies[0]
    assert b'"top_k":7' in later.model.bodies[1]
    assert b'"id_slot":1' in later.model.bodies[1]
    later.close()


# -- many at once -------------------------------------------------------------------------------------


def together(*works: Callable[[], Any]) -> list[Any]:
    """Do all of them at the same time; return what each returned or raised."""
    results: list[Any] = [None] * len(works)
    begin = threading.Barrier(len(works))

    def do(number: int) -> None:
        begin.wait(PATIENCE_SECONDS)
        try:
            results[number] = works[number]()
        except BoxmakerError as fault:
            results[number] = fault

    threads = [threading.Thread(target=do, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    return results


def test_twenty_clients_of_one_session_lose_nothing_and_say_nothing_twice(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.say("begin")
    said = together(*[lambda number=number: loop.say(f"text {number}", key=f"k{number}") for number in range(20)])
    assert all(one.ended.ending is TurnEnding.ANSWERED for one in said)
    loop.settle()
    records = loop.records()
    assert {record.content for record in records if isinstance(record, User)} == {
        "begin",
        *(f"text {number}" for number in range(20)),
    }
    named = [key for record in records if isinstance(record, TurnStart) for key in record.keys]
    assert len(named) == len(set(named)) == 21
    by_key = {key: record.turn for record in records if isinstance(record, TurnStart) for key in record.keys}
    assert [one.ended.turn for one in said] == [by_key[f"k{number}"] for number in range(20)]  # type: ignore[index]
    loop.close()


def test_one_of_many_who_ask_for_the_same_new_session_gets_it(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    said = together(*[lambda number=number: loop.say("Hi", key=f"k{number}", new=True) for number in range(8)])
    refused = [one for one in said if isinstance(one, SessionExists)]
    assert len(refused) == 7
    assert len([record for record in loop.records() if isinstance(record, User)]) == 1
    loop.close()


def test_one_message_sent_by_many_at_once_is_said_once(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    together(*[lambda: loop.accept("Hi", key="k1", new=True)] * 8)
    loop.settle()
    assert len([record for record in loop.records() if isinstance(record, User)]) == 1
    assert len(loop.model.bodies) == 1
    loop.close()


def test_sessions_that_come_and_go_by_the_dozen_keep_their_conversations(tmp_path: Path) -> None:
    """With room for two, each message opens a log, and closes one in whose next turn another may wait."""
    loop = Loop(tmp_path, limits=Limits(open_sessions=2))
    works = [
        lambda session=session, number=number: loop.say(f"text {number}", session=session, key=f"k{number}", new=False)
        for session in ("a", "b", "c", "d", "e")
        for number in range(6)
    ]
    for session in ("a", "b", "c", "d", "e"):
        loop.say("begin", session=session)
    said = together(*works)
    assert [one for one in said if isinstance(one, Exception)] == []
    loop.settle()
    for session in ("a", "b", "c", "d", "e"):
        assert len([record for record in loop.records(session) if isinstance(record, User)]) == 7
    assert [found for body in loop.model.bodies for found in complaints(body)] == []
    loop.close()
