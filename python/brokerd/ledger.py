"""One lock over what must agree: the audit log and the sessions' labels.

Invariant: labels are read, judged by and recorded, or raised and recorded, without another call in between.
While the ledger is held nothing is run, asked or sent. Threads: any; `held` waits. What a Book gives is
for the `with` block alone.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from brokerd.call import Labels
from brokerd.sessionstate import of_records
from bxcore.auditlog import Kind, Make, Record
from bxcore.chain import Head
from bxcore.errors import StateError
from bxcore.ids import SessionId


class Audit(Protocol):
    """What the path asks of brokerd.audit."""

    @property
    def broken(self) -> bool: ...
    @property
    def head(self) -> Head: ...
    def append(self, make: Make[Kind]) -> Kind: ...
    def records(self, *, after: int = 0) -> Iterator[Record]: ...
    def find(self, seq: int) -> Record | None: ...


class States(Protocol):
    """What the path asks of brokerd.sessionstate."""

    def labels(self, session: SessionId) -> Labels: ...
    def raise_to(self, session: SessionId, result: Labels) -> Labels: ...
    def rebuild(self, session: SessionId, records: Iterable[Record], *, floor: Labels) -> Labels: ...


class Book:
    """The ledger while it is held."""

    def __init__(self, audit: Audit, states: States) -> None:
        self._audit = audit
        self._states = states

    def append(self, make: Make[Kind]) -> Kind:
        """Record, durable when it returns. Raises StateError; after a first failure for ever."""
        return self._audit.append(make)

    def labels(self, session: SessionId) -> Labels:
        """Return the session's labels. Raises StateError where they cannot be read."""
        return self._states.labels(session)

    def labels_or(self, session: SessionId, otherwise: Labels) -> Labels:
        """Return the session's labels, or `otherwise` where they cannot be read."""
        try:
            return self._states.labels(session)
        except StateError:
            return otherwise

    def raise_to(self, session: SessionId, result: Labels) -> Labels:
        """Join `result` to the session's labels, durable when it returns; return what they are now. StateError."""
        return self._states.raise_to(session, result)


class Ledger:
    """Holds the lock. `broken`, `head` and `find` need none: they look at what is already recorded."""

    def __init__(self, audit: Audit, states: States) -> None:
        self._audit = audit
        self._states = states
        self._book = Book(audit, states)
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[Book]:
        """Hold the ledger."""
        with self._lock:
            yield self._book

    @property
    def broken(self) -> bool:
        """Whether nothing can be recorded any more until a restart."""
        return self._audit.broken

    @property
    def head(self) -> Head:
        """The last record, by number and hash."""
        return self._audit.head

    def find(self, seq: int) -> Record | None:
        """Return the record of that number, None where there is none. Raises StateError."""
        return self._audit.find(seq)

    def rebuild(self, session: SessionId) -> Labels:
        """Compute a session's labels again from the whole log; never lower than what can be read of them. StateError.

        A long log takes a while, so the ledger is held only for what was recorded meanwhile.
        """
        seen = self._audit.head.seq
        floor = of_records(session, self._audit.records())
        with self._lock:
            return self._states.rebuild(session, self._audit.records(after=seen), floor=floor)
