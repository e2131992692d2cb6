"""What a pass over the audit log carries along: a stretch that is not good, and the calls that have no end yet.

Pure. Threads: each value belongs to the Verifier that made it.
"""

from collections.abc import Iterable
from hashlib import sha256

from bxcore.auditlog import Fault
from bxcore.chainline import Groups
from bxcore.chainreport import Break, Head, Torn, Unsettled
from bxcore.ids import Hash32

_WORDS = (b"ask", b"allowed", b"started")
"""What can be open about a call: a question, a permission, a run."""


class Region:
    """Lines that are not good, from `line` of `file` on. Hashed as they come, newlines between them included."""

    def __init__(self, file: str, line: int, *, after: Head) -> None:
        self.file, self.line, self.after = file, line, after
        self.fault = Fault.UNREADABLE
        self.bytes = 0
        self._lines = 0
        self._digest = sha256()

    def add_line(self, line: bytes) -> None:
        if self._lines:
            self.add(b"\n")
        self._lines += 1
        self.add(line)

    def add(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.bytes += len(piece)

    def torn(self) -> Torn:
        return Torn(prev=self.after.hash, file=self.file, line=self.line, bytes=self.bytes, sha256=self._hash())

    def broken(self) -> Break:
        return Break(
            prev=self.after.hash,
            file=self.file,
            line=self.line,
            last_good=self.after.seq,
            found=self.fault,
            bytes=self.bytes,
            sha256=self._hash(),
        )

    def _hash(self) -> Hash32:
        return Hash32(self._digest.hexdigest())


class Calls:
    """Which calls have no end yet, and how many records there are of each event."""

    def __init__(self, unsettled: Unsettled) -> None:
        self.counts: dict[bytes, int] = {}
        self.open: dict[bytes, bytes] = {}
        for word, numbers in zip(_WORDS, (unsettled.asked, unsettled.allowed, unsettled.started), strict=True):
            self.open.update((b"%d" % number, word) for number in numbers)

    def note(self, records: Iterable[Groups]) -> None:
        """These records count. Many at once: this runs for each record of the log."""
        unsettled, counts = self.open, self.counts
        for event, number, _, decision, ending, verdict in records:
            counts[event] = counts.get(event, 0) + 1
            if decision is None:
                if verdict in _WORDS:
                    unsettled[number] = verdict
            elif event == b"started":
                unsettled[decision] = event
            elif event == b"result" or ending != b"approved":
                unsettled.pop(decision, None)
            else:
                unsettled[decision] = b"allowed"

    def unsettled(self) -> Unsettled:
        asked, allowed, started = (
            tuple(sorted(int(number) for number, state in self.open.items() if state == word)) for word in _WORDS
        )
        return Unsettled(asked=asked, allowed=allowed, started=started)
