"""A self-test that many ask for runs once, and not at all where nobody is left who asked."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from loopd.cancel import CancelToken
from loopd.modelfaults import ServerAway
from loopd.selftest import Check
from loopd.sharedtest import SharedTest

PATIENCE_SECONDS = 30
LOOK_SECONDS = 0.01
PASSED = Check(name="server", passed=True, expected="a", found="a", runbook="server_away")


class Slow:
    """A test that runs until `go`, or until it is cancelled."""

    def __init__(self) -> None:
        self.runs: list[CancelToken] = []
        self.began = threading.Semaphore(0)
        self.go = threading.Event()
        self.fault: Exception | None = None

    def __call__(self, cancel: CancelToken) -> Iterator[Check]:
        self.runs.append(cancel)
        self.began.release()
        while not self.go.wait(LOOK_SECONDS):
            cancel.check()
        if self.fault is not None:
            raise self.fault
        yield PASSED


class Asker:
    """Asks in a thread; `leave` makes its client go."""

    def __init__(self, shared: SharedTest) -> None:
        self.gone = threading.Event()
        self.looked = threading.Event()
        self.told: Sequence[Check] | None = ()
        self.fault: Exception | None = None
        self._thread = threading.Thread(target=self._ask, args=(shared,))
        self._thread.start()

    def _ask(self, shared: SharedTest) -> None:
        try:
            self.told = shared.checks(left=self._left, look_seconds=LOOK_SECONDS)
        except ServerAway as fault:
            self.fault = fault

    def _left(self) -> bool:
        self.looked.set()
        return self.gone.is_set()

    def waits(self) -> "Asker":
        assert self.looked.wait(PATIENCE_SECONDS)
        return self

    def leave(self) -> None:
        self.gone.set()
        self.end()
        assert self.told is None

    def end(self) -> "Asker":
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        return self


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.go.set()


def test_all_who_ask_meanwhile_hear_the_same_run(slow: Slow) -> None:
    shared = SharedTest(slow)
    askers = [Asker(shared).waits() for _ in range(5)]
    slow.go.set()
    assert [asker.end().told for asker in askers] == [(PASSED,)] * 5
    assert len(slow.runs) == 1


def test_whoever_asks_after_the_end_gets_a_new_run(slow: Slow) -> None:
    slow.go.set()
    shared = SharedTest(slow)
    assert Asker(shared).end().told == Asker(shared).end().told == (PASSED,)
    assert len(slow.runs) == 2


def test_one_who_leaves_ends_nothing_for_those_who_stay(slow: Slow) -> None:
    shared = SharedTest(slow)
    first, second = Asker(shared).waits(), Asker(shared).waits()
    first.leave()
    assert not slow.runs[0].cancelled
    slow.go.set()
    assert second.end().told == (PASSED,)


def test_the_last_who_leaves_cancels_it_and_the_next_begins_another(slow: Slow) -> None:
    shared = SharedTest(slow)
    for asker in [Asker(shared).waits() for _ in range(3)]:
        asker.leave()
    assert slow.runs[0].cancelled
    late = Asker(shared).waits()
    assert slow.began.acquire(timeout=PATIENCE_SECONDS)
    assert slow.began.acquire(timeout=PATIENCE_SECONDS)
    slow.go.set()
    assert late.end().told == (PASSED,)
    assert [run.cancelled for run in slow.runs][:1] == [True]
    assert len(slow.runs) == 2


def test_a_fault_reaches_everybody_who_waits_and_the_next_run_is_a_new_one(slow: Slow) -> None:
    slow.fault = ServerAway("nobody serves infer.sock")
    shared = SharedTest(slow)
    askers = [Asker(shared).waits() for _ in range(2)]
    slow.go.set()
    assert [asker.end().fault for asker in askers] == [slow.fault] * 2
    slow.fault = None
    assert Asker(shared).end().told == (PASSED,)


def test_without_a_thread_the_asker_is_told_and_the_next_may_ask_again(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedTest(slow)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            shared.checks(left=lambda: False, look_seconds=LOOK_SECONDS)
    slow.go.set()
    assert shared.checks(left=lambda: False, look_seconds=LOOK_SECONDS) == (PASSED,)


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
