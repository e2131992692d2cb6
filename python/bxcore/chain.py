"""The chain over the audit log's stored bytes: one pass, constant memory, no parsing of ordinary records.

A record is good where it bears the number of its line in the whole log and the hash of the good record before
it. Whatever is not good, and is neither described by a Recovered nor accepted by a BreakAccepted, is a finding.
A record's own bytes are vouched for by the record after it, the last one's by a head kept elsewhere.
Pure. Threads: a Verifier belongs to one at a time. Specified in docs/audit-log.md.
"""

import itertools
from hashlib import sha256

import attrs

from bxcore.auditlog import BreakAccepted, Fault, Recovered
from bxcore.chainline import ACCEPTED, MAX_LINE, PREFIX, RECOVERY, SPECIAL, Groups, head_of, is_object, told, wrong
from bxcore.chainparts import Calls, Region
from bxcore.chainreport import GENESIS, START, Break, Finding, Head, Kept, Report, Torn, Unsettled
from bxcore.ids import Hash32

__all__ = [
    "AT_THE_END",
    "GENESIS",
    "MAX_LINE",
    "START",
    "Break",
    "Finding",
    "Head",
    "Kept",
    "Report",
    "Torn",
    "Unsettled",
    "Verifier",
]

MOST_TOLD = 100
"""Findings, recoveries and accepted breaks beyond these are not kept one by one: memory stays constant."""

AT_THE_END = frozenset((Fault.MISSING_END, Fault.OTHER_END, Fault.OTHER_BYTES))
"""Faults that the log itself does not show. Their BreakAccepted lies behind nothing."""

_NO_RECORD = "no record"
_EMPTY = Hash32(sha256().hexdigest())


