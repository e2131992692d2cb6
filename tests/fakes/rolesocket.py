"""Any role's socket that says what a test wrote, with the real frames.

Threads: a server's own, below a thread of ours. `asked` holds every request in the order of arrival;
`wait` blocks until one has come. A script answers each message type.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from bxcore import listener
from bxcore.deadline import SystemClock
from bxcore.server import Door, Request, Server
from bxcore.wire.control import ErrorCode, WireFault

T = TypeVar("T")
Script = Callable[[Request], None]
PATIENCE_SECONDS = 30


class FakeRole:
    """Serves `<home>/run/<folder>/<socket>` while the `with` block lasts."""

    def __init__(self, home: Path, folder_name: str, socket_name: str, scripts: Mapping[Any, Script]) -> None:
        self.home = home
        self.asked: list[object] = []
        self._changed = threading.Condition()
        self._scripts: dict[type, Script] = dict(scripts)
        folder = home / "run" / folder_name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o2750)
        self._listening = listener.open_socket(folder / socket_name)
        door = Door(
            listening=self._listening,
            name=folder_name,
            handlers=dict.fromkeys(self._scripts, self._serve),
        )
        self._server = Server([door], clock=SystemClock(), drain_seconds=0)
        self._thread = threading.Thread(target=self._server.serve, name=f"fake-{folder_name}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._thread.join()
        self._listening.close()

    def _serve(self, request: Request) -> None:
        with self._changed:
            self.asked.append(request.message)
            self._changed.notify_all()
        self._scripts[type(request.message)](request)

    def of(self, kind: type[T]) -> list[T]:
        """Return the requests of one type so far."""
        with self._changed:
            return [message for message in self.asked if isinstance(message, kind)]

    def wait(self, kind: type[T], count: int = 1) -> T:
        """Return the `count`-th request of a type, waiting for it to come."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self._of(kind)) >= count, PATIENCE_SECONDS)
            assert came, f"no {kind.__name__} number {count} came; asked: {self.asked}"
            return self._of(kind)[count - 1]

    def _of(self, kind: type[T]) -> list[T]:
        return [message for message in self.asked if isinstance(message, kind)]


# -- scripts ---------------------------------------------------------------------------------------


def replies(*events: object) -> Script:
    """Answer every time with these messages, the last one final."""

    def script(request: Request) -> None:
        send(request, events)

    return script


def send(request: Request, events: Iterable[object]) -> None:
    """Send messages, the last one final."""
    *before, last = events
    for event in before:
        request.answer(event, final=False)
    request.answer(last, final=True)


def refuses(code: ErrorCode, detail: str) -> Script:
    return replies(WireFault(code=code, detail=detail))
