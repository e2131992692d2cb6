"""A thread that works when it is woken, and again after a rest.

Invariant: what was there before a wake is seen by the round that follows; no round begins after a stop, which ends the
rest that is under way. Threads: one of its own for the rounds; `wake` and `stop` from any.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Generic, Protocol, TypeVar

import attrs


@attrs.frozen(kw_only=True)
class Rest:
    """What follows a round: `ms` milliseconds, or as long as nobody wakes it. A wake does not shorten a `deaf` one."""

    ms: int | None = None
    deaf: bool = False


UNTIL_WOKEN = Rest()


class Closable(Protocol):
    """A way to the server. `close` ends a call that another thread has under way."""

    def close(self) -> None: ...


Server = TypeVar("Server", bound=Closable)


class Worker(ABC):
    """What has rounds. Whoever derives from it does one in `_work`, and lets nothing out of it."""

    def __init__(self, name: str) -> None:
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There may be something to do. Never blocks."""
        self._woken.set()

    def stop(self) -> None:
        """End soon; what waits keeps waiting. May be called twice."""
        self._stopping.set()
        self._woken.set()

    def join(self, ms: int) -> bool:
        """Wait so many milliseconds at most; say whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(ms / 1000)
        return not self._thread.is_alive()

    @abstractmethod
    def _work(self) -> Rest:
        """Do what is there to do, and say how to rest after it."""

    def _held(self) -> AbstractContextManager[object]:
        """What the thread holds as long as it lives."""
        return nullcontext()

    def _run(self) -> None:
        with self._held():
            while True:
                self._woken.clear()
                if self._stopping.is_set():  # looked at after the clear, which may have wiped out the wake of stop()
                    return
                rest = self._work()
                wakes = self._stopping if rest.deaf else self._woken
                wakes.wait(None if rest.ms is None else rest.ms / 1000)


class AskingWorker(Worker, Generic[Server]):
    """One with a way to the server of its own: made by `api` in its thread, and closed by a stop."""

    def __init__(self, name: str, api: Callable[[], Server]) -> None:
        super().__init__(name)
        self._api = api
        self._server: Server | None = None

    def stop(self) -> None:
        super().stop()
        if self._server is not None:
            self._server.close()  # ends a call that is under way

    @abstractmethod
    def _ask(self, server: Server) -> Rest:
        """Do one round."""

    def _held(self) -> AbstractContextManager[object]:
        self._server = self._api()
        return closing(self._server)

    def _work(self) -> Rest:
        assert self._server is not None
        return self._ask(self._server)
