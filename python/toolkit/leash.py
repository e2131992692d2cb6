"""Ends this process, and what it started, the moment that brokerd is gone.

brokerd holds the other end of stdin for as long as the call may run; a thread waits for its end.
Threads: `holding` runs in the main thread, the wait in one of its own; what they share is the set of
groups, which is only ever added to and taken from.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EXIT = 2


class Leash:
    """Kills the process groups that it was told of, then this process, when `fd` says end of file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._groups: set[int] = set()

    def start(self) -> None:
        threading.Thread(target=self._wait, name="leash", daemon=True).start()

    @contextmanager
    def holding(self, group: int) -> Iterator[None]:
        """Take the process group along as long as the block runs, and kill what is left of it at its end."""
        self._groups.add(group)
        try:
            yield
        finally:
            kill(group)
            self._groups.discard(group)

    def _wait(self) -> None:
        try:
            while os.read(self._fd, 4096):
                pass  # nothing is expected here; whatever it is, brokerd is there
        except OSError:
            pass  # a descriptor that cannot be read leads to nobody either
        for group in tuple(self._groups):
            kill(group)
        # In the container this process is number 1: the kernel ends every other one with it.
        os._exit(EXIT)


def kill(group: int) -> None:
    """Kill a process group, which may be gone already."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass  # that is what was wanted
