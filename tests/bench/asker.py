"""Asks a brokerd for tool calls as loopd does, with loopd's own client: a connection for each."""

from itertools import count
from pathlib import Path

from bxcore.deadline import SystemClock
from loopd.brokerport import Answer, Broker
from loopd.cancel import CancelToken
from tests.bench import manygrants
from tests.bench.sizes import Unmeasurable

TIMEOUT_MS = 30_000


class Asker:
    """One session, its calls numbered one after the other."""

    def __init__(self, broker_socket: Path) -> None:
        self._broker = Broker(socket=broker_socket, clock=SystemClock(), timeout_ms=TIMEOUT_MS)
        self._numbers = count(1)

    def read(self, path: str) -> Answer:
        """Ask to read one file."""
        request = manygrants.request(next(self._numbers), path)
        return self._broker.run(request, cancel=CancelToken(), on_pending=_not_expected)


def _not_expected(_: object) -> None:
    raise Unmeasurable("a call of the bench waits for an answer of the owner's")
