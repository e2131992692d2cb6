"""The head outside the log: two slots, one of which is always whole."""

import pytest

from bxcore import audithead
from bxcore.chain import START, Head
from tests.fakes.audited import SOME

FIVE, SIX = Head(seq=5, hash=SOME), Head(seq=6, hash=SOME)


def content(*heads: Head) -> bytes:
    file = bytearray(2 * audithead.LENGTH)
    for head in heads:
        offset, line = audithead.slot(head)
        file[offset : offset + len(line)] = line
    return bytes(file)


def test_the_newer_head_counts() -> None:
    assert audithead.read(content(FIVE)) == FIVE
    assert audithead.read(content(FIVE, SIX)) == SIX
    assert audithead.read(content(SIX, FIVE)) == SIX
    assert audithead.read(content(START)) == START


def test_two_heads_in_a_row_never_share_a_slot() -> None:
    places = [audithead.slot(Head(seq=seq, hash=SOME)) for seq in (5, 6)]
    assert {offset for offset, _ in places} == {0, audithead.LENGTH}
    assert {len(line) for _, line in places} == {audithead.LENGTH}


@pytest.mark.parametrize("byte", range(audithead.LENGTH))
def test_a_torn_write_spoils_one_slot(byte: int) -> None:
    file = bytearray(content(FIVE, SIX))
    file[byte] ^= 1  # where 6 stands
    assert audithead.read(bytes(file)) == FIVE


@pytest.mark.parametrize("other", [b"", b"\0" * 400, b"\xff" * 400, b"x" * 100, content(FIVE)[:-5][:200]])
def test_anything_else_is_no_head(other: bytes) -> None:
    assert audithead.read(other) is None
