"""Who is connected for events, what waits for each, and what can be resumed: the server's table.

A Stream is what survives a dropped connection: up to 256 events that wait and the last 128 that went out. Threads:
streams belong to the world's lock; what is inside of one has a lock of its own, taken last and never held while
calling out.
"""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from tests.fakes.mattermostparts import rules
from tests.fakes.mattermostparts.records import Json
from tests.fakes.mattermostparts.world import VERSION, Event, World

QUEUE = 256
SLOW = QUEUE // 2
DEAD_QUEUE = 128
REAP_MS = 300_000
_SKIPPED_WHEN_SLOW = frozenset({"typing", "status_change", "multiple_channels_viewed"})


class Wire(Protocol):
    """The live connection under a stream."""

    def end(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Item:
    """What waits to be written: an event without its seq, or a whole reply; `end` closes the connection."""

    text: str = ""
    event: bool = False
    end: bool = False


class Stream:
    """One connection of the hub; see the module."""

    def __init__(self, connection: str, user: str, token: str, now: int) -> None:
        self.id = connection
        self.user = user
        self.token = token
        self.sequence = 0
        self.active = True
        self.last_activity = now
        self.inactive_since = 0
        self.wire: Wire | None = None
        self.changed = threading.Condition()
        self._waiting: deque[Item] = deque()
        self._sent: deque[tuple[int, str]] = deque(maxlen=DEAD_QUEUE)

    def put(self, item: Item) -> bool:
        """Let something wait; False where there is no room."""
        with self.changed:
            if len(self._waiting) >= QUEUE:
                return False
            self._waiting.append(item)
            self.changed.notify_all()
            return True

    def finish(self) -> None:
        """Have the connection closed once everything that waits was written."""
        with self.changed:
            self._waiting.append(Item(end=True))
            self.changed.notify_all()

    def waiting(self) -> int:
        return len(self._waiting)

    def wake(self) -> None:
        """Let the writer look at the clock."""
        with self.changed:
            self.changed.notify_all()

    def hold(self, wire: Wire | None) -> None:
        """Say whose the stream is now. From then on the one before takes nothing out of it."""
        with self.changed:
            self.wire = wire
            self.changed.notify_all()

    def take(self, wire: Wire, *, seconds: float) -> Item | None:
        """Return the next thing to write, numbered and remembered as sent, even where the write then fails.

        None after a while, where something else changed, and for who does not hold the stream any more.
        """
        with self.changed:
            if not self._waiting and self.wire is wire:
                self.changed.wait(seconds)
            if not self._waiting or self.wire is not wire:
                return None
            item = self._waiting.popleft()
            return Item(text=self._numbered(item), event=True) if item.event else item

    def _numbered(self, item: Item) -> str:
        text = f'{item.text},"seq":{self.sequence}}}'
        self._sent.append((self.sequence, text))
        self.sequence += 1
        return text

    def replay(self, sequence: int) -> list[str] | None:
        """Go on from an event: what has to be sent again, or None where some of it is lost."""
        with self.changed:
            self.sequence = sequence
            if sequence == 0:
                return []
            again = [text for number, text in self._sent if number >= sequence]
            if any(number == sequence for number, _ in self._sent):
                self.sequence += len(again)
                return again
            return [] if not self._sent or self._sent[-1][0] == sequence - 1 else None

    def restart(self, hello: Item) -> str:
        """Begin anew after a loss, with what waits still waiting."""
        with self.changed:
            self._sent.clear()
            self.sequence = 0
            return self._numbered(hello)


class Hub:
    """All streams. Everything here expects the world's lock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._streams: dict[str, Stream] = {}
        self._next_reap = world.now() + REAP_MS

    def streams(self) -> list[Stream]:
        return list(self._streams.values())

    def unknown(self) -> Stream:
        """Return a stream of nobody, which is not registered: no event reaches it, and no answer."""
        return Stream(self._world.new_id(), "", "", self._world.now())

    def open(self, user: str, token: str) -> Stream:
        """Register a new connection; its `hello` is the first thing that waits."""
        stream = self.unknown()
        self.adopt(stream, user, token)
        return stream

    def adopt(self, stream: Stream, user: str, token: str) -> None:
        """Register a connection under a user."""
        stream.user, stream.token = user, token
        self._streams[stream.id] = stream
        stream.put(self.hello(stream))

    def resume(self, user: str, token: str, connection: str, sequence: int) -> tuple[Stream, list[str]]:
        """Register a connection that asks to go on, and return what it is sent first.

        A stream whose old connection seems alive cannot be taken over. One that lost something gets a new id.
        """
        self.reap()
        stream = self._streams.get(connection)
        if stream is None or stream.user != user or stream.active or not self._world.keeps("resume"):
            return self.open(user, token), []
        stream.active, stream.token = True, token
        stream.last_activity = self._world.now()
        again = stream.replay(sequence)
        if again is None:
            del self._streams[connection]
            stream.id = self._world.new_id()
            self._streams[stream.id] = stream
            again = [stream.restart(self.hello(stream))]
        return stream, again

    def hello(self, stream: Stream) -> Item:
        data = {
            "connection_id": stream.id,
            "server_hostname": "boxmaker-fake",
            "server_version": f"{VERSION}.boxmaker.0123456789abcdef0123456789abcdef.false",
        }
        return _item(Event(name="hello", data=data, user=stream.user))

    def detach(self, stream: Stream, wire: Wire) -> None:
        """The connection under a stream is gone; events wait for the next one."""
        if stream.wire is wire:
            stream.hold(None)
            stream.active = False
            stream.inactive_since = self._world.now()

    def forget_all(self) -> None:
        for stream in self.streams():
            self._remove(stream)

    def reap(self) -> None:
        """Forget idle disconnected streams, if the five-minute tick has come since the last time."""
        now = self._world.now()
        if now < self._next_reap:
            return
        tick = now - (now - self._next_reap) % REAP_MS
        self._next_reap = tick + REAP_MS
        for stream in self.streams():
            if not stream.active and stream.inactive_since <= tick and tick - stream.last_activity > REAP_MS:
                self._remove(stream)

    def was_active(self, token: str) -> None:
        """A post came in through REST under this token."""
        for stream in self._streams.values():
            if stream.active and stream.token == token:
                stream.last_activity = self._world.now()

    def is_authenticated(self, stream: Stream) -> bool:
        """Whether the token of a stream still holds. Once it was seen not to, it never holds again."""
        if stream.token and self._world.session(stream.token) is None:
            stream.token = ""
        return stream.token != ""

    def look_again(self) -> None:
        """Tokens have changed: every connection is judged at once, as the next event would do it."""
        for stream in self.streams():
            self.is_authenticated(stream)

    def reply(self, stream: Stream, said: Json) -> None:
        """Answer a request. Whoever is not registered is not answered."""
        if self._streams.get(stream.id) is stream:
            self._put(stream, Item(text=rules.dump(said)))

    def publish(self, event: Event) -> None:
        """Let an event wait for everybody who may know of it."""
        plain: Item | None = None
        for stream in list(self._streams.values()):
            if not self._hears(stream, event):
                continue
            more = event.personal(stream.user) if event.personal is not None else {}
            plain = plain or _item(event)
            self._put(stream, _item(event, more) if more else plain)

    def _hears(self, stream: Stream, event: Event) -> bool:
        if not self.is_authenticated(stream):
            return False
        if event.name in _SKIPPED_WHEN_SLOW and stream.waiting() >= SLOW:
            return False
        if event.admins is not None and self._world.users[stream.user].admin is not event.admins:
            return False
        if event.user:
            return stream.user == event.user
        if stream.user in event.omit:
            return False
        if event.channel:
            return stream.user in self._world.channels[event.channel].members
        return not event.team or stream.user in self._world.teams[event.team].members

    def _put(self, stream: Stream, item: Item) -> None:
        if not stream.put(item):
            self._remove(stream)

    def _remove(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        stream.finish()


def _item(event: Event, more: Json | None = None) -> Item:
    data = {**event.data, **more} if more else event.data
    body = rules.dump({"event": event.name, "data": data, "broadcast": event.broadcast()})
    return Item(text=body[:-1], event=True)
