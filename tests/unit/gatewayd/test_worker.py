"""A thread that works when it is woken, and again after a rest."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from gatewayd.worker import UNTIL_WOKEN, AskingWorker, Rest, Worker

PATIENCE_MS = 30_000


class Counted(Worker):
    """Rests as it is told, and says when a round begins."""

    def __init__(self, *rests: Rest) -> None:
        super().__init__("counted")
        self.rests = list(rests)
        self.began = threading.Semaphore(0)
        self.open = 0

    def _work(self) -> Rest:
        self.began.release()
        return self.rests.pop(0) if self.rests else UNTIL_WOKEN

    def _held(self) -> AbstractContextManager[object]:
        return self._opened()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        self.open += 1
        yield
        self.open -= 1

    def rounds(self, count: int) -> bool:
        return all(self.began.acquire(timeout=PATIENCE_MS / 1000) for _ in range(count))


def ended(worker: Worker) -> None:
    worker.stop()
    assert worker.join(PATIENCE_MS)


def test_it_works_at_its_start_when_it_is_woken_and_after_a_rest() -> None:
    worker = Counted(UNTIL_WOKEN, Rest(ms=1), UNTIL_WOKEN)
    worker.start()
    assert worker.rounds(1)
    worker.wake()
    assert worker.rounds(2)
    ended(worker)


def test_a_wake_during_a_round_is_another_round() -> None:
    class WokenOnce(Counted):
        def _work(self) -> Rest:
            if self.rests:
                self.wake()
            return super()._work()

    worker = WokenOnce(UNTIL_WOKEN)
    worker.start()
    assert worker.rounds(2)
    ended(worker)


@pytest.mark.parametrize("rest", [UNTIL_WOKEN, Rest(ms=PATIENCE_MS), Rest(ms=PATIENCE_MS, deaf=True)])
def test_a_stop_ends_any_rest_and_gives_back_what_is_held(rest: Rest) -> None:
    worker = Counted(rest)
    worker.start()
    assert worker.rounds(1)
    ended(worker)
    assert worker.open == 0


def test_a_deaf_rest_is_not_shortened_by_a_wake() -> None:
    worker = Counted(Rest(ms=PATIENCE_MS, deaf=True))
    worker.start()
    assert worker.rounds(1)
    worker.wake()
    assert not worker.began.acquire(timeout=0.05)
    ended(worker)


def test_what_was_stopped_before_its_start_never_works() -> None:
    worker = Counted()
    assert worker.join(PATIENCE_MS)
    worker.stop()
    worker.start()
    assert worker.join(PATIENCE_MS)
    assert not worker.began.acquire(blocking=False)


class Line:
    """A way to the server on which a call hangs until it is closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


class Asking(AskingWorker[Line]):
    def __init__(self) -> None:
        self.line = Line()
        self.asks = threading.Event()
        super().__init__("asking", lambda: self.line)

    def _ask(self, server: Line) -> Rest:
        self.asks.set()
        server.closed.wait()
        return UNTIL_WOKEN


def test_a_stop_ends_a_call_that_is_under_way() -> None:
    worker = Asking()
    worker.start()
    assert worker.asks.wait(PATIENCE_MS / 1000)
    ended(worker)


def test_the_way_to_the_server_is_closed_where_no_call_was_under_way() -> None:
    worker = Asking()
    worker.stop()
    worker.start()
    assert worker.join(PATIENCE_MS)
    assert worker.line.closed.is_set()
    assert not worker.asks.is_set()
