"""One live session: its log, its history, its running turn, and the messages that wait for the next one.

Threads: workers call say, follow and cancel; each turn runs in a thread of its own, because it
outlives the client that began it. One lock guards the fields; it is held while a record is
written (that order is the log's order), never while the server or a tool is waited for. Read
without it, one reference each: `busy`, `failed` and the thread to join, so that nobody waits for a
disk to learn them. The turn's thread reads without it what only the turn's own records change.
Invariant: a message is acknowledged only when it is on disk, and joins exactly one turn.
"""

import threading

import attrs

from bxcore import logs
from bxcore.errors import StateError
from bxcore.ids import CallId, MessageKey, SessionId
from bxcore.sessionrecords import Record, TurnEnd, TurnStart, User
from bxcore.wire.channel import TurnEnded, TurnEnding, TurnNotice, TurnStarted, TurnState
from bxcore.wire.control import ErrorCode, WireFault
from loopd import endings, replyrecords
from loopd.baseline import Baseline
from loopd.broadcast import Broadcast, Listener
from loopd.cancel import CancelToken
from loopd.faults import TooBusy
from loopd.history import History
from loopd.parts import Parts
from loopd.sessionlog import OpenLog, StoredSession
from loopd.turn import Turn

log = logs.get("session")

_STOPPING = WireFault(
    code=ErrorCode.NOT_READY, detail="loopd is stopping; the message is kept and belongs to the session's next turn"
)
_UNWRITABLE = WireFault(
    code=ErrorCode.STATE_UNWRITABLE,
    detail="the message is on disk, but its turn could not begin; send it again with the same key",
)


@attrs.frozen(kw_only=True)
class Accepted:
    """A message is on disk. `listener` hears its turn, or is None where that turn has ended."""

    turn: int
    queued: bool
    duplicate: bool
    listener: Listener | None


@attrs.frozen(kw_only=True)
class Followed:
    """Where a turn is; `listener` is None where it has ended."""

    turn: int
    state: TurnState
    listener: Listener | None


@attrs.frozen(kw_only=True)
class _Running:
    number: int
    turn: Turn
    cancel: CancelToken
    broadcast: Broadcast


