"""What the records of one call tell."""

from collections.abc import Iterable

from brokerd.callstate import CallState, Progress
from bxcore.auditlog import Record


def state_after(records: Iterable[Record]) -> CallState:
    """Return where a call is, from its records in order. Raises IllegalMove where they tell no such story."""
    progress = Progress()
    for record in records:
        progress.recorded(record)
    return progress.state
