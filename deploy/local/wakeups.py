"""Waiting, with signals as one more thing that can be read.

No signal interrupts the launcher half way through a start or a stop: a handler only leaves a byte, and
whoever waits next takes it. Threads: the main one, as Python demands of signal handlers.
"""

import select
import signal
import socket
from collections.abc import Sequence
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
FROM_KEYBOARD = frozenset({signal.SIGINT, signal.SIGQUIT})


class Interrupted(Exception):
    """A signal told the launcher to end."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


class ServiceEnded(Interrupted):
    """A signal told the launcher to end, where nothing else would: all went as it should."""


class Wakeups:
    """A context in which ENDING signals are collected, and the end of a child ends a wait."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.settimeout(0)
        self._write.settimeout(0)

    def __enter__(self) -> "Wakeups":
        for number in (*ENDING, signal.SIGCHLD):
            # What was ignored stays ignored: somebody said nohup, or started us in the background.
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _leave_a_byte)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        self._read.close()
        self._write.close()

    def wait(self, seconds: float | None, descriptors: Sequence[int] = ()) -> tuple[signal.Signals, ...]:
        """Return the ENDING signals that came, after the time, a signal, or something to read, whichever is first."""
        poll = select.poll()
        for descriptor in (self._read.fileno(), *descriptors):
            poll.register(descriptor, select.POLLIN)
        poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        try:
            numbers = self._read.recv(4096)
        except BlockingIOError:
            return ()
        return tuple(signal.Signals(number) for number in numbers if number in ENDING)


def _leave_a_byte(_number: int, _frame: FrameType | None) -> None:
    """Exist, so that Python writes the byte of this signal to the wakeup descriptor."""
