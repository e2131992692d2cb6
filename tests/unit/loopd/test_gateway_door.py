"""What gatewayd may ask of loopd: a part of the protocol, in its own sessions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.ids import SessionId
from bxcore.wire import channel as wire
from tests.fakes.loop import Loop
from tests.fakes.served import Served, said

OWN, OTHERS = "mm-4xp9fdt77pncbef59f4k1qe83o", "20261130-101500-ab12"


@pytest.fixture
def served(directory: Path, tmp_path: Path) -> Iterator[Served]:
    made = Served(directory, Loop(tmp_path), gateway=True)
    yield made
    made.close()


def test_its_own_sessions_are_spoken_in_and_followed(served: Served) -> None:
    assert isinstance(served.say("Hi", session=OWN)[-1], wire.TurnEnded)
    assert isinstance(served.ask(wire.TurnFollow(session=SessionId(OWN), turn=1))[-1], wire.TurnEnded)
    assert served.ask(wire.TurnCancel(session=SessionId(OWN), turn=0))[0].turn is None
    assert served.ask(wire.LoopStatus())[0].ready


@pytest.mark.parametrize(
    "message",
    [
        said("Hi", session=OTHERS),
        wire.TurnFollow(session=SessionId(OTHERS), turn=1),
        wire.TurnCancel(session=SessionId(OTHERS), turn=0),
        wire.SessionShow(session=SessionId(OWN)),
        wire.SessionList(limit=5),
        wire.CacheReport(session=SessionId(OWN)),
        wire.SelfTest(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_others_said_is_not_for_it(served: Served, message: object) -> None:
    assert served.refused(message).code == "forbidden"
