"""Who is denied very often waits for the answers, and fills the disk with no more than so much a second."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd.pace import PIECE_BYTES, SECONDS_OF_BURST, Pace
from bxcore import strictjson
from bxcore.auditlog import Decided
from bxcore.wire.admin import Verdict
from bxcore.wire.tools import DenyReason, ToolDenied, ToolResult
from tests.fakes.brokered import Brokered, Peer
from tests.fakes.clocks import HandClock

RATE = 20
LONG_MS = 86_400_000


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_a_burst_waits_for_nothing_and_what_comes_after_it_for_its_turn(clock: HandClock) -> None:
    pace = Pace(clock, per_second=RATE)
    assert [pace.take(0) for _ in range(RATE * SECONDS_OF_BURST)] == [0] * 100
    assert [pace.take(0) for _ in range(3)] == [50, 100, 150]
    clock.wind(150)
    assert pace.take(0) == 50
    clock.wind(LONG_MS)
    assert [pace.take(0) for _ in range(101)] == [0] * 100 + [50]


def test_a_long_request_counts_for_more(clock: HandClock) -> None:
    pace = Pace(clock, per_second=1)
    assert pace.take(PIECE_BYTES - 1) == 0
    assert pace.take(3 * PIECE_BYTES) == 0
    assert pace.take(PIECE_BYTES) == 2_000


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 300_000)), max_size=60), st.integers(1, 50))
def test_who_waits_as_told_never_gets_more_than_the_burst_and_the_rate(
    requests: list[tuple[int, int]], rate: int
) -> None:
    clock = HandClock()
    pace, began, taken = Pace(clock, per_second=rate), clock.monotonic_ms(), 0
    for pause, size in requests:
        clock.wind(pause)
        clock.wind(pace.take(size))
        taken += 1 + size // PIECE_BYTES
        assert taken * 1000 <= (SECONDS_OF_BURST * 1000 + clock.monotonic_ms() - began) * rate


# -- on the path --------------------------------------------------------------------------------


class Stern(Pace):
    """Lets nobody go on by himself."""

    def __init__(self) -> None:
        super().__init__(HandClock(), per_second=1)
        self.asked: list[int] = []
        self.waits = threading.Event()

    def take(self, size_bytes: int) -> int:
        self.asked.append(size_bytes)
        self.waits.set()
        return LONG_MS


@pytest.fixture
def stern() -> Stern:
    return Stern()


@pytest.fixture
def brokered(tmp_path: Path, stern: Stern) -> Iterator[Brokered]:
    made = Brokered(tmp_path, pace=stern)
    made.grant()
    yield made
    made.close()


@pytest.mark.parametrize("gone", [False, True], ids=["stays", "leaves"])
def test_a_denied_call_is_on_record_and_its_answer_waits_also_where_the_asker_leaves(
    brokered: Brokered, stern: Stern, gone: bool
) -> None:
    request, peer = brokered.request(path="/etc/passwd"), Peer()
    with brokered.asking(request, peer) as asking:
        assert stern.waits.wait(60)
        if gone:
            peer.gone.set()
        [decided] = brokered.records()
        assert isinstance(decided, Decided)
        assert decided.verdict is Verdict.DENIED
        assert asking._answers == []
        assert isinstance(brokered.ask(), ToolResult)  # what is granted waits for nobody
        brokered.broker.stop()
        assert asking.answer() == ToolDenied(reason=DenyReason.NO_GRANT, detail="nothing covers this call")
    assert stern.asked == [len(strictjson.dumps(request.arguments))]


def test_a_granted_call_that_nobody_waits_for_costs_as_much(brokered: Brokered, stern: Stern) -> None:
    """It leaves two records and starts nothing."""
    peer = Peer()
    peer.gone.set()
    with brokered.asking(peer=peer) as asking:
        assert stern.waits.wait(60)
        brokered.broker.stop()
        assert isinstance(asking.answer(), ToolDenied)
    assert len(brokered.records()) == 2
