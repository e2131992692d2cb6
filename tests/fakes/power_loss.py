"""A disk whose power goes: what was not synced may be there, be missing, be torn or be zeros.

PowerLossSystem does every call on a real directory and remembers what fsync has made durable. At
the chosen call it raises PowerCut, before or after the effect, and from then on nothing works.
`after(…)` then builds the directory as the next start may find it. The model is harsher than real
file systems: a name needs an fsync of its directory, also where its file was synced, and writes that
were not synced may reach the disk in any order, or as zeros of the right length.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import attrs

Result = TypeVar("Result")


class PowerCut(Exception):
    """The power went during a call."""


@attrs.define
class Inode:
    """A file or (content is None) a directory: what is durable, and the writes that are not."""

    durable: bytes | None
    pending: list[tuple[int, bytes]]
    size: int = 0


class PowerLossSystem:
    """The calls that bxcore.files makes, on the tree below `root`, until the `cut_at`-th of them."""

    def __init__(self, root: Path, *, cut_at: int | None, effect_first: bool) -> None:
        self.root, self.cut_at, self.effect_first = root, cut_at, effect_first
        self.calls = 0
        self.names: dict[Path, Inode] = {}
        self.durable_names: dict[Path, Inode] = {}
        self.opened: dict[int, tuple[Path, Inode | None]] = {}

    # -- the calls --------------------------------------------------------------------------

    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int:
        fd = os.open(path, flags, mode)
        if flags & os.O_DIRECTORY:
            self.opened[fd] = (path, None)
        else:
            inode = self.names.setdefault(path, Inode(b"", [], 0))
            self.opened[fd] = (path, inode)
        return fd

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        inode = self.opened[fd][1]
        assert inode is not None

        def effect() -> int:
            count = os.write(fd, data)
            inode.pending.append((inode.size, bytes(data[:count])))
            inode.size += count
            return count

        return self._step(effect)

    def fsync(self, fd: int, /) -> None:
        path, inode = self.opened[fd]

        def effect() -> None:
            if inode is None:
                self._sync_names(path)
            else:
                inode.durable = applied(inode.durable or b"", inode.pending)
                inode.pending.clear()

        self._step(effect)

    def rename(self, source: Path, target: Path, /) -> None:
        def effect() -> None:
            source.rename(target)
            self.names[target] = self.names.pop(source)

        self._step(effect)

    def unlink(self, path: Path, /) -> None:
        def effect() -> None:
            path.unlink()
            self.names.pop(path, None)

        self._step(effect)

    def mkdir(self, path: Path, mode: int = 0o777, /) -> None:
        def effect() -> None:
            path.mkdir(mode)
            self.names[path] = Inode(None, [])

        self._step(effect)

    def close(self, fd: int, /) -> None:
        self.opened.pop(fd)
        os.close(fd)  # also after the cut: the test itself must not leak

    def _step(self, effect: Callable[[], Result]) -> Result:
        if self.cut_at is not None and self.calls >= self.cut_at:
            if self.calls == self.cut_at and self.effect_first:
                effect()
            self.calls += 1
            raise PowerCut
        self.calls += 1
        return effect()

    def _sync_names(self, directory: Path) -> None:
        for path in {*self.names, *self.durable_names}:
            if path.parent == directory:
                if path in self.names:
                    self.durable_names[path] = self.names[path]
                else:
                    self.durable_names.pop(path)

    # -- the next start ---------------------------------------------------------------------

    def after(self, target: Path, choose: "Choose") -> None:
        """Build below `target` what the next start may find; `choose` settles what is not durable."""
        target.mkdir()
        found: dict[Path, Inode | None] = {}
        for path in sorted({*self.names, *self.durable_names}, key=lambda path: len(path.parts)):
            now, then = self.names.get(path), self.durable_names.get(path)
            found[path] = now if now is not then and choose.happened() else then
        for path, inode in found.items():
            place = target / path.relative_to(self.root)
            if inode is None or not place.parent.is_dir():
                continue  # a file whose directory was lost is lost with it
            if inode.durable is None:
                place.mkdir()
            else:
                place.write_bytes(choose.content(inode.durable, inode.pending))


class Choose:
    """How a power cut settles what was not durable. A test draws the answers.

    `happened()` says whether a change of a name reached the disk; `arrived(data)` what of a write did:
    nothing, a start of it, zeros or anything else in its place.
    """

    def __init__(self, happened: Callable[[], bool], arrived: Callable[[bytes], bytes]) -> None:
        self.happened = happened
        self._arrived = arrived

    def content(self, durable: bytes, pending: list[tuple[int, bytes]]) -> bytes:
        return applied(durable, [(offset, self._arrived(data)) for offset, data in pending])


def applied(content: bytes, writes: list[tuple[int, bytes]]) -> bytes:
    for offset, data in writes:
        content = placed(content, offset, data)
    return content


def placed(content: bytes, offset: int, data: bytes) -> bytes:
    """Return `content` with `data` at `offset`; a gap before it reads as zeros, as on a real disk."""
    if not data:
        return content
    content = content.ljust(offset, b"\0")
    return content[:offset] + data + content[offset + len(data) :]
