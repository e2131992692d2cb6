"""One connection of the event stream, from its first message to its end: in order, without a gap, and alive.

A stream that was asked to be resumed says in its first message whether it was: `hello` means a new one, whose
predecessor's last events are lost; the next event in number, or the answer to our ping, means the old one. A ping of
ours goes out at once and then every `ping_ms`. Threads: one; `sink` is called in it.
"""

from collections.abc import Callable
from typing import NoReturn

import attrs

from bxcore import logs
from bxcore.deadline import Clock, Deadline
from gatewayd import items
from gatewayd.faults import MattermostAway, MattermostUnclear
from gatewayd.items import Event, Item, Opened, Reply
from gatewayd.line import Line
from gatewayd.posts import NotOurs
from gatewayd.websocketstream import WebSocketStream

log = logs.get("events")


@attrs.frozen(kw_only=True)
class Position:
    """Where a stream can be resumed: which connection it was, and which event would be the next."""

    connection: str
    next_seq: int


class EventReading:
    """Reads a stream. `resume` is what the server was asked to go on from.

    `skipped` are the names of events that were logged as malformed: each is, once. `opened`: the server said that
    the stream is the bot's. `forgotten`: it said that it is nobody's, and would stay silent for ever.
    """

    def __init__(
        self,
        line: Line,
        stream: WebSocketStream,
        *,
        clock: Clock,
        ping_ms: int,
        resume: Position | None,
        user: str | None,
        skipped: set[str],
        sink: Callable[[Item], None],
    ) -> None:
        self._line, self._stream = line, stream
        self._clock, self._ping_ms = clock, ping_ms
        self._skipped, self._sink = skipped, sink
        self._connection = resume.connection if resume else None
        self._next_seq = resume.next_seq if resume else None
        self._pings = self._answered = 0
        self.user = user
        self.opened = False
        self.forgotten = False

    @property
    def position(self) -> Position | None:
        """Where it could be resumed, once it has ended."""
        if not self.opened or self._connection is None or self._next_seq is None:
            return None  # nor a second time where it ended before it began: the server may not like the number
        return Position(connection=self._connection, next_seq=self._next_seq)

    @property
    def proven(self) -> bool:
        """Whether the server has answered."""
        return self._answered > 0

    def forget(self) -> None:
        """It cannot be resumed: what it said was not in order."""
        self._next_seq = None

    def run(self) -> NoReturn:
        """Read until it ends, which is always a MattermostFault."""
        self._line.expired = self._tick
        self._ping()
        while True:
            self._take(self._stream.receive())

    def _take(self, untrusted: str) -> None:
        try:
            frame = items.frame(untrusted)
        except NotOurs as fault:
            raise MattermostUnclear(f"event stream: {fault}") from None
        if isinstance(frame, Reply):
            self._replied(frame)
        elif frame.name == "hello":
            self._begin(frame)
        else:
            self._happened(frame)

    def _begin(self, event: Event) -> None:
        hello = items.hello(event)
        self._connection, self._next_seq = hello.connection, event.seq + 1
        self.user = hello.user or self.user
        self._open(Opened(resumed=False, version=hello.version))

    def _happened(self, event: Event) -> None:
        if event.seq != self._next_seq:
            raise MattermostUnclear("event stream: events are missing")
        if not self.opened:
            self._open(Opened(resumed=True, version=None))
        try:
            item = items.item(event, self.user)
        except NotOurs as fault:
            self._skip(event, fault)
            item = None
        if item is not None:
            self._sink(item)
        self._next_seq = event.seq + 1  # after it was handed on: else a fault in between would lose it

    def _skip(self, event: Event, fault: NotOurs) -> None:
        if event.name not in self._skipped:  # one of the few names that items reads
            self._skipped.add(event.name)
            log.warning("event skipped event=%s why=%s", event.name, fault)

    def _replied(self, reply: Reply) -> None:
        if not reply.ok:
            self.forgotten = True
            raise MattermostUnclear("event stream: the server does not know any more whose it is")
        self._answered = max(self._answered, reply.number)
        if not self.opened and self._next_seq is not None:
            self._open(Opened(resumed=True, version=None))

    def _open(self, opened: Opened) -> None:
        self.opened = True
        self._sink(opened)

    def _ping(self) -> None:
        self._pings += 1
        self._line.deadline = Deadline.after(self._clock, milliseconds=self._ping_ms)
        self._stream.send(f'{{"seq":{self._pings},"action":"ping"}}')

    def _tick(self) -> None:
        if self._answered != self._pings:
            raise MattermostAway("event stream: the server did not answer a ping")
        if not self.opened:
            raise MattermostUnclear("event stream: the server did not begin with hello")
        self._ping()
