"""Files on a disk that fails: at the k-th call of one kind, after some of the bytes, with a chosen error.

It is DiskFiles itself over an `os` that fails, so that the code under test is the real one.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import attrs

from bxcore.files import DiskFiles


@attrs.frozen(kw_only=True)
class Fault:
    """Which call fails: the `at`-th (from 0) `call`, with errno `error`. A write first writes `after_bytes`.

    `lasting`: every call of that kind from then on fails as well, as on a full or read-only disk.
    """

    call: str = "write"
    at: int = 0
    error: int = errno.ENOSPC
    after_bytes: int = 0
    lasting: bool = False


class FaultySystem:
    """The calls of `os` that bxcore.files makes, one of which fails. `calls` counts them by name."""

    def __init__(self, fault: Fault | None) -> None:
        self.fault = fault
        self.calls: dict[str, int] = {}

    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int:
        self._fail("open")
        return os.open(path, flags, mode)

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        try:
            self._fail("write")
        except OSError:
            if self.fault is not None and self.fault.after_bytes:
                os.write(fd, data[: self.fault.after_bytes])
            raise
        return os.write(fd, data)

    def fsync(self, fd: int, /) -> None:
        self._fail("fsync")

    def rename(self, source: Path, target: Path, /) -> None:
        self._fail("rename")
        source.rename(target)

    def unlink(self, path: Path, /) -> None:
        self._fail("unlink")
        path.unlink()

    def mkdir(self, path: Path, mode: int = 0o777, /) -> None:
        self._fail("mkdir")
        path.mkdir(mode)

    def close(self, fd: int, /) -> None:
        os.close(fd)

    def _fail(self, call: str) -> None:
        number = self.calls.get(call, 0)
        self.calls[call] = number + 1
        fault = self.fault
        if fault is None or fault.call != call:
            return
        if number == fault.at or (fault.lasting and number > fault.at):
            raise OSError(fault.error, os.strerror(fault.error))


class FaultyFiles(DiskFiles):
    """DiskFiles on a disk that fails once. `FaultyFiles(None)` only counts the calls."""

    def __init__(self, fault: Fault | None) -> None:
        self.system = FaultySystem(fault)
        super().__init__(self.system)

    @property
    def calls(self) -> dict[str, int]:
        return self.system.calls


class Killed(FaultySystem):
    """kill -9 at the n-th call: the process is gone, whatever it wanted to do next."""

    def __init__(self, at: int) -> None:
        super().__init__(None)
        self.left = at

    def _fail(self, call: str) -> None:
        self.left -= 1
        if self.left == -1:
            os._exit(9)


def killed_at(at: int, act: Callable[[Killed], object]) -> bool:
    """Do `act` in a process of its own, which dies at its `at`-th call; say whether it did."""
    child = os.fork()
    if child == 0:
        try:
            act(Killed(at))
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9
