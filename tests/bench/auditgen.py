"""Writes audit logs of any size quickly: calls of three records each, as brokerd would have stored them."""

from collections.abc import Iterator
from datetime import date, timedelta
from hashlib import sha256
from itertools import islice
from pathlib import Path

from bxcore import auditlog
from bxcore.chain import GENESIS
from tests.fakes.audited import NOON, Make, decided, ended, started

FIRST_DAY = date(2026, 1, 1)
_PLACEHOLDER = 7_777_777_777_777_777
_BATCH = 10_000


def write(directory: Path, *, files: int, records: int) -> None:
    """Write about `records` records into `files` files of consecutive days."""
    directory.mkdir(mode=0o700)
    lines = _lines()
    for number in range(files):
        path = directory / auditlog.file_name(FIRST_DAY + timedelta(days=number))
        path.touch(mode=0o600)
        with path.open("wb") as file:
            left = records // files
            while left > 0:
                file.writelines(islice(lines, min(left, _BATCH)))
                left -= _BATCH


def _lines() -> Iterator[bytes]:
    templates = [_template(make) for make in (decided(), started(_PLACEHOLDER), ended(_PLACEHOLDER))]
    seq, prev = 1, GENESIS.encode()
    while True:
        first = seq
        for template, numbered in zip(templates, (False, True, True), strict=True):
            line = template % ((seq, prev, first) if numbered else (seq, prev))
            yield line + b"\n"
            seq, prev = seq + 1, sha256(line).hexdigest().encode()


def _template(make: Make) -> bytes:
    line = auditlog.encode(make(_PLACEHOLDER, NOON, GENESIS)).replace(b"%", b"%%")
    return line.replace(b"%d" % _PLACEHOLDER, b"%d").replace(GENESIS.encode(), b"%b", 1)