class Session:
    """See the module's header."""

    def __init__(self, parts: Parts, stored: StoredSession, baseline: Baseline, log_file: OpenLog) -> None:
        self._parts, self._log = parts, log_file
        self.id: SessionId = stored.id
        self.slot = parts.settings.slots.main
        self.history = History(baseline.system)
        self._recovered = log_file.recovered
        self._head = baseline.head(slot=self.slot, model=parts.settings.infer.model)
        self._lock = threading.RLock()
        self._running: _Running | None = None
        self._next = Broadcast()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.failed = False
        """A write failed: this object no longer knows what is on disk, and must be opened again."""
        for record in stored.records:
            self.history.add(record)
        self._finish_what_a_restart_cut_off()

    # -- for clients ----------------------------------------------------------------------------

    def say(self, key: MessageKey, text: str) -> Accepted:
        """Take a message in, once for each key, and see to it that its turn runs.

        Raises StateError and TooBusy; nothing is accepted then. What is accepted but cannot begin is told to the
        listener, not raised: the message is on disk.
        """
        with self._lock:
            known = self.history.turn_of(key)
            if known is None:
                self._make_room(text)
                said = User(time=self._parts.clock.now_ms(), key=key, content=self._parts.watch.neutralise(text))
                if self._idle():
                    return self._say_and_begin(said)
                self.write(said)
            turn = known or self.history.turn + 1
            queued = self._running is not None and turn > self._running.number
            listener = self._listener(turn)
            self._run_waiting()
            return Accepted(turn=turn, queued=queued, duplicate=known is not None, listener=listener)

    def follow(self, turn: int) -> Followed | None:
        """Look a turn up (0: the newest); None where there is none."""
        with self._lock:
            number = turn or self.history.turn + (1 if self.history.waiting and self._running is None else 0)
            newest = self.history.turn + (1 if self.history.waiting else 0)
            if not 1 <= number <= newest:
                return None
            listener = self._listener(number)
            queued = number > self.history.turn
            self._run_waiting()
            state = TurnState.ENDED if listener is None else TurnState.QUEUED if queued else TurnState.RUNNING
            return Followed(turn=number, state=state, listener=listener)

    def cancel(self, turn: int = 0) -> int | None:
        """Stop the turn (0: whichever runs); return its number, or None where it is not the one that runs."""
        with self._lock:
            running = self._running
        if running is None or turn not in (0, running.number):
            return None
        running.cancel.cancel()
        return running.number

    def knows(self, key: MessageKey) -> bool:
        """A message of that key was accepted."""
        with self._lock:
            return self.history.turn_of(key) is not None

    @property
    def begun(self) -> bool:
        """Something was said in it."""
        with self._lock:
            return bool(self.history.turn or self.history.waiting)

    @property
    def busy(self) -> bool:
        """A turn runs; read without the lock."""
        return self._running is not None

    def leave(self, accepted: Accepted | Followed) -> None:
        """The client of this listener went away."""
        with self._lock:
            if accepted.listener is not None:
                (self._running.broadcast if self._running else self._next).leave(accepted.listener)
                self._next.leave(accepted.listener)

    def stop(self) -> None:
        """Loopd is stopping: end the running turn as interrupted and start no other."""
        with self._lock:
            self._stopping = True
            running = self._running
            if running is None:
                self._let_waiters_go()
        if running is not None:
            running.turn.interrupted = True
            running.cancel.cancel()

    def join(self, seconds: float) -> bool:
        """Wait for the turn to end; say whether it did."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def close(self) -> None:
        """Let the log file go. Only where no turn runs."""
        self._log.close()

    # -- for the turn (loopd.parts.Conversation) -------------------------------------------------

    def write(self, *records: Record) -> None:
        """Append durably, then fold in: memory never runs ahead of the disk. Raises StateError."""
        with self._lock:
            try:
                self._log.append(*records)
            except StateError:
                self.failed = True
                raise
            for record in records:
                self.history.add(record)

    def request(self) -> bytes:
        """The body of the next request."""
        with self._lock:
            return self.history.prompt.body(self._head)

    def keep_result(self, call: CallId, text: str) -> None:
        """Keep a whole result beside the log. Raises StateError."""
        self._log.keep_result(call, text)

    # -- inside ---------------------------------------------------------------------------------

    def _listener(self, turn: int) -> Listener | None:
        if self._running is not None and turn == self._running.number:
            return self._running.broadcast.listen()
        return self._next.listen() if turn > self.history.turn else None

    def _make_room(self, text: str) -> None:
        limits, history = self._parts.settings.limits, self.history
        size_bytes = history.prompt.waiting_bytes + len(text.encode())
        if len(history.waiting) >= limits.waiting_messages or (history.waiting and size_bytes > limits.waiting_bytes):
            raise TooBusy("as many messages wait for the session's next turn as may wait; let the turn end first")

    def _idle(self) -> bool:
        return self._running is None and not (self.history.waiting or self._stopping or self.failed)

    def _say_and_begin(self, said: User) -> Accepted:
        """The usual case: the message and the start of its turn in one write, for the wait is the owner's."""
        listener = self._next.listen()
        try:
            running = self._begin_turn(said)
        except StateError:
            self._next.leave(listener)
            raise
        self._start(running)
        return Accepted(turn=running.number, queued=False, duplicate=False, listener=listener)

    def _run_waiting(self) -> None:
        if self._running is not None:
            return
        running = self._begin_next()
        if running is None:
            self._let_waiters_go()
        else:
            self._start(running)

    def _start(self, running: _Running) -> None:
        self._thread = threading.Thread(target=self._run, name=f"turn-{self.id}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: the turn ends before it began, and says so
            log.exception("no thread for a turn session=%s code=internal", self.id)
            self._thread = None
            self._end_turn(running, self._broken(running))

    def _begin_turn(self, *said: User) -> _Running:
        """Begin the next turn with what waits and with `said`, which is written in the same breath."""
        number, cancel, broadcast = self.history.turn + 1, CancelToken(), self._next
        keys = (*self.history.waiting, *(message.key for message in said))
        self.write(*said, TurnStart(time=self._parts.clock.now_ms(), turn=number, keys=keys))
        turn = Turn(self._parts, self, number=number, cancel=cancel, tell=broadcast.tell)
        self._running = _Running(number=number, turn=turn, cancel=cancel, broadcast=broadcast)
        self._next = Broadcast()
        log.info("turn began session=%s turn=%d messages=%d", self.id, number, len(keys))
        broadcast.tell(TurnStarted(turn=number, keys=keys))
        self._tell_of_recovery(broadcast, number)
        return self._running

    def _tell_of_recovery(self, broadcast: Broadcast, turn: int) -> None:
        if self._recovered is not None:
            text = f"the end of this session's log was unreadable and is set aside: {self._recovered.bytes} bytes"
            broadcast.tell(TurnNotice(turn=turn, code="log_recovered", text=text))
            self._recovered = None

    def _run(self) -> None:
        running = self._running
        while running is not None:
            running = self._end_turn(running, self._taken(running))

    def _taken(self, running: _Running) -> TurnEnded:
        try:
            return running.turn.run()
        except Exception:
            # The thread's outermost frame: whatever this was, nobody may wait for its end for ever.
            log.exception("turn broke off session=%s turn=%d code=internal", self.id, running.number)
            return self._broken(running)

    def _broken(self, running: _Running) -> TurnEnded:
        """Give this object up after a fault of ours: opening the log again completes the turn."""
        self.failed = True
        ending = TurnEnding.INTERNAL
        return TurnEnded(
            turn=running.number,
            ending=ending,
            text=self.history.last_text,
            sentence=endings.sentence(ending),
            steps=0,
            prompt=0,
            cached=0,
            read=0,
            output=0,
            elapsed_ms=0,
        )

    def _end_turn(self, running: _Running, ended: TurnEnded) -> _Running | None:
        """Tell the end; return the next turn, begun, where messages wait for one."""
        with self._lock:
            log.info("turn ended session=%s turn=%d ending=%s", self.id, running.number, ended.ending.value)
            running.broadcast.tell(ended)
            running.broadcast.end()
            # Busy until then: a session that seems idle may be let go, and its log closed.
            self._running = self._begin_next()
            if self._running is None:
                self._let_waiters_go()
            return self._running

    def _let_waiters_go(self) -> None:
        """No turn will follow by itself: whoever waits for one, now or later, hears why."""
        if self._stopping:
            self._next.end(_STOPPING)
        elif self.failed:
            self._next.end(_UNWRITABLE)

    def _begin_next(self) -> _Running | None:
        if not self.history.waiting or self._stopping or self.failed:
            return None
        try:
            return self._begin_turn()
        except StateError as fault:
            log.error("cannot begin the next turn session=%s code=%s", self.id, fault.code)
        except Exception:
            # The thread's outermost frame, as in _taken.
            log.exception("cannot begin the next turn session=%s code=internal", self.id)
            self.failed = True
        return None

    def _finish_what_a_restart_cut_off(self) -> None:
        """A turn that was killed gets its missing results and its end, so that the session can go on."""
        turn = self.history.open_turn
        if turn is None:
            return
        now = self._parts.clock.now_ms()
        lost = replyrecords.lost_results(self.history, time=now, turn=turn, why=endings.LOST_CALL)
        ending = TurnEnding.INTERRUPTED
        words = endings.sentence(ending)
        end = TurnEnd(time=now, turn=turn, ending=ending, sentence=words, detail=None, dropped=False)
        self.write(*lost, end)
        log.info("completed an interrupted turn session=%s turn=%d lost_calls=%d", self.id, turn, len(lost))
