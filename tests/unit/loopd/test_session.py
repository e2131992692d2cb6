import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from bxcore.ids import MessageKey, SessionId
from bxcore.sessionrecords import Record, ToolResult, TurnEnd, TurnStart, User
from bxcore.settings.loopd import Limits
from bxcore.wire.channel import TextDelta, TurnEnded, TurnEnding, TurnNotice, TurnStarted, TurnState
from loopd.broadcast import Listener
from loopd.endings import LOST_CALL
from loopd.faults import TooBusy
from loopd.session import Session
from tests.fakes.loop import Loop, heard
from tests.fakes.scripted_model import Script, answer, calls, echo
from tests.fakes.strict_server import complaints

S = SessionId("s")


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path)
    yield made
    made.close()
    assert [found for body in made.model.bodies for found in complaints(body)] == []


def during(text: str, *actions: Callable[[], object]) -> Script:
    """An answer in whose middle something happens."""
    script = list(answer(text))
    return [*script[:3], *actions, *script[3:]]


def messages(loop: Loop, request: int = -1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(loop.model.bodies[request])["messages"]
    return found


def ended(listener: Listener | None) -> TurnEnded:
    last = heard(listener)[-1]
    assert isinstance(last, TurnEnded)
    return last


# -- messages during a turn ---------------------------------------------------------------------------


def test_messages_that_arrive_during_a_turn_become_one_next_turn(loop: Loop) -> None:
    waiting: list[Any] = []
    loop.model.expect(
        during(
            "one",
            lambda: waiting.append(loop.accept("second", key="k2")),
            lambda: waiting.append(loop.accept("third", key="k3")),
        ),
        answer("two and three"),
    )
    first = loop.say("first", key="k1")
    assert first.ended.text == "one"
    heard_by = [heard(accepted.listener) for _, accepted in waiting]
    assert heard_by[0] == heard_by[1]
    assert heard_by[0][0] == TurnStarted(turn=2, keys=(MessageKey("k2"), MessageKey("k3")))
    assert [(accepted.turn, accepted.queued) for _, accepted in waiting] == [(2, True)] * 2
    assert messages(loop)[-1] == {"role": "user", "content": "second\n\nthird"}
    assert len(loop.model.bodies) == 2


def test_the_turn_that_runs_does_not_see_the_message_that_waits(loop: Loop) -> None:
    loop.model.expect([lambda: loop.accept("later", key="k2"), *calls(("clock", "{}"))], answer("ok"))
    loop.say("now", key="k1")
    loop.settle()
    assert "later" not in json.dumps(messages(loop, 1))
    assert messages(loop, 2)[-1]["content"] == "later"


def test_a_message_is_on_disk_when_it_is_accepted(loop: Loop) -> None:
    seen: list[list[Record]] = []
    loop.model.expect(during("one", lambda: loop.accept("second", key="k2"), lambda: seen.append(loop.records())))
    loop.say("first", key="k1")
    assert [record.content for record in seen[0] if isinstance(record, User)] == ["first", "second"]


@pytest.mark.parametrize(
    ("limits", "text", "fits"),
    [
        (Limits(waiting_messages=2), "more", 2),
        (Limits(waiting_bytes=9), "five.", 1),
        (Limits(waiting_bytes=10), "five.", 2),
        (Limits(waiting_bytes=11), "é" * 3, 1),
    ],
    ids=["messages", "bytes", "bytes, to the last", "bytes of UTF-8"],
)
def test_what_may_wait_for_the_next_turn_has_an_end(tmp_path: Path, limits: Limits, text: str, fits: int) -> None:
    loop = Loop(tmp_path, limits=limits)
    taken: list[Any] = []

    def send(key: str) -> None:
        try:
            taken.append(loop.accept(text, key=key)[1].turn)
        except TooBusy as refused:
            taken.append(refused.code)

    waiting = [lambda: send("k2"), lambda: send("k3"), lambda: send("k4"), lambda: send("k2")]
    loop.model.expect(during("one", *waiting), answer("two"))
    loop.say("first", key="k1")
    loop.settle()
    assert taken == [*[2] * fits, *["too_busy"] * (3 - fits), 2]
    assert len([record for record in loop.records() if isinstance(record, User)]) == 1 + fits
    loop.close()


def test_one_message_may_be_as_long_as_it_likes(tmp_path: Path) -> None:
    loop = Loop(tmp_path, limits=Limits(waiting_bytes=9))
    assert loop.say("x" * 100).ended.ending is TurnEnding.ANSWERED
    loop.close()


# -- the same message again ---------------------------------------------------------------------------


def test_a_message_sent_again_during_its_turn_is_said_once_and_heard_by_both(loop: Loop) -> None:
    again: list[Any] = []
    loop.model.expect(during("Hello", lambda: again.append(loop.accept("Hi", key="k1"))))
    first = loop.say("Hi", key="k1")
    (_, accepted) = again[0]
    assert (accepted.turn, accepted.duplicate, accepted.queued) == (1, True, False)
    assert (
        accepted.listener.text
        + "".join(event.text for event in heard(accepted.listener) if isinstance(event, TextDelta))
        == first.ended.text
    )
    assert len(loop.model.bodies) == 1


def test_a_message_sent_again_after_its_turn_says_which_turn_that_was(loop: Loop) -> None:
    loop.say("Hi", key="k1")
    loop.say("More", key="k2")
    _, accepted = loop.accept("Hi", key="k1")
    assert (accepted.turn, accepted.duplicate, accepted.listener) == (1, True, None)
    assert len(loop.model.bodies) == 2


def test_a_waiting_message_sent_again_waits_once(loop: Loop) -> None:
    again: list[Any] = []
    loop.model.expect(during("one", *[lambda: again.append(loop.accept("second", key="k2"))] * 3), answer("two"))
    loop.say("first", key="k1")
    assert [(accepted.turn, accepted.duplicate) for _, accepted in again] == [(2, False), (2, True), (2, True)]
    assert {ended(accepted.listener).text for _, accepted in again} == {"two"}
    assert messages(loop)[-1]["content"] == "second"


def test_c1_the_first_text_of_a_key_counts(loop: Loop) -> None:
    loop.say("first text", key="k1")
    loop.accept("an edit of it", key="k1")
    assert [record.content for record in loop.records() if isinstance(record, User)] == ["first text"]


# -- following ----------------------------------------------------------------------------------------


def session_of(loop: Loop) -> Session:
    session, _ = loop.sessions.follow(S, 0)
    return session


def test_a_turn_is_followed_while_it_waits_runs_and_after_it_ended(loop: Loop) -> None:
    seen: list[Any] = []

    def follow(turn: int) -> None:
        seen.append(loop.sessions.follow(S, turn)[1])

    loop.model.expect(
        during("one", lambda: loop.accept("second", key="k2"), lambda: follow(0), lambda: follow(2)), answer("two")
    )
    loop.say("first", key="k1")
    running, queued = seen
    assert (running.turn, running.state) == (1, TurnState.RUNNING)
    assert ended(running.listener).text == "one"
    assert (queued.turn, queued.state) == (2, TurnState.QUEUED)
    assert ended(queued.listener).text == "two"
    follow(0)
    follow(1)
    assert [(found.turn, found.state, found.listener) for found in seen[2:]] == [
        (2, TurnState.ENDED, None),
        (1, TurnState.ENDED, None),
    ]


@pytest.mark.parametrize("turn", [-1, 3, 2**53 - 1])
def test_a_turn_that_never_was_cannot_be_followed(loop: Loop, turn: int) -> None:
    loop.say("first")
    assert loop.sessions.follow(S, turn)[1] is None


def test_a_turn_that_nobody_hears_goes_on_and_can_be_looked_up(loop: Loop) -> None:
    gone: list[Any] = []

    def leave() -> None:
        session, accepted = gone[0]
        session.leave(accepted)
        assert session._running.broadcast._listeners == []

    loop.model.expect(during("Hello", leave))
    gone.append(loop.accept("Hi", key="k1"))
    loop.settle()
    end = loop.records()[-1]
    assert isinstance(end, TurnEnd)
    assert end.ending is TurnEnding.ANSWERED
    assert loop.sessions.follow(S, 1)[1].state is TurnState.ENDED  # type: ignore[union-attr]  # it is there


# -- cancelling ---------------------------------------------------------------------------------------


def test_cancelling_ends_the_running_turn_and_the_messages_that_wait_have_theirs(loop: Loop) -> None:
    stopped: list[int | None] = []
    loop.model.expect(
        during("one", lambda: loop.accept("second", key="k2"), lambda: stopped.append(loop.sessions.cancel(S))),
        answer("two"),
    )
    first = loop.say("first", key="k1")
    assert stopped == [1]
    assert first.ended.ending is TurnEnding.CANCELLED
    loop.settle()
    ends = [record.ending for record in loop.records() if isinstance(record, TurnEnd)]
    assert ends == [TurnEnding.CANCELLED, TurnEnding.ANSWERED]


def test_cancelling_without_a_turn_does_nothing(loop: Loop) -> None:
    loop.say("Hi")
    assert loop.sessions.cancel(S) is None
    assert loop.say("Hi").ended.ending is TurnEnding.ANSWERED


# -- loopd stops --------------------------------------------------------------------------------------


def test_a_turn_that_loopd_stops_is_interrupted_and_says_so(loop: Loop, tmp_path: Path) -> None:
    loop.model.expect(during("Hello", loop.sessions.interrupt))
    said = loop.say("Hi")
    assert said.ended.ending is TurnEnding.INTERRUPTED
    loop.close()
    later = Loop(tmp_path)
    assert later.say("Again").ended.ending is TurnEnding.ANSWERED
    ends = [record.ending for record in later.records() if isinstance(record, TurnEnd)]
    assert ends == [TurnEnding.INTERRUPTED, TurnEnding.ANSWERED]
    later.close()


def test_a_message_that_waits_when_loopd_stops_is_kept_and_its_sender_is_let_go(loop: Loop, tmp_path: Path) -> None:
    waiting: list[Any] = []
    loop.model.expect(during("one", lambda: waiting.append(loop.accept("second", key="k2")), loop.sessions.interrupt))
    loop.say("first", key="k1")
    (_, accepted) = waiting[0]
    assert heard(accepted.listener) == []
    loop.close()
    later = Loop(tmp_path)
    again = later.say("second", key="k2")
    assert (again.accepted.turn, again.accepted.duplicate) == (2, True)
    assert again.ended.text == "ok"
    later.close()


@pytest.mark.parametrize("session", ["s", "another"])
def test_a_message_that_comes_after_the_stop_is_kept_and_its_sender_is_let_go(loop: Loop, session: str) -> None:
    loop.say("first")
    loop.sessions.interrupt()
    _, accepted = loop.accept("second", session=session)
    assert heard(accepted.listener) == []
    assert [record.content for record in loop.records(session) if isinstance(record, User)][-1] == "second"
    assert len(loop.model.bodies) == 1


def test_no_waiting_turn_is_begun_by_looking_after_the_stop(tmp_path: Path, loop: Loop) -> None:
    later = crashed(tmp_path, loop, answer("never seen"), at=2)
    later.sessions.interrupt()
    _, followed = later.sessions.follow(S, 0)
    assert followed is not None
    assert heard(followed.listener) == []
    assert later.model.bodies == []
    later.close()


# -- after a crash ------------------------------------------------------------------------------------


def crashed(tmp_path: Path, loop: Loop, *scripts: Script, at: int) -> Loop:
    """Take a turn to its end, then put the log back to its first `at` records, as kill -9 would have left it."""
    loop.model.expect(*scripts)
    loop.say("first", key="k1")
    loop.close()
    lines = loop.log().read_bytes().splitlines(keepends=True)
    loop.log().write_bytes(b"".join(lines[:at]))
    return Loop(tmp_path)


STEP: Script = calls(echo("x"), ("clock", "{}"))


@pytest.mark.parametrize("at", range(2, 9))
def test_s28_a_killed_turn_is_completed_and_the_session_goes_on(tmp_path: Path, loop: Loop, at: int) -> None:
    """Statement 28: 0 stuck sessions over all kill points."""
    later = crashed(tmp_path, loop, STEP, answer("done"), at=at)
    before = later.records()
    said = later.say("second", key="k2")
    assert said.ended.ending is TurnEnding.ANSWERED
    assert [found for body in later.model.bodies for found in complaints(body)] == []
    assert later.records()[: len(before)] == before
    results = [record for record in later.records() if isinstance(record, ToolResult)]
    if any(type(record).__name__ == "Assistant" for record in before):
        assert [result.tool_call_id for result in results] == ["c0", "c1"]
        lost = [result for result in results if result.content == LOST_CALL]
        assert len(lost) == 2 - sum(isinstance(record, ToolResult) for record in before)
        assert not any(result.ok for result in lost)
    later.close()


def test_s40_a_call_that_a_crash_cut_off_is_not_run_again(tmp_path: Path, loop: Loop) -> None:
    """Statement 40: its effect is unknown, and only the model or the owner may ask for it again."""
    later = crashed(tmp_path, loop, STEP, answer("done"), at=5)
    later.say("second", key="k2")
    assert [message["content"] for message in messages(later) if message["role"] == "tool"] == [LOST_CALL] * 2
    later.close()


def test_a_message_that_was_accepted_before_the_crash_has_its_turn_when_it_is_sent_again(
    tmp_path: Path, loop: Loop
) -> None:
    later = crashed(tmp_path, loop, answer("never seen"), at=2)
    said = later.say("first", key="k1")
    assert (said.accepted.turn, said.accepted.duplicate) == (1, True)
    assert said.ended.text == "ok"
    assert len([record for record in later.records() if isinstance(record, User)]) == 1
    later.close()


def test_a_message_that_was_accepted_before_the_crash_has_its_turn_when_it_is_followed(
    tmp_path: Path, loop: Loop
) -> None:
    later = crashed(tmp_path, loop, answer("never seen"), at=2)
    _, followed = later.sessions.follow(S, 0)
    assert followed is not None
    assert (followed.turn, followed.state) == (1, TurnState.QUEUED)
    assert ended(followed.listener).text == "ok"
    later.close()


def test_a_message_whose_turn_was_killed_is_not_answered_twice(tmp_path: Path, loop: Loop) -> None:
    later = crashed(tmp_path, loop, answer("never seen"), at=3)
    _, accepted = later.accept("first", key="k1")
    assert (accepted.turn, accepted.duplicate, accepted.listener) == (1, True, None)
    assert isinstance(later.records()[-1], TurnEnd)
    assert later.model.bodies == []
    later.close()


def test_the_completion_of_a_killed_turn_is_written_once(tmp_path: Path, loop: Loop) -> None:
    later = crashed(tmp_path, loop, STEP, answer("done"), at=5)
    for _ in range(3):
        later.sessions.follow(S, 0)
        later.close()
        count = len(later.records())
        later = Loop(tmp_path)
    assert count == 5 + 2 + 1
    later.close()


def is_recovery(event: object) -> TypeGuard[TurnNotice]:
    return isinstance(event, TurnNotice) and event.code == "log_recovered"


def test_a_torn_log_is_told_to_the_owner_once(tmp_path: Path, loop: Loop) -> None:
    later = crashed(tmp_path, loop, answer("done"), at=6)
    with later.log().open("ab") as file:
        file.write(b'{"type":"us')
    told = [event.text for event in later.say("second").events if is_recovery(event)]
    assert len(told) == 1
    assert "11 bytes" in told[0]
    assert not any(is_recovery(event) for event in later.say("third").events)
    later.close()


def test_turns_are_numbered_without_a_gap(loop: Loop) -> None:
    for number in range(1, 6):
        assert loop.say(f"message {number}").ended.turn == number
    assert [record.turn for record in loop.records() if isinstance(record, TurnStart)] == [1, 2, 3, 4, 5]
