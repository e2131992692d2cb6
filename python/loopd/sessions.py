"""All sessions of this loopd: opened when someone speaks, kept while they are busy, let go when idle.

Threads: called by every worker. The registry's lock guards the table alone; each entry has a lock
of its own, held while that one session is read from disk, so a long log delays nobody else.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from bxcore.deadline import Deadline
from bxcore.ids import MessageKey, SessionId
from loopd import baseline, toolbox
from loopd.baseline import Baseline
from loopd.faults import NoSession, SessionExists, TooBusy
from loopd.parts import Parts
from loopd.session import Accepted, Followed, Session
from loopd.sessionlog import OpenLog, SessionStore, StoredSession


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: Session | None = None


class Sessions:
    """The table."""

    def __init__(self, parts: Parts, store: SessionStore) -> None:
        self._parts, self._store = parts, store
        self._lock = threading.Lock()
        self._entries: OrderedDict[SessionId, _Entry] = OrderedDict()
        self._stopping = False

    def say(self, session: SessionId, key: MessageKey, text: str, *, new: bool) -> tuple[Session, Accepted]:
        """Take a message in. Raises NoSession, SessionExists, TooBusy, SessionDamaged, StateError."""
        with self._held(session) as entry:
            live = self._opened(entry, session)
            self._admit(live, key, new=new)
            if live is None:
                live = self._created(entry, session)
            return live, live.say(key, text)

    def follow(self, session: SessionId, turn: int) -> tuple[Session, Followed | None]:
        """Look a turn up. Raises NoSession, SessionDamaged, StateError."""
        with self._held(session) as entry:
            live = self._opened(entry, session)
            if live is None:
                raise NoSession("there is no session of that name")
            return live, live.follow(turn)

    def cancel(self, session: SessionId, turn: int = 0) -> int | None:
        """Stop a turn of a session (0: whichever runs); None where it is not running. Raises NoSession."""
        if not self._store.exists(session):
            raise NoSession("there is no session of that name")
        with self._lock:
            entry = self._entries.get(session)
        live = entry.session if entry else None
        return live.cancel(turn) if live else None

    def running(self) -> int:
        """How many turns run now."""
        return sum(live.busy for live in self._live())

    def open_count(self) -> int:
        """How many sessions are in memory."""
        return len(self._live())

    def interrupt(self) -> None:
        """End every running turn as interrupted and start no other. Returns at once."""
        self._stopping = True  # first, so that a session which is opened meanwhile sees it
        for session in self._live():
            session.stop()

    def join(self, deadline: Deadline) -> int:
        """Wait for the turns to end; return how many had not by the deadline."""
        return sum(not session.join(deadline.remaining_ms() / 1000) for session in self._live())

    def _live(self) -> list[Session]:
        with self._lock:
            entries = list(self._entries.values())
        return [session for entry in entries if (session := entry.session) is not None]

    @contextmanager
    def _held(self, session: SessionId) -> Iterator[_Entry]:
        """Hold the session's entry, and be sure that it is the one in the table."""
        while True:
            with self._lock:
                entry = self._entries.setdefault(session, _Entry())
                self._entries.move_to_end(session)
                self._let_idle_ones_go(keep=session)
            with entry.lock:
                # It may have been let go between the two locks; a second one would then be made beside it.
                with self._lock:
                    current = self._entries.get(session) is entry
                if current:
                    try:
                        yield entry
                    finally:
                        self._forget_if_empty(session, entry)
                    return

    def _forget_if_empty(self, session: SessionId, entry: _Entry) -> None:
        # Else names that nobody ever used would push real sessions out.
        if entry.session is None:
            with self._lock:
                self._entries.pop(session, None)

    def _let_idle_ones_go(self, *, keep: SessionId) -> None:
        spare = len(self._entries) - self._parts.settings.limits.open_sessions
        for name, entry in list(self._entries.items()):
            if spare <= 0:
                return
            # An entry whose lock is held is in use by a worker right now.
            if name == keep or not entry.lock.acquire(blocking=False):
                continue
            try:
                if entry.session is None or not entry.session.busy:
                    if entry.session is not None:
                        entry.session.close()
                    del self._entries[name]
                    spare -= 1
            finally:
                entry.lock.release()

    def _admit(self, live: Session | None, key: MessageKey, *, new: bool) -> None:
        """Refuse a message before anything is made for it."""
        if live is None and not new:
            raise NoSession("there is no session of that name")
        if live is not None and live.knows(key):
            return
        if live is not None and new and live.begun:
            raise SessionExists("a session of that name exists already; continue it, or choose another name")
        if (live is None or not live.busy) and self.running() >= self._parts.settings.limits.running_turns:
            raise TooBusy("as many turns run as may run at once; try again in a moment")

    def _opened(self, entry: _Entry, session: SessionId) -> Session | None:
        """Return the session, read from disk where it is not in memory; None where there is none."""
        live = entry.session
        if live is not None and live.failed and not live.busy:
            live.close()
            live = entry.session = None
        if live is None and self._store.exists(session):
            return self._adopt(entry, self._store.open(session))
        return live

    def _created(self, entry: _Entry, session: SessionId) -> Session:
        settings = self._parts.settings
        front = baseline.make(sampling=settings.sampling, tools=toolbox.core_schemas())
        return self._adopt(entry, self._store.create(session, front, slot=settings.slots.main))

    def _adopt(self, entry: _Entry, found: tuple[StoredSession, Baseline, OpenLog]) -> Session:
        stored, front, log_file = found
        try:
            live = Session(self._parts, stored, front, log_file)
        except BaseException:
            log_file.close()  # else its lock would keep the next attempt out
            raise
        entry.session = live
        if self._stopping:
            live.stop()
        return live
