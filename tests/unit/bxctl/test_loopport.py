"""The wait for loopd: until ready, until the deadline, and not at all where no time mends it."""

from collections.abc import Callable

import pytest

from bxcore.client import PeerAway, PeerDenied, PeerUnclear
from bxcore.deadline import Deadline
from bxcore.errors import BoxmakerError
from bxcore.wire.channel import LoopStatusReport
from bxctl import loopport
from bxctl.loopport import LoopAway
from tests.fakes import loopd
from tests.fakes.clocks import HandClock


class Answers:
    """A port that gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: LoopStatusReport | BoxmakerError) -> None:
        self._answers = list(answers)

    def status(self) -> LoopStatusReport:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BoxmakerError):
            raise answer
        return answer


def wait(port: Answers, tell: Callable[[str], None]) -> LoopStatusReport:
    clock = HandClock()
    return loopport.wait_until_ready(
        port,
        Deadline.after(clock, milliseconds=2_000),
        tell=tell,
        pause=lambda seconds: clock.wind(round(seconds * 1000)),
    )


def test_each_reason_is_told_until_loopd_is_ready() -> None:
    told: list[str] = []
    port = Answers(PeerAway("nobody listens"), loopd.ready("the model\x1b"), loopd.ready())
    assert wait(port, told.append).ready
    assert told == ["nobody listens", "the model\\u{001B}"]


def test_the_wait_ends_at_its_deadline_with_the_last_reason() -> None:
    told: list[str] = []
    with pytest.raises(LoopAway, match="the model server"):
        wait(Answers(loopd.ready("the model server")), told.append)
    assert told == ["the model server"] * 4


@pytest.mark.parametrize("error", [PeerDenied("closed"), PeerUnclear("another version")], ids=lambda e: e.code)
def test_what_no_time_mends_is_not_waited_for(error: BoxmakerError) -> None:
    told: list[str] = []
    with pytest.raises(type(error)):
        wait(Answers(error), told.append)
    assert told == []
