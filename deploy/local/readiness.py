"""How a started process tells the launcher that it serves, and what it is doing until then.

Reads: a datagram socket that systemd's protocol names (`READY=1`, `STATUS=...`), or the first line of a
process's standard output. What a process says is shown, so it is made safe for a terminal here.
"""

import os
import socket
from pathlib import Path
from typing import Protocol

from bxcore import logs

_MAX_NOTICE_BYTES = 4096


class Readiness(Protocol):
    """One process's news."""

    ready: bool
    status: str

    def descriptors(self) -> tuple[int, ...]:
        """Return what to wait on for more; nothing where no more can come."""

    def read(self) -> None:
        """Take what has come, without waiting."""

    def close(self) -> None: ...


class NotifySocket:
    """The socket whose path a process finds in NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.ready = False
        self.status = ""
        self.path = path
        path.unlink(missing_ok=True)  # a killed launcher's; the lock of the home is ours
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(0)
        # Not in the abstract namespace: that one belongs to a network, and loopd has none.
        self._socket.bind(os.fspath(path))

    def descriptors(self) -> tuple[int, ...]:
        return (self._socket.fileno(),)

    def read(self) -> None:
        while True:
            try:
                untrusted = self._socket.recv(_MAX_NOTICE_BYTES)
            except BlockingIOError:
                return
            for line in untrusted.decode("utf-8", "replace").splitlines():
                if line == "READY=1":
                    self.ready = True
                elif line.startswith("STATUS="):
                    self.status = logs.escape(line.removeprefix("STATUS="))

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


class FirstLine:
    """The reading end of a process's standard output."""

    def __init__(self, descriptor: int) -> None:
        self.ready = False
        self.status = ""
        self._descriptor = descriptor
        self._ended = False
        os.set_blocking(descriptor, False)

    def descriptors(self) -> tuple[int, ...]:
        return () if self._ended else (self._descriptor,)

    def read(self) -> None:
        try:
            untrusted = os.read(self._descriptor, _MAX_NOTICE_BYTES)
        except BlockingIOError:
            return
        self._ended = not untrusted
        self.ready = self.ready or b"\n" in untrusted

    def close(self) -> None:
        os.close(self._descriptor)
