"""Time: Unix milliseconds inside, exactly `YYYY-MM-DDTHH:MM:SS.mmmZ` outside. Standard library only."""

import re
from datetime import UTC, datetime, timedelta
from typing import NewType

Timestamp = NewType("Timestamp", int)
"""Unix milliseconds, 0 (1970) to 253402300799999 (the end of 9999). On the wire: the text form."""

MAX_TIMESTAMP = 253_402_300_799_999
DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z", re.ASCII)


def to_text(when: Timestamp) -> str:
    """Return the 24-character text form. Raises ValueError outside the range."""
    if not 0 <= when <= MAX_TIMESTAMP:
        raise ValueError("time lies outside the years 1970 to 9999")
    moment = _EPOCH + timedelta(milliseconds=when)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def from_text(text: object) -> Timestamp:
    """Return the time that `text` spells, or raise ValueError; only the one canonical form is read."""
    if type(text) is not str or not _FORM.fullmatch(text):
        raise ValueError("expected a time of the form YYYY-MM-DDTHH:MM:SS.mmmZ")
    moment = datetime.fromisoformat(text.removesuffix("Z") + "+00:00")  # refuses 2026-02-30
    if moment < _EPOCH:
        raise ValueError("time lies before 1970")
    return Timestamp((moment - _EPOCH) // timedelta(milliseconds=1))
