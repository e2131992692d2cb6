"""A stream to a path on which everything together obeys one deadline, not each read for itself.

A socket's own timeout starts anew with each read, so a peer that sends a byte now and then could hold the reader for
ever; what reads through `makefile`, as http.client does, is held like any other. Belongs to one thread at a time.
"""

import socket
from pathlib import Path
from typing import Any

from bxcore.deadline import Deadline


class TimedSocket(socket.socket):
    """Raises TimeoutError where the deadline has passed, however much came by then; without one it only waits."""

    deadline: Deadline | None = None

    @classmethod
    def connected(cls, path: Path, deadline: Deadline) -> "TimedSocket":
        """Return a connection to the socket at `path`. Raises OSError."""
        made = cls(socket.AF_UNIX, socket.SOCK_STREAM)
        made.deadline = deadline
        try:
            made._arm()
            made.connect(str(path))
        except OSError:
            made.close()
            raise
        return made

    def release(self) -> None:
        """From now on no deadline holds; the one who reads has another way to end it."""
        self.deadline = None
        self.settimeout(None)

    def recv(self, *given: Any, **named: Any) -> bytes:
        self._arm()
        return super().recv(*given, **named)

    def recv_into(self, *given: Any, **named: Any) -> int:
        self._arm()
        return super().recv_into(*given, **named)

    def sendall(self, *given: Any, **named: Any) -> None:
        self._arm()  # for the whole of it: the one call whose timeout does not start anew
        super().sendall(*given, **named)

    def _arm(self) -> None:
        if self.deadline is None:
            return
        left = self.deadline.remaining_ms()
        if not left:
            raise TimeoutError("the deadline has passed")
        self.settimeout(left / 1000)
