"""Seals: what was verified line by line once is compared as a whole at the next start.

Reads and writes: `<state>/audit-seals.jsonl`, one seal a line, the last one of a file counts. A seal says that
the first `bytes` of a log file have this SHA-256, and where the chain stood before and behind them. A seal that
is missing or damaged costs time: its file is verified line by line. One that is whole and does not fit its file
is a finding: what was verified has changed since. Threads: two while hashing. Format: docs/audit-log.md.
"""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from bxcore import auditfiles, convert, jsonl, logs, strictjson
from bxcore.auditfiles import Place
from bxcore.chain import START, Head, Unsettled
from bxcore.errors import BadMessage, StateError
from bxcore.files import Files, StateMissing
from bxcore.ids import Hash32

log = logs.get("auditseals")

FILE = "audit-seals.jsonl"
EVERY_BYTES = 32 * 1024 * 1024
"""A file that grows by this much since its last seal gets another one: so much is read line by line at most."""

_THREADS = 2
_CHECK = b'{"check":"'
_BODY_AT = len(_CHECK) + 64 + len(b'",')


@attrs.frozen(kw_only=True)
class Seal:
    """The first `bytes` of `file`, `lines` lines, were verified; before them the chain stood at `before`.

    Behind them it stands at `seq` and `hash`, and the log has `log_lines` lines. `sound` is false inside a stretch
    that the owner accepted as broken. The last three are calls by the seq of their decision (Unsettled).
    """

    file: str
    bytes: int
    lines: int
    sha256: Hash32
    before_seq: int
    before_hash: Hash32
    seq: int
    hash: Hash32
    log_lines: int
    sound: bool
    asked: tuple[int, ...]
    allowed: tuple[int, ...]
    started: tuple[int, ...]

    @property
    def before(self) -> Head:
        return Head(seq=self.before_seq, hash=self.before_hash)

    @property
    def head(self) -> Head:
        return Head(seq=self.seq, hash=self.hash)

    @property
    def unsettled(self) -> Unsettled:
        return Unsettled(asked=self.asked, allowed=self.allowed, started=self.started)

    @property
    def end(self) -> Place:
        return Place(file=self.file, bytes=self.bytes, lines=self.lines, seq=self.log_lines)


def encode(seal: Seal) -> bytes:
    """Return the stored line of `seal`, without its newline: its fields behind a checksum of them."""
    body = strictjson.dumps(convert.unstructure(seal))
    return _CHECK + hashlib.sha256(body).hexdigest().encode() + b'",' + body.removeprefix(b"{")


def decode(line: bytes) -> Seal:
    """Return the seal of a stored line. Raises BadMessage where it is not exactly what was written."""
    body = b"{" + line[_BODY_AT:]
    if line[:_BODY_AT] != _CHECK + hashlib.sha256(body).hexdigest().encode() + b'",':
        raise BadMessage("a seal with another checksum")
    return convert.structure(strictjson.loads(body), Seal)


class SealFile:
    """The seals as they lie on disk. A write that fails costs time at a later start and nothing else."""

    def __init__(self, state: Path, files: Files) -> None:
        self._path, self._files = state / FILE, files

    def read(self) -> Mapping[str, Seal]:
        """Return the last seal of each file."""
        seals: dict[str, Seal] = {}
        damaged = 0
        try:
            for line in jsonl.read_lines(self._path):
                if not line.raw:
                    continue
                try:
                    seal = decode(line.raw)
                    seals[seal.file] = seal
                except BadMessage:
                    damaged += 1
        except StateMissing:
            return seals
        except StateError as error:
            log.warning("seals cannot be read, the log is verified line by line: %s", error.detail)
        if damaged:
            log.warning("damaged seals skipped count=%d", damaged)
        return seals

    def add(self, *seals: Seal) -> None:
        """Store seals. Never raises StateError."""
        if not seals:
            return
        try:
            appender = self._files.open_append(self._path)
            try:
                # The newline in front ends what a crash may have left of an earlier line.
                appender.append(b"\n" + b"".join(encode(seal) + b"\n" for seal in seals))
            finally:
                appender.close()
        except StateError as error:
            log.warning("seals cannot be kept, the next start takes longer: %s", error.detail)

    def start_over(self, seals: Sequence[Seal]) -> None:
        """Store these seals and no others: the owner has accepted that the old ones do not fit. Raises StateError."""
        self._files.replace(self._path, b"".join(encode(seal) + b"\n" for seal in seals))


@attrs.frozen(kw_only=True)
class Checked:
    """What need not be verified again. `digest` hashes the last of `seals`' bytes, to be gone on with.

    `changed` names the files whose seal is whole and does not fit.
    """

    seals: tuple[Seal, ...]
    digest: "hashlib._Hash"
    changed: tuple[str, ...]

    @property
    def head(self) -> Head:
        return self.seals[-1].head if self.seals else START


def check(directory: Path, names: Sequence[str], seals: Mapping[str, Seal]) -> Checked:
    """Compare the log's first files with their seals, up to the first one that has none or does not fit. StateError."""
    candidates, changed = _chained(directory, names, seals)
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        digests = list(pool.map(lambda seal: _hash(directory, seal), candidates))
    good = 0
    while good < len(candidates) and digests[good].hexdigest() == candidates[good].sha256:
        good += 1
    if good < len(candidates):
        changed = [candidates[good].file]
    while good and not candidates[good - 1].sound:
        good -= 1
    return Checked(
        seals=tuple(candidates[:good]),
        digest=digests[good - 1] if good else hashlib.sha256(),
        changed=tuple(changed),
    )


def _chained(directory: Path, names: Sequence[str], seals: Mapping[str, Seal]) -> tuple[list[Seal], list[str]]:
    """Return the seals that follow on one another from the first file on, and the file that is shorter than its own."""
    chained: list[Seal] = []
    for name in names:
        seal = seals.get(name)
        if seal is None or seal.before != (chained[-1].head if chained else START):
            break
        size_bytes = auditfiles.size(directory, name)
        if size_bytes < seal.bytes:
            return chained, [name]
        chained.append(seal)
        if size_bytes > seal.bytes:
            break
    return chained, []


def _hash(directory: Path, seal: Seal) -> "hashlib._Hash":
    digest, left = hashlib.sha256(), seal.bytes
    for piece in auditfiles.pieces(directory / seal.file):
        digest.update(piece[:left])  # lets the other thread run while it hashes
        left -= len(piece)
        if left <= 0:
            break
    return digest