class Verifier:
    """Told each file with `begin`, its bytes with `feed`, its end with `end`, then asked with `finish`.

    `after` and `unsettled` continue where an earlier pass left off. `kept` is a head that was kept elsewhere:
    the log must have that record. After `finish` a writer may go on and feed what it appends.
    """

    def __init__(self, *, after: Head = START, unsettled: Unsettled | None = None, kept: Head | None = None) -> None:
        # The last line that was looked at, by its place and by its number in the whole log.
        self._file, self._line, self._seq = "", 0, after.seq
        self._prev = after.hash.encode()
        self._calls = Calls(unsettled or Unsettled())
        self._files = self._bytes = 0
        self._began_after, self._kept = after.seq, kept
        self._kept_hash: str | None = after.hash if kept is not None and kept.seq == after.seq else None
        # The last good record, where it may still turn out to be torn; it counts once the next line shows it is not.
        self._last: bytes | None = None
        self._waiting: Groups | None = None
        self._prev_of_last = self._prev
        # A line that has not ended yet.
        self._pieces: list[bytes] = []
        self._size = 0
        self._long: Region | None = None
        # What is not good: a run of unreadable lines that may yet be described, or all from a failure on.
        self._run: Region | None = None
        self._failed: Region | None = None
        self._follows: Head | None = None
        self._findings: list[Finding] = []
        self._finding_count = 0
        self._recovered: list[Recovered] = []
        self._accepted: list[BreakAccepted] = []

    # -- what the caller says -------------------------------------------------------------------

    def begin(self, file: str, *, line: int = 0) -> None:
        """The next bytes are those of `file`, behind its first `line` lines."""
        if self._run is not None:
            self._fail_run()  # only the end of the whole log can be torn
        self._settle()
        self._file, self._line = file, line
        self._files += 1

    def feed(self, piece: bytes) -> None:
        """The next bytes of the file, cut anywhere."""
        self._bytes += len(piece)
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines and self._size:
            self._carry(lines.pop(0))
            self._end_line(complete=True)
        self._whole_lines(lines)
        if rest:
            self._carry(rest)

    def appended(self, line: bytes) -> bool:
        """The next bytes are this line and its newline. Says whether it is a good record, and all is well."""
        self._bytes += len(line) + 1
        self._whole_lines([line])
        return self.sound

    def end(self) -> None:
        """The file has no more bytes. A line without its newline is torn."""
        if self._size:
            self._end_line(complete=False)

    def finish(self) -> Report:
        """Say what was found. Call after `end`."""
        if self._last is not None and not is_object(self._last):
            self._run = self._take_back()
        kept = self._judge_kept()
        if kept.fault is not None and self._run is not None:
            self._fail_run()
        broken = None if self._failed is None else self._failed.broken()
        findings = list(self._findings)
        if kept.fault is not None:
            broken = broken or self.break_at_end(kept.fault)
            findings.append(self._end_finding(kept.fault))
        return Report(
            files=self._files,
            bytes=self._bytes,
            head=self.head,
            counts=self._counts(),
            findings=tuple(findings),
            more_findings=self._finding_count - len(self._findings),
            recovered=tuple(self._recovered),
            accepted=tuple(self._accepted),
            unsettled=self.unsettled,
            torn=None if self._run is None else self._run.torn(),
            broken=broken,
            kept=kept,
            next_seq=self._seq + 1,
        )

    def break_at_end(self, found: Fault) -> Break | None:
        """What a BreakAccepted behind the last line must say about a fault that the log itself does not show."""
        if found not in AT_THE_END:
            return None
        return Break(
            prev=self.head.hash,
            file=self._file,
            line=self._line + 1,
            last_good=self._seq,
            found=found,
            bytes=0,
            sha256=_EMPTY,
        )

    @property
    def head(self) -> Head:
        """The last good record."""
        region = self._failed or self._run
        return self._here() if region is None else region.after

    @property
    def lines(self) -> int:
        """Lines of the file so far."""
        return self._line

    @property
    def log_lines(self) -> int:
        """Lines of the whole log so far."""
        return self._seq

    @property
    def unsettled(self) -> Unsettled:
        """The calls whose end is not on record."""
        calls = Calls(self._calls.unsettled())
        if self._waiting is not None:
            calls.note([self._waiting])
        return calls.unsettled()

    @property
    def sound(self) -> bool:
        """Nothing is wrong so far, and nothing waits for a record that describes it."""
        return self._run is None and self._failed is None

    # -- lines ------------------------------------------------------------------------------------

    def _carry(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._long is not None:
            self._long.add(piece)
            return
        self._pieces.append(piece)
        if self._size > MAX_LINE:
            # No record, whatever it is: from here on only its hash is wanted.
            self._odd(b"".join(self._pieces))
            self._pieces, self._long = [], self._failed or self._run

    def _end_line(self, *, complete: bool) -> None:
        line, long = b"".join(self._pieces), self._long
        self._pieces, self._size, self._long = [], 0, None
        if long is not None:
            self._count_line()
        else:
            self._whole_lines([line])
            if not complete and self.sound:
                # A record but for its newline: judged like any other, as it will be when it has one, and void.
                self._run = self._take_back()

    def _whole_lines(self, lines: list[bytes]) -> None:
        index, count = 0, len(lines)
        while index < count:
            if self.sound:
                index = self._good_lines(lines, index)
            if index < count:
                self._judge(lines[index])
                self._count_line()
                index += 1

    def _good_lines(self, lines: list[bytes], start: int) -> int:
        """Take records as long as each is plainly good; return the index of the first line that is not."""
        match, seq, prev, prev_of_last = PREFIX.match, self._seq, self._prev, self._prev_of_last
        good = [] if self._waiting is None else [self._waiting]
        index = start
        for line in itertools.islice(lines, start, None):
            found = match(line)
            if found is None:
                break
            groups: Groups = found.groups()  # type: ignore[assignment]  # as many as the expression has
            if groups[2] != prev or int(groups[1]) != seq + 1 or groups[0] in SPECIAL or len(line) > MAX_LINE:
                break
            good.append(groups)
            prev_of_last, prev = prev, sha256(line).hexdigest().encode()
            seq += 1
            index += 1
        if index > start:
            self._look_for_kept(lines[start:index] if self._kept is not None else [])
            self._last, self._waiting, self._prev_of_last = lines[index - 1], good.pop(), prev_of_last
            self._calls.note(good)
            self._seq, self._prev = seq, prev
            self._line += index - start
        return index

    def _look_for_kept(self, lines: list[bytes]) -> None:
        if self._kept is not None and self._seq < self._kept.seq <= self._seq + len(lines):
            self._kept_hash = sha256(lines[self._kept.seq - self._seq - 1]).hexdigest()

    def _count_line(self) -> None:
        self._line += 1
        self._seq += 1

    def _judge(self, line: bytes) -> None:
        """Look at a line that is not plainly good."""
        record = told(line)
        if record is None:
            self._odd(line)
        elif isinstance(record, Recovered):
            self._recovery(record, line)
        elif isinstance(record, BreakAccepted):
            self._acceptance(record, line)
        else:
            self._misfit(record, line)

    # -- what is not good -------------------------------------------------------------------------

    def _odd(self, line: bytes) -> None:
        """A line that is no record: a tear, if a Recovered describes it."""
        if self._failed is not None:
            if self._follows is not None:
                self._tell(Fault.UNREADABLE, _NO_RECORD)
            self._follows = None
            self._failed.add_line(line)
            return
        if self._run is None:
            # What a power cut left may hold a newline: then the line before this one is part of it.
            torn_before = self._last is not None and not is_object(self._last)
            self._run = self._take_back() if torn_before else self._region_here()
        self._run.add_line(line)

    def _recovery(self, record: Recovered, line: bytes) -> None:
        if self._failed is not None:
            self._failed.add_line(line)
            self._follows = head_of(line, record.seq)
            return
        run = self._run or (None if self._last is None else self._region_of_last())
        if run is None or record != run.torn().recovered(seq=self._seq + 1, time=record.time):
            self._false(Fault.FALSE_RECOVERY, line, "a recovery that does not describe what is before it")
            return
        if self._run is None:
            self._waiting = None
        self._run = None
        if self._kept is not None and run.after.seq < self._kept.seq <= self._seq:
            self._kept_hash = None  # acknowledged once, and void now: that was no tear
        if len(self._recovered) < MOST_TOLD:
            self._recovered.append(record)
        self._go_on_from(line, RECOVERY, record.prev)

    def _acceptance(self, record: BreakAccepted, line: bytes) -> None:
        if self._run is not None:
            self._fail_run()
        expected = self.break_at_end(record.found) if self._failed is None else self._failed.broken()
        if expected is None or record != expected.accepted(seq=self._seq + 1, time=record.time):
            self._false(Fault.FALSE_ACCEPTANCE, line, "an accepted break that does not fit what is before it")
            return
        self._failed = self._follows = None
        self._findings, self._finding_count = [], 0
        if len(self._accepted) < MOST_TOLD:
            self._accepted.append(record)
        self._go_on_from(line, ACCEPTED, record.prev)

    def _misfit(self, groups: Groups, line: bytes) -> None:
        """A record that is not where it belongs, or one behind a failure."""
        if self._run is not None:
            self._fail_run()
        if self._failed is None:
            self._fail(self._region_here(), *wrong(groups, self._here()))
        elif self._follows is not None:
            self._judge_follower(groups, self._follows)
        self._behind_failure(line, int(groups[1]))

    def _judge_follower(self, groups: Groups, before: Head) -> None:
        if int(groups[1]) != before.seq + 1 or groups[2] != before.hash.encode():
            self._tell(*wrong(groups, before))
            return
        last = self._findings[-1]
        if last.fault is Fault.BROKEN_LINK and (last.file, last.line) == (self._file, self._line):
            # The line at hand vouches for the one that named another hash: the one before that was changed.
            changed = last.line - 1 or None
            where = f"line {changed}" if changed else "the last line of the file before"
            detail = f"{where} was changed after it was written"
            self._findings[-1] = attrs.evolve(last, detail=detail, changed=changed)

    def _false(self, fault: Fault, line: bytes, detail: str) -> None:
        if self._run is not None:
            self._fail_run()
        if self._failed is None:
            self._fail(self._region_here(), fault, detail)
        else:
            self._tell(fault, detail)
        self._behind_failure(line, self._seq + 1)

    def _behind_failure(self, line: bytes, seq: int) -> None:
        if self._failed is not None:
            self._failed.add_line(line)
        self._follows = head_of(line, seq)
        if self._kept is not None and self._kept.seq == self._seq + 1:
            self._kept_hash = self._follows.hash

    def _fail(self, region: Region, fault: Fault, detail: str) -> None:
        self._settle()
        region.fault = fault
        self._failed, self._follows = region, None
        self._add_finding(Finding(file=region.file, line=region.line, fault=fault, detail=detail))

    def _fail_run(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            self._fail(run, Fault.UNREADABLE, f"{_NO_RECORD}, and no recovery describes it")

    def _tell(self, fault: Fault, detail: str) -> None:
        self._add_finding(Finding(file=self._file, line=self._line + 1, fault=fault, detail=detail))

    def _add_finding(self, finding: Finding) -> None:
        self._finding_count += 1
        if len(self._findings) < MOST_TOLD:
            self._findings.append(finding)

    # -- the kept head, and moving on ---------------------------------------------------------------

    def _judge_kept(self) -> Kept:
        if self._kept is None:
            return Kept.NOT_ASKED
        if self._kept.seq < self._began_after:
            return Kept.NOT_REACHED
        if self._kept.seq > (self.head.seq if self._failed is None else self._seq):
            return Kept.MISSING
        return Kept.HELD if self._kept_hash == self._kept.hash else Kept.DIFFERS

    def _end_finding(self, fault: Fault) -> Finding:
        kept = 0 if self._kept is None else self._kept.seq
        detail = (
            f"the log ends before the head that was kept, record {kept}"
            if fault is Fault.MISSING_END
            else f"record {kept} is another one than the head that was kept"
        )
        return Finding(file=self._file, line=self._line + 1, fault=fault, detail=detail)

    def _go_on_from(self, line: bytes, event: bytes, prev: Hash32) -> None:
        """`line`, a recovery or an accepted break, is the last good record now."""
        self._settle()
        digest = sha256(line).hexdigest()
        self._last, self._waiting = line, (event, b"", b"", None, None, None)
        self._prev, self._prev_of_last = digest.encode(), prev.encode()
        if self._kept is not None and self._kept.seq == self._seq + 1:
            self._kept_hash = digest

    def _settle(self) -> None:
        """The last good record is not torn: what it says counts."""
        if self._waiting is not None:
            self._calls.note([self._waiting])
        self._waiting = self._last = None

    def _counts(self) -> dict[str, int]:
        counts = {event.decode(): count for event, count in self._calls.counts.items()}
        if self._waiting is not None:
            event = self._waiting[0].decode()
            counts[event] = counts.get(event, 0) + 1
        return counts

    def _take_back(self) -> Region:
        region = self._region_of_last()
        self._waiting = self._last = None
        return region

    def _region_of_last(self) -> Region:
        after = Head(seq=self._seq - 1, hash=Hash32(self._prev_of_last.decode()))
        region = Region(self._file, self._line, after=after)
        region.add_line(self._last or b"")
        return region

    def _region_here(self) -> Region:
        return Region(self._file, self._line + 1, after=self._here())

    def _here(self) -> Head:
        return Head(seq=self._seq, hash=Hash32(self._prev.decode()))
