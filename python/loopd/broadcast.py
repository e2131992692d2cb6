"""One turn's events, told to whoever listens. A listener that does not keep up is dropped, never waited for.

Threads: told by the turn's thread, read by the workers of its clients; one lock, never held while waiting.
"""

import queue
import threading
from collections.abc import Iterator

from bxcore.wire.channel import ReasoningDelta, TextDelta
from bxcore.wire.control import WireFault

MAX_BEHIND = 8_192
"""Events that a listener may lag behind before it is let go."""

_END = object()


class Lagged(Exception):
    """The listener was let go because it was too far behind."""


class Listener:
    """One client's view of a turn from some moment on; `reasoning` and `text` are those of `step` until then."""

    def __init__(self, *, step: int, reasoning: str, text: str) -> None:
        self.step, self.reasoning, self.text = step, reasoning, text
        self.fault: WireFault | None = None
        """Why the events ended without a turn_ended; set before they end."""
        self.lagged = False
        self._events: queue.Queue[object] = queue.Queue(MAX_BEHIND)

    def put(self, event: object) -> None:
        """Called by the broadcast only."""
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self.lagged = True

    def events(self, *, look_seconds: float) -> Iterator[object | None]:
        """Yield events until the turn is over, and None each time `look_seconds` pass without one.

        Raises Lagged, after the events that still reached it.
        """
        while True:
            if self.lagged and self._events.empty():
                raise Lagged
            try:
                event = self._events.get(timeout=look_seconds)
            except queue.Empty:
                yield None
                continue
            if event is _END:
                return
            yield event


class Broadcast:
    """The events of one turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._over = False
        self._fault: WireFault | None = None
        self._step = 0
        self._reasoning: list[str] = []
        self._text: list[str] = []

    def listen(self) -> Listener:
        """Return a listener that misses nothing and hears nothing twice from here on."""
        with self._lock:
            listener = Listener(step=self._step, reasoning="".join(self._reasoning), text="".join(self._text))
            if self._over:
                listener.fault = self._fault
                listener.put(_END)
            else:
                self._listeners.append(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Forget a listener; harmless where it is not known."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def tell(self, event: object) -> None:
        """Hand an event to every listener."""
        with self._lock:
            if isinstance(event, TextDelta | ReasoningDelta):
                self._remember(event)
            for listener in self._listeners:
                listener.put(event)
            if any(listener.lagged for listener in self._listeners):
                self._listeners = [listener for listener in self._listeners if not listener.lagged]

    def end(self, fault: WireFault | None = None) -> None:
        """There will be no more events; `fault` says why, where the turn did not come to its end."""
        with self._lock:
            if self._over:
                return
            self._over, self._fault = True, fault
            for listener in self._listeners:
                listener.fault = fault
                listener.put(_END)
            self._listeners = []

    def _remember(self, event: TextDelta | ReasoningDelta) -> None:
        if event.step != self._step:
            self._step, self._reasoning, self._text = event.step, [], []
        (self._text if isinstance(event, TextDelta) else self._reasoning).append(event.text)
