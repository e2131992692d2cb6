"""Items of the event stream that wait to be handled: in order, and bounded in number and size. Threads: any."""

import threading
from collections import deque
from itertools import islice

from bxcore import logs
from gatewayd.items import Deleted, Edited, Item, Posted

log = logs.get("eventqueue")

ITEMS_MOST = 4_096
CHARACTERS_MOST = 4_194_304
"""More than this is not kept waiting in memory: it is dropped, and read again over REST."""
TOGETHER_MOST = 256


class EventQueue:
    """The items that wait, bounded: where there are too many, all are dropped and `behind` says so."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._characters = 0
        self._glanced = 0
        self._behind = False
        self._ended = False

    def put(self, item: Item) -> None:
        """Add one. Never blocks."""
        with self._changed:
            self._items.append(item)
            self._characters += _characters(item)
            if len(self._items) > ITEMS_MOST or self._characters > CHARACTERS_MOST:
                log.warning("too many events at once, catching up instead dropped=%d", len(self._items))
                self._items.clear()
                self._characters, self._glanced, self._behind = 0, 0, True
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def take(self, timeout_ms: int) -> tuple[bool, tuple[Item, ...]]:
        """Return whether items were dropped, and else the next ones: posts together, anything else alone."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._behind or self._ended, timeout_ms / 1000)
            behind, self._behind = self._behind, False
            return behind, () if behind or self._ended else self._next()

    def glance(self, timeout_ms: int) -> tuple[Item, ...]:
        """Return what came since the last glance, and leave it where it is; nothing, where nothing came in time."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) > self._glanced or self._ended, timeout_ms / 1000)
            new = tuple(islice(self._items, self._glanced, None))
            self._glanced = len(self._items)
            return new

    def _next(self) -> tuple[Item, ...]:
        taken: list[Item] = []
        while self._items and len(taken) < TOGETHER_MOST and (not taken or isinstance(taken[-1], Posted)):
            if taken and not isinstance(self._items[0], Posted):
                break
            item = self._items.popleft()
            self._characters -= _characters(item)
            self._glanced = max(0, self._glanced - 1)
            taken.append(item)
        return tuple(taken)


def _characters(item: Item) -> int:
    return len(item.post.message) if isinstance(item, Posted | Edited | Deleted) else 0
