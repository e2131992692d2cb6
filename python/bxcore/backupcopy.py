"""Copies one file into a tree that is being made, piece by piece, and says what was copied.

Reads: the source, no link below its part followed. Writes: the target, durable when a call returns, mode 0600, with the
source's time. Constant memory. Raises StateError. Threads: none.
"""

import os
import stat
from collections.abc import Callable, Iterator
from hashlib import sha256
from io import BufferedReader
from pathlib import Path

import attrs

from bxcore import files
from bxcore.backupsource import Cut, SourceChanged, Wanted
from bxcore.files import NewTree
from bxcore.ids import Hash32
from bxcore.timestamp import Timestamp

PIECE = 1024 * 1024
_TRIES = 5

Told = Callable[[bytes], None]
Own = Callable[[Path], None]
"""Gives a file its owner and mode."""


@attrs.frozen(kw_only=True)
class Copied:
    """What is in the target now, and the source's status."""

    bytes: int
    sha256: Hash32
    mode: str
    changed: Timestamp
    cut: int


def copy(tree: NewTree, wanted: Wanted, target: Path, *, told: Told | None = None) -> Copied:
    """Copy `wanted` to `target`. `told` is shown every piece, once. Raises StateMissing, SourceChanged, StateError."""
    if wanted.content is not None:
        return _written(tree, target, iter((wanted.content,)), _status_of(wanted.source), cut=0, told=told)
    if wanted.cut is not None:
        return _copy_cut(tree, wanted, wanted.cut, target, told)
    return _copy_whole(tree, wanted, target)


def copy_back(tree: NewTree, source: Path, target: Path, *, changed: Timestamp, own: Own, told: Told) -> Copied:
    """Copy a file that nobody writes to. The copy gets `changed` as its time, and what `own` gives it."""
    with files.open_read(source) as file:
        status = _Status(mode="0600", changed=changed)
        return _written(tree, target, _pieces(file, source, None), status, cut=0, told=told, own=own)


def _copy_cut(tree: NewTree, wanted: Wanted, cut: Cut, target: Path, told: Told | None) -> Copied:
    source = wanted.source
    with files.open_below(wanted.top, wanted.below) as file:
        found = os.fstat(file.fileno())
        if (found.st_dev, found.st_ino) != cut.inode or found.st_size < cut.size:
            raise SourceChanged(f"{source}: was replaced or shortened while the backup was made; nothing does that")
        whole = _whole_lines(file, source, cut.size)
        pieces = _pieces(file, source, whole)
        copied = _written(tree, target, pieces, _status(found), cut=cut.size - whole, told=told)
    if copied.bytes != whole:
        raise SourceChanged(f"{source}: was shortened while the backup was made; nothing does that")
    return copied


def _copy_whole(tree: NewTree, wanted: Wanted, target: Path) -> Copied:
    source = wanted.source
    for _ in range(_TRIES):
        with files.open_below(wanted.top, wanted.below) as file:
            before = os.fstat(file.fileno())
            # One that grew since it was looked at is not copied without end; it is found to be another one below.
            copied = _written(tree, target, _pieces(file, source, wanted.most), _status(before), cut=0, told=None)
            after = os.fstat(file.fileno())
        if (
            (before.st_size, before.st_mtime_ns)
            == (after.st_size, after.st_mtime_ns)
            == (copied.bytes, before.st_mtime_ns)
        ):
            return copied
        target.unlink()  # it was written to meanwhile
    raise SourceChanged(f"{source}: is written to all the time; run it again when that has ended")


def _written(
    tree: NewTree,
    target: Path,
    pieces: Iterator[bytes],
    status: "_Status",
    *,
    cut: int,
    told: Told | None,
    own: Own | None = None,
) -> Copied:
    digest, size_bytes = sha256(), 0
    with tree.make_file(target) as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            size_bytes += len(piece)
            if told is not None:
                told(piece)
        if own is not None:
            own(target)
        os.utime(target, ns=(status.changed * 1_000_000,) * 2)
        file.finish()
    hashed = Hash32(digest.hexdigest())
    return Copied(bytes=size_bytes, sha256=hashed, mode=status.mode, changed=status.changed, cut=cut)


def _pieces(file: BufferedReader, path: Path, most: int | None) -> Iterator[bytes]:
    try:
        file.seek(0)
        while most is None or most:
            piece = file.read(PIECE if most is None else min(PIECE, most))
            if not piece:
                return
            most = None if most is None else most - len(piece)
            yield piece
    except OSError as error:
        raise files.unreadable(path, error) from None


def _whole_lines(file: BufferedReader, path: Path, size: int) -> int:
    """Return how many of the first `size` bytes are whole lines: up to and with the last newline."""
    try:
        while size:
            start = max(0, size - PIECE)
            end = os.pread(file.fileno(), size - start, start).rfind(b"\n")
            if end >= 0:
                return start + end + 1
            size = start
    except OSError as error:
        raise files.unreadable(path, error) from None
    return 0


@attrs.frozen(kw_only=True)
class _Status:
    mode: str
    changed: Timestamp


def _status(found: os.stat_result) -> _Status:
    changed = Timestamp(max(0, found.st_mtime_ns // 1_000_000))
    return _Status(mode=f"0{stat.S_IMODE(found.st_mode) & 0o777:03o}", changed=changed)


def _status_of(path: Path) -> _Status:
    try:
        return _status(path.lstat())
    except OSError as error:
        raise files.unreadable(path, error) from None
