"""Audit logs for tests and benches: makers of records, and whole chains written without brokerd."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from bxcore import auditlog, ids
from bxcore.auditlog import Answered, Decided, Ended, Record, RunEnding, Started
from bxcore.chain import GENESIS, START, Head
from bxcore.ids import Hash32
from bxcore.timestamp import Timestamp, from_text
from bxcore.wire.admin import ApprovalEnding, Verdict
from bxcore.wire.tools import DataClass, DenyReason

Make = Callable[[int, Timestamp, Hash32], Record]

NOON = from_text("2026-11-30T12:00:00.000Z")
SOME = Hash32("5e" * 32)
SESSION = ids.session_id("20261130-102600-beef")


def decided(verdict: Verdict = Verdict.ALLOWED, *, arguments: str = '{"path":"/n/a"}', session: str = SESSION) -> Make:
    def make(seq: int, time: Timestamp, prev: Hash32) -> Decided:
        return Decided(
            seq=seq,
            time=time,
            prev=prev,
            verdict=verdict,
            session=ids.session_id(session),
            call=ids.call_id(1),
            tool="read_file",
            arguments=arguments,
            canonical=SOME,
            path="/n/a",
            host=None,
            taint=DataClass.PRIVATE,
            untrusted=False,
            grant=None if verdict is Verdict.DENIED else "notes",
            grant_hash=SOME,
            grants=SOME,
            reason=DenyReason.NO_GRANT if verdict is Verdict.DENIED else None,
            detail=None,
        )

    return make


def answered(decision: int, ending: ApprovalEnding = ApprovalEnding.APPROVED) -> Make:
    def make(seq: int, time: Timestamp, prev: Hash32) -> Answered:
        return Answered(
            seq=seq,
            time=time,
            prev=prev,
            decision=decision,
            ending=ending,
            approver="bxctl",
            post=None,
            reason=None,
            grant="notes",
            grant_hash=SOME,
            taint=DataClass.PRIVATE,
            untrusted=False,
        )

    return make


def started(decision: int) -> Make:
    def make(seq: int, time: Timestamp, prev: Hash32) -> Started:
        return Started(seq=seq, time=time, prev=prev, decision=decision, image=SOME, plan=SOME)

    return make


def ended(decision: int, *, session: str = SESSION) -> Make:
    def make(seq: int, time: Timestamp, prev: Hash32) -> Ended:
        return Ended(
            seq=seq,
            time=time,
            prev=prev,
            decision=decision,
            session=ids.session_id(session),
            ending=RunEnding.DONE,
            exit=0,
            size=1234,
            sha256=SOME,
            truncated=False,
            data_class=DataClass.PRIVATE,
            untrusted=True,
            taint_after=DataClass.PRIVATE,
            untrusted_after=True,
        )

    return make


def calls(count: int, *, first: int = 1) -> list[Make]:
    """Return the records of `count` allowed calls, the first of which will be number `first`."""
    return [make for seq in range(first, first + 3 * count, 3) for make in (decided(), started(seq), ended(seq))]


def chained(makes: Iterable[Make], *, after: Head = START, time: Timestamp = NOON) -> list[bytes]:
    """Return the stored lines of the records, without their newlines."""
    lines, head = [], after
    for make in makes:
        line = auditlog.encode(make(head.seq + 1, time, head.hash))
        lines.append(line)
        head = Head(seq=head.seq + 1, hash=Hash32(sha256(line).hexdigest()))
    return lines


def head_of(lines: Sequence[bytes], *, before: int = 0) -> Head:
    """Return the head of a log that ends with `lines`, `before` lines being in front of them."""
    last = Hash32(sha256(lines[-1]).hexdigest()) if lines else GENESIS
    return Head(seq=before + len(lines), hash=last)


def stored(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def write(directory: Path, days: dict[str, list[bytes]]) -> None:
    """Write files of the log, `days` by name without its ending, as brokerd would leave them."""
    directory.mkdir(mode=0o700, exist_ok=True)
    for day, lines in days.items():
        path = directory / f"{day}.jsonl"
        path.write_bytes(stored(lines))
        path.chmod(0o600)
