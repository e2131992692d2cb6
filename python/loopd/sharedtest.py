"""One self-test at a time, for all who ask while it runs; nobody's self-test is given up.

Threads: the test runs in a thread of its own, because whoever asked may leave before it ends; the
workers that asked wait for it. One lock guards the test that may be joined and how many wait for it.
"""

import threading
from collections.abc import Callable, Iterable, Sequence

from bxcore import logs
from loopd.cancel import CancelToken
from loopd.selftest import Check

log = logs.get("sharedtest")


class _Run:
    """One test under way. `waiting` is guarded by the lock of the SharedTest; the result is set before `ended`."""

    def __init__(self) -> None:
        self.cancel = CancelToken()
        self.waiting = 0
        self.ended = threading.Event()
        self.checks: Sequence[Check] = ()
        self.fault: Exception | None = None


class SharedTest:
    """Runs `test`, which takes its cancel token."""

    def __init__(self, test: Callable[[CancelToken], Iterable[Check]]) -> None:
        self._test = test
        self._lock = threading.Lock()
        self._current: _Run | None = None

    def checks(self, *, left: Callable[[], bool], look_seconds: float) -> Sequence[Check] | None:
        """Return the checks of the test under way, or of one begun now; None once `left` says that nobody waits here.

        Looks every `look_seconds`. Raises what the test raised.
        """
        run = self._join()
        try:
            while not run.ended.wait(look_seconds):
                if left():
                    return None
        finally:
            self._leave(run)
        if run.fault is not None:
            raise run.fault
        return run.checks

    def _join(self) -> _Run:
        with self._lock:
            if self._current is None:
                run = _Run()
                threading.Thread(target=self._work, args=(run,), name="shared-selftest", daemon=True).start()
                self._current = run
            self._current.waiting += 1
            return self._current

    def _leave(self, run: _Run) -> None:
        with self._lock:
            run.waiting -= 1
            if run.waiting:
                return
            if not run.ended.is_set():
                log.info("gave a self-test up: nobody waits for it")
            self._retire(run)  # whoever asks from now on must not join a test that is being given up
        run.cancel.cancel()

    def _work(self, run: _Run) -> None:
        try:
            run.checks = tuple(self._test(run.cancel))
        except Exception as fault:  # noqa: BLE001  # the thread's outermost frame: those who wait raise it
            run.fault = fault
        finally:
            with self._lock:
                self._retire(run)
            run.ended.set()

    def _retire(self, run: _Run) -> None:
        if self._current is run:
            self._current = None
