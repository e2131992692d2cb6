"""A running turn is shown as typing again and again until it ends, and nothing that goes wrong with it matters."""

import threading

import attrs
import pytest

from bxcore.ids import MattermostId
from gatewayd.entries import OpenTurn
from gatewayd.faults import MattermostAway, MattermostBusy, MattermostDenied
from gatewayd.typingshown import Typing
from tests.fakes.clocks import HandClock
from tests.fakes.gatequeue import CHANNEL, turn
from tests.fakes.postbox import an_id

PATIENCE_MS = 30_000


class Server:
    """Notes what is shown. `raises` are its next failures."""

    def __init__(self) -> None:
        self.shown: list[tuple[MattermostId, MattermostId | None]] = []
        self.raises: list[Exception] = []
        self.closed = False
        self.came = threading.Semaphore(0)

    def typing(self, channel: MattermostId, parent: MattermostId | None) -> None:
        if self.raises:
            raise self.raises.pop(0)
        self.shown.append((channel, parent))
        self.came.release()

    def close(self) -> None:
        self.closed = True


@attrs.define(kw_only=True)
class Scene:
    server: Server
    clock: HandClock
    turns: list[OpenTurn]
    shown_ms: int
    typing: Typing

    def shown(self) -> list[MattermostId | None]:
        """Show what is due; return the threads that were shown."""
        before = len(self.server.shown)
        self.typing.show(self.server)
        assert all(channel == CHANNEL for channel, _ in self.server.shown)
        return [parent for _, parent in self.server.shown[before:]]


@pytest.fixture
def scene() -> Scene:
    server, clock, turns = Server(), HandClock(), list[OpenTurn]()
    scene = Scene(server=server, clock=clock, turns=turns, shown_ms=5_000, typing=None)  # type: ignore[arg-type]
    scene.typing = Typing(running=lambda: turns, api=lambda: server, clock=clock, shown_ms=lambda: scene.shown_ms)
    return scene


def test_a_first_turn_is_shown_in_its_thread_and_in_the_channel(scene: Scene) -> None:
    scene.turns.append(turn("root", first=True))
    assert scene.shown() == [an_id("root"), None]


def test_a_later_turn_is_shown_in_its_thread_alone(scene: Scene) -> None:
    scene.turns.append(turn("root", 2, first=False))
    assert scene.shown() == [an_id("root")]


def test_two_first_turns_share_the_line_of_their_channel(scene: Scene) -> None:
    scene.turns += [turn("a"), turn("b")]
    assert scene.shown() == [an_id("a"), None, an_id("b")]


@pytest.mark.parametrize(("shown_ms", "again_ms"), [(5_000, 4_000), (10_000, 9_000), (2_500, 2_000), (1, 2_000)])
def test_it_is_said_again_a_second_before_clients_forget_it_and_not_too_often(
    scene: Scene, shown_ms: int, again_ms: int
) -> None:
    scene.shown_ms = shown_ms
    scene.turns.append(turn("root", first=False))
    assert scene.typing.show(scene.server) == again_ms
    scene.clock.wind(again_ms - 1)
    assert scene.shown() == []
    assert scene.typing.show(scene.server) == 1
    scene.clock.wind(1)
    assert scene.shown() == [an_id("root")]


def test_a_turn_that_ended_is_not_shown_any_more_and_the_next_one_is_at_once(scene: Scene) -> None:
    scene.turns.append(turn("root", first=False))
    assert scene.shown() == [an_id("root")]
    scene.turns.clear()
    assert scene.typing.show(scene.server) is None
    scene.turns.append(turn("root", 2, first=False))
    assert scene.shown() == [an_id("root")]


def test_a_new_turn_is_shown_at_once_although_another_one_is_not_due(scene: Scene) -> None:
    scene.turns.append(turn("a", first=False))
    assert scene.shown() == [an_id("a")]
    scene.clock.wind(10)
    scene.turns.append(turn("b", first=False))
    assert scene.shown() == [an_id("b")]


def test_a_fault_is_nobodys_business(scene: Scene) -> None:
    scene.turns += [turn("a", first=False), turn("b", first=False)]
    scene.server.raises = [MattermostDenied("no", status=403), MattermostAway("gone")]
    assert scene.shown() == []
    scene.clock.wind(4_000)
    assert scene.shown() == [an_id("a"), an_id("b")]


def test_a_server_that_wants_fewer_requests_is_left_alone_so_long(scene: Scene) -> None:
    scene.turns += [turn("a", first=False), turn("b", first=False)]
    scene.server.raises = [MattermostBusy("slowly", status=429, retry_ms=7_000)]
    assert scene.typing.show(scene.server) == 7_000
    scene.clock.wind(6_999)
    assert scene.shown() == []
    scene.clock.wind(1)
    assert scene.shown() == [an_id("a"), an_id("b")]


def test_it_is_shown_when_it_is_woken_and_ends_when_it_is_told_to(scene: Scene) -> None:
    scene.typing.start()
    scene.turns.append(turn("root", first=False))
    scene.typing.wake()
    assert scene.server.came.acquire(timeout=PATIENCE_MS / 1000)
    scene.typing.stop()
    assert scene.typing.join(PATIENCE_MS)
    assert scene.server.closed


def test_what_nobody_foresaw_does_not_end_it(scene: Scene) -> None:
    scene.turns.append(turn("root", first=False))
    scene.server.raises = [ZeroDivisionError()]
    scene.typing.start()
    scene.typing.wake()
    scene.typing.wake()
    scene.clock.wind(10_000)
    while not scene.server.came.acquire(timeout=0.01):
        scene.typing.wake()
    scene.typing.stop()
    assert scene.typing.join(PATIENCE_MS)
