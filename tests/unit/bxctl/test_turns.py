"""A turn whose events end in a way that nobody planned. Connections that break: tests/process/."""

from collections.abc import Callable, Iterator

import pytest

from bxcore.client import PeerUnclear
from bxcore.deadline import SystemClock
from bxcore.wire import channel
from bxctl import message, sockets
from bxctl.events import JsonView
from bxctl.loopport import LoopPort
from bxctl.turns import TurnRun
from tests.fakes import loopd
from tests.fakes.clocks import HandClock
from tests.fakes.screens import FakeTerminal

Events = Callable[[channel.UserMessage], Iterator[object]]


class Scripted(LoopPort):
    """A way to loopd on which a test says what comes."""

    def __init__(self, events: Events) -> None:
        super().__init__(sockets.home(None), SystemClock())
        self._events = events

    def ask(self, message: object, *, idle_ms: int = 0) -> Iterator[object]:
        assert isinstance(message, channel.UserMessage)
        return self._events(message)


def run(events: Events) -> channel.TurnEnded:
    clock = HandClock()
    view = JsonView(FakeTerminal(terminal=False))
    session = message.new_session(clock)
    return TurnRun(Scripted(events), view, clock, session=session, new=True, wait_ms=0).run("hello")


def accepted(said: channel.UserMessage) -> channel.MessageAccepted:
    return channel.MessageAccepted(session=said.session, key=said.key, turn=1, queued=False, duplicate=False)


def test_a_turn_ends_with_its_turn_ended() -> None:
    def events(said: channel.UserMessage) -> Iterator[object]:
        yield accepted(said)
        yield loopd.ended("Hello.")

    assert run(events).text == "Hello."


def test_a_fault_of_any_kind_in_the_reading_thread_ends_the_wait_and_names_its_kind() -> None:
    def events(said: channel.UserMessage) -> Iterator[object]:
        yield accepted(said)
        raise ZeroDivisionError("a value that nobody should see")

    with pytest.raises(PeerUnclear, match=r"could not be read \(ZeroDivisionError\) \[peer_unclear\]$"):
        run(events)


def test_events_that_end_without_turn_ended_end_the_wait() -> None:
    def events(said: channel.UserMessage) -> Iterator[object]:
        yield accepted(said)
        yield loopd.text("Hel")

    with pytest.raises(PeerUnclear, match="before the turn had ended"):
        run(events)
