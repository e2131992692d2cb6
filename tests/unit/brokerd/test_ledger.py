"""A session's labels computed again: no call waits for a long log, and nothing that came meanwhile is lost."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerd import entries
from brokerd.call import FRESH, UNREADABLE, Labels
from brokerd.entries import CameBack
from brokerd.ledger import Ledger
from bxcore.auditlog import Record, RunEnding
from bxcore.ids import SessionId
from bxcore.wire.tools import DataClass, ToolResult
from tests.fakes.brokered import Brokered

S = SessionId("s")
SECRET = Labels(data_class=DataClass.SECRET, untrusted=True)


@pytest.fixture
def brokered(tmp_path: Path) -> Iterator[Brokered]:
    made = Brokered(tmp_path)
    yield made
    made.close()


class Meanwhile:
    """The audit log, in which something happens when it has been read to its end for the first time."""

    def __init__(self, brokered: Brokered, happens: Callable[[], None]) -> None:
        self._audit, self._happens = brokered.audit, happens
        self.read: list[tuple[int, int]] = []
        """Of each reading: behind which record, and how many there were."""

    def records(self, *, after: int = 0) -> Iterator[Record]:
        count = 0
        for record in self._audit.records(after=after):
            count += 1
            yield record
        if not self.read:
            self._happens()
        self.read.append((after, count))

    def __getattr__(self, name: str) -> object:
        return getattr(self._audit, name)


def test_what_is_recorded_while_a_long_log_is_read_counts_too(brokered: Brokered) -> None:
    brokered.grant(more="untrusted = false")
    assert isinstance(brokered.ask(), ToolResult)
    damaged = brokered.state / "sessions" / "s.json"
    damaged.write_text("{}")
    back = CameBack(ending=RunEnding.UNKNOWN, labels=SECRET)

    def comes_back() -> None:
        with ledger.held() as book:  # would never be had, were it held all the while
            book.append(entries.ended(1, S, back, UNREADABLE))

    log = Meanwhile(brokered, comes_back)
    ledger = Ledger(log, brokered.states)  # type: ignore[arg-type]
    assert ledger.rebuild(S) == SECRET
    assert brokered.states.labels(S) == SECRET
    assert log.read == [(0, 3), (3, 1)]


def test_a_session_that_nothing_came_back_to_stays_fresh(brokered: Brokered) -> None:
    brokered.grant(more='result_class = "secret"')
    brokered.ask(brokered.request(session="other"))
    assert brokered.ledger.rebuild(S) == FRESH
