"""Ends this process, and what it started, the moment that brokerd is gone.

brokerd holds the other end of stdin for as long as the call may run; a thread waits for its end.
Threads: `holding` runs in the main thread, the wait in one of its own; the lock guards the set of
groups, so that none is started unseen while the end comes.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

EXIT = 2


class Started(Protocol):
    """A process that leads a group of its own."""

    pid: int


T = TypeVar("T", bound=Started)


class Leash:
    """Kills the process groups that it was told of, then this process, when `fd` says end of file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._groups: set[int] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._wait, name="leash", daemon=True).start()

    @contextmanager
    def holding(self, start: Callable[[], T]) -> Iterator[T]:
        """Start a process group and take it along as long as the block runs; kill what is left of it at its end."""
        with self._lock:
            started = start()
            self._groups.add(started.pid)
        try:
            yield started
        finally:
            kill(started.pid)
            with self._lock:
                self._groups.discard(started.pid)

    def _wait(self) -> None:
        try:
            while os.read(self._fd, 4096):
                pass  # nothing is expected here; whatever it is, brokerd is there
        except OSError:
            pass  # a descriptor that cannot be read leads to nobody either
        with self._lock:
            for group in self._groups:
                kill(group)
            # In the container this process is number 1: the kernel ends every other one with it.
            os._exit(EXIT)


def kill(group: int) -> None:
    """Kill a process group, which may be gone already."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass  # that is what was wanted
