"""The real gatewayd that dies at a step which a test names: `python -m tests.process.broken_gatewayd --config FILE`.

Beside the file the test may write `break`: "before N" kills the process right before its N-th step from then on,
"after N" right after it. A step is a transaction of the queue, or a post that is made at the server: whatever lies
between two of them leaves nothing behind.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gatewayd import __main__ as program
from gatewayd.mattermost import Mattermost
from gatewayd.queuefile import QueueFile


class Order:
    """When to die. Steps are counted in the order in which they begin."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._when, self._left = "", 0

    def begin(self) -> bool:
        """Count a step; die before it where it is the one. Return whether to die after it."""
        with self._lock:
            if self._path.exists():
                self._when, left = self._path.read_text().split()
                self._left = int(left)
                self._path.unlink()
            if self._left == 0:
                return False
            self._left -= 1
            if self._left:
                return False
        if self._when == "before":
            die()
        return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> int:
    order = Order(Path(argv[argv.index("--config") + 1]).with_name("break"))
    write: Callable[[QueueFile], Any] = QueueFile.writing
    make = Mattermost.create_post

    @contextmanager
    def writing(file: QueueFile) -> Iterator[Any]:
        last = order.begin()
        with write(file) as database:
            yield database
        if last:
            die()

    def create_post(self: Mattermost, *arguments: Any, **named: Any) -> Any:
        last = order.begin()
        made = make(self, *arguments, **named)
        if last:
            die()
        return made

    with patch.object(QueueFile, "writing", writing), patch.object(Mattermost, "create_post", create_post):
        return program.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
