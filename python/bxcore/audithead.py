"""The head of the audit log as it is kept outside of it: two lines of the same length, the newer one counts.

Each holds a number, a hash and a checksum of both, so that a torn write spoils one of them and never both.
Pure. brokerd writes the file (brokerd.audithead); bxctl reads it. Specified in docs/audit-log.md.
"""

from hashlib import sha256

from bxcore import ids
from bxcore.chainreport import Head

FILE = "audit-head"
_NUMBER, _CHECK = 16, 32
LENGTH = _NUMBER + 1 + 64 + 1 + _CHECK + 1


def slot(head: Head) -> tuple[int, bytes]:
    """Return where in the file `head` goes, and its line."""
    said = f"{head.seq:0{_NUMBER}d} {head.hash}"
    return head.seq % 2 * LENGTH, f"{said} {_check(said)}\n".encode()


def read(content: bytes) -> Head | None:
    """Return the newer head that `content` holds; None where neither line is whole."""
    heads = [head for start in (0, LENGTH) if (head := _head(content[start : start + LENGTH])) is not None]
    return max(heads, key=lambda head: head.seq, default=None)


def _head(line: bytes) -> Head | None:
    try:
        said, _, check = line.decode("ascii").removesuffix("\n").rpartition(" ")
        number, digest = said.split(" ")
        if len(number) != _NUMBER or not number.isdecimal() or check != _check(said):
            return None
        return Head(seq=int(number), hash=ids.hash32(digest))
    except ValueError:  # other bytes than a head's
        return None


def _check(said: str) -> str:
    return sha256(said.encode()).hexdigest()[:_CHECK]
