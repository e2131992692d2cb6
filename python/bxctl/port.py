"""A role's owner socket as bxctl asks it: one connection for each request, and errors worth reading.

Errors: UpstreamError where the role is away or refuses (the refusal's code is the role's).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from bxcore import client
from bxcore.deadline import Clock
from bxcore.errors import UpstreamError
from bxctl.sockets import Home

ANSWER_MS = 10_000
"""How long a role may take for the next frame of an answer that is not a turn."""

T = TypeVar("T")


class HomeMissing(UpstreamError):
    """Nobody can listen below a directory that does not exist."""

    code = "home_missing"


class Port:
    """One socket below the home directory. Safe to share: it keeps no connection."""

    only_with = ""
    """What has to be typed beside a launcher's name so that it starts the role."""

    def __init__(self, home: Home, socket: Path, clock: Clock) -> None:
        self._home = home
        self._socket = socket
        self._clock = clock

    def ask(self, message: object, *, idle_ms: int = ANSWER_MS) -> Iterator[object]:
        """Yield the messages of the answer, the final one last."""
        with self._connection() as connection:
            for envelope in connection.request(message, idle_ms=idle_ms):
                yield envelope.msg

    def one(self, message: object, answer: type[T], *, idle_ms: int = ANSWER_MS) -> T:
        """Return the answer of a request that has exactly one."""
        for received in self.ask(message, idle_ms=idle_ms):
            if isinstance(received, answer):
                return received
        raise UpstreamError(f"the answer on {self._socket.name} is not {answer.__name__}")

    def _connection(self) -> client.Connection:
        try:
            return client.Connection(self._socket, clock=self._clock)
        except (client.PeerAway, client.PeerDenied) as error:
            if isinstance(error, client.PeerAway) and not self._home.path.is_dir():
                raise HomeMissing(f"there is no directory {self._home.path}; is --home right?") from error
            # The code in brackets, which names the entry, follows every message of ours.
            words = error.detail.removesuffix(f"; see docs/runbook.md#{error.code}")
            if isinstance(error, client.PeerAway) and (start := self._home.starts) is not None:
                words += f"; {start}{self.only_with} starts it"
            raise type(error)(words) from error
