"""When waiting ends and what is said meanwhile, on a clock that only the test moves."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from bxcore.deadline import Deadline
from bxcore.errors import UpstreamError
from bxcore.wire.channel import WaitReason
from loopd.modelfaults import ModelLoading, ServerSilent, SlotBusy
from loopd.waits import Liveness, Look, Patience, Queue, Until, Waits
from tests.fakes.clocks import HandClock

WAITS = Waits(slot_ms=60_000, load_ms=20_000, liveness_ms=5_000, connect_ms=1_000)


class Waiting:
    """A queue watch, and a wait that goes on without a byte until the watch gives up."""

    def __init__(self, look: Callable[[int], Look]) -> None:
        """`look` gets the milliseconds waited so far."""
        self.clock, self.looked_at, self.told = HandClock(), list[int](), list[tuple[WaitReason, int, int]]()
        self._began = self.clock.monotonic_ms()
        self._look = look
        self.watch = Queue(self.clock, WAITS, look=self._note, on_wait=lambda *said: self.told.append(said))

    def _note(self) -> Look:
        waited = self.clock.monotonic_ms() - self._began
        self.looked_at.append(waited)
        return self._look(waited)

    def until_given_up(self) -> tuple[UpstreamError, int]:
        """Return the fault, and after how many milliseconds it came."""
        self.watch.begin()
        for _ in range(10_000):
            self.clock.wind(self.watch.remaining_ms())
            try:
                self.watch.expired()
            except UpstreamError as fault:
                return fault, self.clock.monotonic_ms() - self._began
        raise AssertionError("it waits for ever")


def test_a_busy_slot_is_waited_for_until_its_limit() -> None:
    fault, waited = Waiting(lambda _: Look.BUSY).until_given_up()
    assert isinstance(fault, SlotBusy)
    assert waited == WAITS.slot_ms


def test_a_free_slot_without_an_answer_is_a_silent_server() -> None:
    fault, waited = Waiting(lambda _: Look.FREE).until_given_up()
    assert isinstance(fault, ServerSilent)
    assert WAITS.load_ms <= waited < WAITS.load_ms + 2_000


def test_a_slot_that_frees_late_is_given_the_time_of_a_model_load_from_then_on() -> None:
    fault, waited = Waiting(lambda waited: Look.BUSY if waited < 30_000 else Look.FREE).until_given_up()
    assert isinstance(fault, ServerSilent)
    assert 30_000 + WAITS.load_ms <= waited < 30_000 + WAITS.load_ms + 4_000


def test_a_slot_that_changes_hands_holds_us_no_longer_than_the_limit() -> None:
    fault, waited = Waiting(lambda waited: Look.FREE if waited // 2_000 % 2 else Look.BUSY).until_given_up()
    assert isinstance(fault, SlotBusy | ServerSilent)
    assert waited <= WAITS.slot_ms + WAITS.liveness_ms


def test_a_loading_model_is_waited_for_until_its_own_limit() -> None:
    fault, waited = Waiting(lambda _: Look.LOADING).until_given_up()
    assert isinstance(fault, ModelLoading)
    assert WAITS.load_ms <= waited < WAITS.load_ms + 2_000


def test_a_server_that_answers_no_look_is_believed_what_it_said_last() -> None:
    fault, _ = Waiting(lambda waited: Look.BUSY if waited < 1_000 else Look.UNKNOWN).until_given_up()
    assert isinstance(fault, SlotBusy)


def test_a_server_that_never_answers_a_look_is_silent() -> None:
    fault, waited = Waiting(lambda _: Look.UNKNOWN).until_given_up()
    assert isinstance(fault, ServerSilent)
    assert waited == WAITS.slot_ms


def test_the_slots_are_looked_at_every_two_seconds_at_most() -> None:
    waiting = Waiting(lambda _: Look.BUSY)
    waiting.until_given_up()
    gaps = [after - before for before, after in pairwise(waiting.looked_at)]
    assert waiting.looked_at[0] <= 500
    assert min(gaps) >= 2_000


def test_the_owner_hears_at_least_every_two_seconds_why() -> None:
    waiting = Waiting(lambda waited: Look.BUSY if waited < 3_000 else Look.LOADING)
    waiting.until_given_up()
    times = [waited for _, waited, _ in waiting.told]
    assert times[0] <= 500
    assert max(after - before for before, after in pairwise(times)) <= 2_000
    assert (waiting.told[0][0], waiting.told[0][2]) == (WaitReason.SLOT_BUSY, WAITS.slot_ms)
    assert (waiting.told[-1][0], waiting.told[-1][2]) == (WaitReason.MODEL_LOADING, WAITS.load_ms)


def test_liveness_starts_anew_with_each_wait() -> None:
    clock = HandClock()
    watch = Liveness(clock, limit_ms=5_000, stall_ms=60_000)
    clock.wind(4_000)
    assert watch.remaining_ms() == 1_000
    watch.begin()
    assert watch.remaining_ms() == 5_000
    with pytest.raises(ServerSilent, match="5000 ms"):
        watch.expired()


def test_a_deadline_is_not_moved_by_a_byte() -> None:
    clock, fault = HandClock(), ServerSilent("too late")
    watch = Until(Deadline.after(clock, milliseconds=5_000), fault)
    clock.wind(4_000)
    watch.begin()
    assert watch.remaining_ms() == 1_000
    with pytest.raises(ServerSilent, match="too late"):
        watch.expired()


def test_patience_is_never_filled_up_again() -> None:
    clock, fault = HandClock(), ServerSilent("no more")
    patience = Patience(clock, limit_ms=1_000)
    for left in (1_000, 600, 200):
        with patience.spent(fault) as left_ms:
            assert left_ms == left
            clock.wind(400)
        clock.wind(5_000)  # spent on something else
    assert patience.spent_ms == 1_200
    with pytest.raises(ServerSilent, match="no more"), patience.spent(fault):
        raise AssertionError("there is none left")


def test_pings_alone_keep_nobody_waiting_for_ever() -> None:
    clock = HandClock()
    watch = Liveness(clock, limit_ms=5_000, stall_ms=60_000)
    for _ in range(14):
        clock.wind(4_000)
        watch.begin()  # a ping came
    assert watch.remaining_ms() == 4_000
    watch.moved()
    watch.begin()
    assert watch.remaining_ms() == 5_000
    clock.wind(60_000)
    with pytest.raises(ServerSilent, match="nothing but pings for 60000 ms"):
        watch.expired()
