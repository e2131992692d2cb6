"""Stopping a turn from another thread, at once, whatever it is waiting for.

Invariant: after `cancel()` returns, every wait that watches the token has been woken.
Threads: any thread may cancel; the lock guards the flag and the set of wake descriptors, and is
held only for system calls that cannot block.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from loopd.modelfaults import Cancelled


class CancelToken:
    """One turn's stop button. It never comes back up."""

    def __init__(self) -> None:
        # Re-entrant: a signal handler may cancel while its own thread is inside.
        self._lock = threading.RLock()
        self._wakers: set[int] = set()
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Say whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop whoever watches this token, now and from now on. Harmless to repeat."""
        with self._lock:
            self._cancelled = True
            for waker in self._wakers:
                _ring(waker)

    def check(self) -> None:
        """Raise Cancelled once `cancel` was called."""
        if self._cancelled:
            raise Cancelled("stopped on request")

    @contextmanager
    def waking(self) -> Iterator[int]:
        """Lend a descriptor that becomes readable, and stays so, when the token is cancelled."""
        waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with self._lock:
            self._wakers.add(waker)
            if self._cancelled:
                _ring(waker)
        try:
            yield waker
        finally:
            # Under the lock: cancel() must not write to a number that means another file by then.
            with self._lock:
                self._wakers.discard(waker)
                os.close(waker)


def _ring(waker: int) -> None:
    with suppress(BlockingIOError):  # the counter is full: it was rung already
        os.eventfd_write(waker, 1)
