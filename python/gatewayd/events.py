"""The event connection: kept up for ever, read by one thread, and what it says handed on in order.

Reads: the server's event stream. Hands each item to `sink`, in the reader's thread. Invariant: events are handed on
without a gap; where that cannot be known, the stream ends and the next one begins with Opened(resumed=False), which
is to say: catch up by REST. How the connection is stands in the Condition. Threads: its own, which reads and does
nothing else, since the server's pings are answered in the act of reading; `stop` may be called by any.
"""

import random
import threading
from collections.abc import Callable
from typing import NoReturn
from urllib.parse import urlencode

from bxcore import logs
from bxcore.deadline import Clock, Deadline
from bxcore.secrets import Secret
from bxcore.settings import gatewayd as settings_file
from gatewayd import websocketstream
from gatewayd.backoff import Backoff
from gatewayd.condition import Condition, Part
from gatewayd.eventreading import EventReading, Position
from gatewayd.faults import MattermostFault, MattermostUnclear, TokenRefused
from gatewayd.items import ChannelGone, ChannelJoined, Deleted, Edited, Item, Lost, Opened, Posted
from gatewayd.line import Endpoint, Line
from gatewayd.mattermost import Mattermost
from gatewayd.websocketstream import WebSocketStream

__all__ = ["ChannelGone", "ChannelJoined", "Deleted", "Edited", "Events", "Item", "Lost", "Opened", "Posted"]

log = logs.get("events")

_FIRST_PAUSE_MS = 1_000


class Events:
    """The connection. Raises ConfigError at once where ca_file is unfit."""

    def __init__(
        self,
        settings: settings_file.Mattermost,
        token: Secret,
        *,
        clock: Clock,
        condition: Condition,
        sink: Callable[[Item], None],
        api: Callable[[], Mattermost],
    ) -> None:
        self._settings, self._token, self._clock = settings, token, clock
        self._condition, self._sink, self._api = condition, sink, api
        self._endpoint = Endpoint.of(settings)
        self._backoff = Backoff(_FIRST_PAUSE_MS, settings.retry_most_ms, random.random)
        self._skipped: set[str] = set()
        self._position: Position | None = None
        self._user: str | None = None
        self._doubtful = False
        self._held_ms: int | None = None
        self._halt = threading.Event()
        self._lock = threading.Lock()  # around the three below
        self._end: Callable[[], None] | None = None  # what ends the wait that goes on
        self._line: Line | None = None
        self._doubted = False
        # A daemon: a name look-up cannot be interrupted, and must not hold up the end of the process.
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin. Once."""
        self._thread.start()

    def stop(self) -> None:
        """End it, whatever it waits for. Any thread, twice too."""
        self._halt.set()
        with self._lock:
            if self._end is not None:
                self._end()

    def doubt(self) -> None:
        """Somebody else was told that the token does not hold, which the stream would tell much later. Any thread.

        Whatever stream is open ends, the server is asked, and what it says shows; where the token holds, a new one
        begins, and for the longest pause no doubt is heard.
        """
        now = self._clock.monotonic_ms()
        with self._lock:
            held = self._held_ms is not None and now - self._held_ms < self._settings.retry_most_ms
            if self._line is not None and not held:
                self._doubted = True
                self._line.hang_up()

    def join(self, milliseconds: int) -> bool:
        """Wait for the end; say whether it came."""
        if self._thread.ident is not None:
            self._thread.join(milliseconds / 1_000)
        return not self._thread.is_alive()

    # -- one connection after the other ---------------------------------------------------------

    def _run(self) -> None:
        while not self._halt.is_set():
            fault = self._follow()
            if not self._halt.is_set():
                self._halt.wait(self._failed(fault) / 1_000)

    def _follow(self) -> MattermostFault:
        """Connect, read to the end, and return why it ended."""
        deadline = Deadline.after(self._clock, milliseconds=self._settings.connect_ms)
        line = Line(self._endpoint, deadline, room=websocketstream.MOST_BYTES)
        try:
            self._ended_by(line.hang_up)
            self._doubtable(line)
            line.open()
            self._read(line, self._upgrade(line))
        except MattermostFault as fault:
            return fault
        except Exception:  # outermost: who is deaf for ever is worse than who says that it failed
            log.exception("event connection failed code=internal")
            self._position = None
            return MattermostUnclear("event stream: a fault of Boxmaker's own ended it; see the log")
        finally:
            self._ended_by(None)
            self._doubtable(None)
            line.close()

    def _upgrade(self, line: Line) -> WebSocketStream:
        query = ""
        if self._position is not None:
            place = {"connection_id": self._position.connection, "sequence_number": self._position.next_seq}
            query = f"?{urlencode(place)}"
        return websocketstream.upgrade(
            line, self._endpoint, self._token, query=query, most_pause_ms=self._settings.retry_most_ms
        )

    def _read(self, line: Line, stream: WebSocketStream) -> NoReturn:
        reading = EventReading(
            line,
            stream,
            clock=self._clock,
            ping_ms=self._settings.ping_ms,
            resume=self._position,
            user=self._user,
            skipped=self._skipped,
            sink=self._hand_on,
        )
        try:
            reading.run()
        except MattermostUnclear:
            reading.forget()
            raise
        finally:
            if self._doubted:
                reading.forget()  # it may have been silent, and without a number that shows it
            # The server lets anybody upgrade, and says nothing to who it does not know.
            self._doubtful = reading.forgotten or not reading.opened
            self._position, self._user = reading.position, reading.user
            if reading.proven:
                self._backoff.reset()
            if reading.opened:
                self._condition.connection(up=False)
                self._sink(Lost())

    def _hand_on(self, item: Item) -> None:
        if isinstance(item, Opened):
            log.info("event stream open resumed=%s", item.resumed)
            self._condition.connection(up=True, missed=not item.resumed, server_version=item.version)
            self._condition.well(Part.CONNECTION)
        self._sink(item)

    # -- after it ended -------------------------------------------------------------------------

    def _failed(self, fault: MattermostFault) -> int:
        """Tell what is wrong; return how long to pause before the next try."""
        if self._doubtful or self._doubted:
            refused = self._token_fault()
            with self._lock:
                self._held_ms = self._clock.monotonic_ms() if self._doubted and refused is None else self._held_ms
                self._doubtful = self._doubted = False
            fault = refused or fault
        self._condition.trouble(Part.CONNECTION, fault)
        pause_ms = self._backoff.next_ms()
        if isinstance(fault, TokenRefused):
            return self._settings.retry_most_ms
        return max(pause_ms, fault.retry_ms)

    def _token_fault(self) -> TokenRefused | None:
        """Ask whether the token still holds: the stream itself does not tell."""
        api = self._api()
        try:
            self._ended_by(api.close)
            api.me()
        except TokenRefused as fault:
            return fault
        except MattermostFault:
            pass  # the next try to connect will show it
        finally:
            self._ended_by(None)
            api.close()
        return None

    def _doubtable(self, line: Line | None) -> None:
        with self._lock:
            self._line = line

    def _ended_by(self, end: Callable[[], None] | None) -> None:
        """From now on `stop` calls `end`."""
        with self._lock:
            self._end = end
            if end is not None and self._halt.is_set():
                end()
