"""The real loopd on a disk or under a clock that a test breaks: `python -m tests.process.broken_loopd --config FILE`.

Beside the file the test may write `break`: "torn N" kills the process in the middle of its N-th write from
then on, "durable N" right after that write has reached the disk, before anybody is told. `days` sets the
clock forward. Everything else is loopd as it is started on an owner's machine.
"""

import os
import signal
import sys
from pathlib import Path
from unittest.mock import patch

from bxcore.deadline import SystemClock
from bxcore.files import DiskFiles
from bxcore.timestamp import Timestamp
from loopd import __main__ as program

DAY_MS = 86_400_000


class DyingDisk:
    """The os module, but for one write that is the process's last."""

    def __init__(self, order: Path) -> None:
        self._order = order
        self._how, self._left = "", 0

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        self._take_order()
        self._left -= 1
        if self._left == 0 and self._how == "torn":
            os.write(fd, data[: len(data) // 2])
            _die()
        return os.write(fd, data)

    def fsync(self, fd: int, /) -> None:
        os.fsync(fd)
        if self._left == 0 and self._how == "durable":
            _die()

    def _take_order(self) -> None:
        if self._order.exists():
            self._how, left = self._order.read_text().split()
            self._left = int(left)
            self._order.unlink()


class ShiftedClock(SystemClock):
    """The time of another day."""

    days = 0

    def now_ms(self) -> Timestamp:
        return Timestamp(super().now_ms() + self.days * DAY_MS)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    folder = Path(sys.argv[-1]).parent
    days = folder / "days"
    ShiftedClock.days = int(days.read_text()) if days.exists() else 0
    disk = DyingDisk(folder / "break")
    with (
        # Program.main() makes these two itself, as every role's main does; they are all of the world that we change.
        patch.object(program, "DiskFiles", lambda: DiskFiles(disk)),  # type: ignore[arg-type]  # by __getattr__
        patch.object(program, "SystemClock", ShiftedClock),
    ):
        return program.main()


if __name__ == "__main__":
    sys.exit(main())
