"""A session whose disk fails, or whose machine does, or we do: nobody waits for ever, and the next message works."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bxcore.errors import StateError
from bxcore.files import Appender
from bxcore.sessionrecords import TurnEnd
from bxcore.wire.channel import TurnEnded, TurnEnding
from loopd.broadcast import Listener
from tests.fakes.faulty_files import Fault, FaultyFiles
from tests.fakes.loop import Loop, heard
from tests.fakes.scripted_model import Script, answer
from tests.fakes.strict_server import complaints


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path)
    yield made
    made.close()


def during(text: str, *actions: Callable[[], object]) -> Script:
    """An answer in whose middle something happens."""
    script = list(answer(text))
    return [*script[:3], *actions, *script[3:]]


def ended(listener: Listener | None) -> TurnEnded:
    last = heard(listener)[-1]
    assert isinstance(last, TurnEnded)
    return last


class HookedFiles(FaultyFiles):
    """Calls `on_append` with each line that goes into a log, in the thread that writes it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.on_append: Callable[[bytes], object] = lambda _: None

    def open_append(self, path: Path) -> Appender:
        return _Hooked(super().open_append(path), self)


class _Hooked:
    def __init__(self, inner: Appender, files: HookedFiles) -> None:
        self._inner, self._files = inner, files

    def append(self, data: bytes) -> None:
        self._files.on_append(data)
        self._inner.append(data)

    def status(self) -> os.stat_result:
        return self._inner.status()

    def close(self) -> None:
        self._inner.close()


def test_a_session_is_busy_until_its_last_waiting_turn_has_begun(tmp_path: Path) -> None:
    """Otherwise it could be let go between two turns, and its log closed under the second."""
    files = HookedFiles()
    loop = Loop(tmp_path, files=files)
    busy: list[bool] = []
    loop.model.expect(during("one", lambda: loop.accept("second", key="k2")))
    session, accepted = loop.accept("first", key="k1")
    files.on_append = lambda data: busy.append(session.busy) if b'"turn":2,"keys"' in data else None
    heard(accepted.listener)
    loop.settle()
    assert busy == [True]
    loop.close()


def test_a_message_that_could_not_be_written_is_not_accepted(tmp_path: Path) -> None:
    files = FaultyFiles(None)
    loop = Loop(tmp_path, files=files)
    loop.say("first", key="k1")
    files.system.fault = Fault(call="write", lasting=True)
    with pytest.raises(StateError) as refused:
        loop.accept("second", key="k2")
    assert refused.value.code == "state_unwritable"
    files.system.fault = None
    said = loop.say("second", key="k2")
    assert (said.accepted.duplicate, said.ended.ending) == (False, TurnEnding.ANSWERED)
    loop.close()


def test_a_turn_that_cannot_be_written_says_so_and_the_next_one_works(tmp_path: Path) -> None:
    files = FaultyFiles(None)
    loop = Loop(tmp_path, files=files)

    def break_disk() -> None:
        files.system.fault = Fault(call="fsync", lasting=True)

    loop.model.expect(during("lost", break_disk))
    said = loop.say("first", key="k1")
    assert said.ended.ending is TurnEnding.STATE_FAILED
    assert said.ended.sentence
    files.system.fault = None
    assert loop.say("second", key="k2").ended.ending is TurnEnding.ANSWERED
    assert [found for body in loop.model.bodies for found in complaints(body)] == []
    loop.close()


def test_who_waits_for_a_turn_that_cannot_begin_is_let_go_and_may_ask_again(tmp_path: Path) -> None:
    files = HookedFiles()
    loop = Loop(tmp_path, files=files)

    def fail(data: bytes) -> None:
        if b'"turn":2,"keys"' in data:
            files.system.fault = Fault(call="write", lasting=True)

    files.on_append = fail
    waiting: list[Any] = []
    loop.model.expect(during("one", lambda: waiting.append(loop.accept("second", key="k2"))))
    assert loop.say("first", key="k1").ended.text == "one"
    (_, accepted) = waiting[0]
    assert heard(accepted.listener) == []
    files.system.fault, files.on_append = None, lambda _: None
    again = loop.say("second", key="k2")
    assert (again.accepted.duplicate, again.ended.text) == (True, "ok")
    loop.close()


def test_a_fault_of_ours_between_two_turns_leaves_nobody_waiting(tmp_path: Path) -> None:
    files = HookedFiles()
    loop = Loop(tmp_path, files=files)

    def fail(data: bytes) -> None:
        if b'"turn":2,"keys"' in data:
            files.on_append = lambda _: None
            raise ZeroDivisionError

    files.on_append = fail
    waiting: list[Any] = []
    loop.model.expect(during("one", lambda: waiting.append(loop.accept("second", key="k2"))))
    assert loop.say("first", key="k1").ended.text == "one"
    assert heard(waiting[0][1].listener) == []
    assert loop.say("second", key="k2").ended.text == "ok"
    loop.close()


def test_a_fault_of_ours_at_the_end_of_a_turn_leaves_nobody_waiting(tmp_path: Path) -> None:
    files = HookedFiles()
    loop = Loop(tmp_path, files=files)

    def fail(data: bytes) -> None:
        if b'"turn_end"' in data:
            files.on_append = lambda _: None
            raise ZeroDivisionError

    files.on_append = fail
    assert loop.say("first", key="k1").ended.ending is TurnEnding.INTERNAL
    assert loop.say("second", key="k2").ended.ending is TurnEnding.ANSWERED
    ends = [record.ending for record in loop.records() if isinstance(record, TurnEnd)]
    assert ends == [TurnEnding.INTERRUPTED, TurnEnding.ANSWERED]
    loop.close()


def test_a_machine_without_threads_ends_the_turn_and_not_the_session(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", refuse)
        _, accepted = loop.accept("first", key="k1")
    assert ended(accepted.listener).ending is TurnEnding.INTERNAL
    assert loop.say("second", key="k2").ended.ending is TurnEnding.ANSWERED
