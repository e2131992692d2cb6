"""Which calls were taken on: a call that is sent a second time is refused, whatever became of the first.

loopd numbers the calls of a session upwards, so of each session the last few numbers and the highest one
below them say it all: memory stays small however long a session grows. Known are the SESSIONS sessions that
spoke last, from before a restart those in the end of the log. A guard against a request that is sent twice; one
that gets past it is a new call, decided and asked about like any other. Threads: any.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from bxcore.auditlog import Decided, Record
from bxcore.ids import CallId, SessionId

WINDOW = 32
"""So many numbers of a session may come out of order; a lower one counts as taken."""

SESSIONS = 1_024
"""So many sessions are remembered, those that spoke last."""


class _Taken:
    def __init__(self) -> None:
        self.floor = 0
        self.numbers: set[int] = set()

    def add(self, number: int) -> bool:
        if number <= self.floor or number in self.numbers:
            return False
        self.numbers.add(number)
        if len(self.numbers) > WINDOW:
            self.floor = min(self.numbers)
            self.numbers.remove(self.floor)
        return True


class Claims:
    """The table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[SessionId, _Taken] = OrderedDict()

    def take(self, session: SessionId, call: CallId) -> bool:
        """Take the call on; say no where it was taken before."""
        with self._lock:
            taken = self._sessions.setdefault(session, _Taken())
            self._sessions.move_to_end(session)
            if len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
            return taken.add(call)

    def learn(self, records: Iterable[Record]) -> None:
        """Take on what a log says was decided before a restart."""
        for record in records:
            if isinstance(record, Decided):
                self.take(record.session, record.call)
