"""Follows open turns at loopd until they end, and keeps their answers to be posted.

A session's turns are followed one after the other, in order, by a thread of that session; MOST sessions at a time,
those that wait longest first. Invariant: a turn is answered in one step with its posts, so that a kill before it
leaves the turn open and a kill after it leaves nothing to follow. Threads: one per session at work; one lock, held
while the table is looked at and threads are started, never while loopd is waited for.
"""

import threading
from collections.abc import Callable

import attrs

from bxcore import logs
from bxcore.client import PeerSilent, RemoteFault
from bxcore.errors import BoxmakerError, StateError
from bxcore.ids import SessionId
from bxcore.wire.control import ErrorCode
from gatewayd import answers
from gatewayd.backoff import Backoff
from gatewayd.condition import Condition, Part
from gatewayd.entries import OpenTurn, Outgoing
from gatewayd.loopport import Ended, LoopPort, Stopped
from gatewayd.store import Store

log = logs.get("following")

MOST = 64
"""Sessions that are followed at a time: half of the connections that loopd takes."""

_GONE = frozenset({ErrorCode.NO_SESSION.value, ErrorCode.NO_TURN.value})
_ITS_OWN = frozenset(
    code.value
    for code in (
        ErrorCode.SESSION_DAMAGED,
        ErrorCode.STATE_UNREADABLE,
        ErrorCode.BAD_MESSAGE,
        ErrorCode.INTERNAL,
    )
)
"""Faults that belong to the turn or its session: told after so many tries. Any other is loopd's, and time mends it."""


@attrs.frozen(kw_only=True)
class Follows:
    """What following needs of its surroundings. `compose` makes the posts of a turn's end."""

    store: Store
    port: LoopPort
    condition: Condition
    attempts: int
    backoff: Callable[[], Backoff]
    compose: Callable[[OpenTurn, Ended], tuple[Outgoing, ...]]
    on_answered: Callable[[], None]
    """A turn was answered: there are posts to be made."""
    on_turns: Callable[[], None]
    """Other turns run than before."""
    on_unseen: Callable[[], None]
    """Open turns could not be looked for: somebody must `look` again."""


class Followers:
    """See the module's header."""

    def __init__(self, parts: Follows) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._at_work: dict[SessionId, threading.Thread] = {}
        self._running: dict[SessionId, OpenTurn] = {}
        self._stopping = threading.Event()

    def look(self) -> None:
        """See to it that each open turn is followed. Raises StateError."""
        with self._lock:
            if self._stopping.is_set():
                return
            open_turns = sorted(self._parts.store.open_turns(), key=lambda turn: turn.since)
            for turn in open_turns:
                if len(self._at_work) >= MOST:
                    return
                if turn.session not in self._at_work:
                    self._start(turn.session)

    def running(self) -> tuple[OpenTurn, ...]:
        """Return the turns that loopd works at, as far as it said so."""
        with self._lock:
            return tuple(self._running.values())

    def stop(self) -> None:
        """Start no other thread; those at work end once the port is stopped."""
        self._stopping.set()

    def join(self, seconds: float) -> bool:
        """Wait for each thread so long at most; say whether all have ended."""
        with self._lock:
            threads = list(self._at_work.values())
        for thread in threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in threads)

    # -- inside ---------------------------------------------------------------------------------

    def _start(self, session: SessionId) -> None:
        thread = threading.Thread(target=self._work, args=(session,), name=f"follow-{session}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: the next look tries again
            log.exception("no thread to follow a session=%s code=threads_exhausted", session)
            return
        self._at_work[session] = thread

    def _work(self, session: SessionId) -> None:
        pauses = self._parts.backoff()
        while not self._stopping.is_set():
            try:
                turn = self._next(session)
                if turn is None:
                    break
                self._answer(turn)
                pauses.reset()
            except Stopped:
                break
            except StateError as fault:
                self._parts.condition.trouble(Part.STATE, fault)
                self._stopping.wait(pauses.next_ms() / 1000)
            except Exception:
                # The thread's outermost frame: whatever this was, the turn stays open and is tried again.
                log.exception("following broke off session=%s code=internal", session)
                self._stopping.wait(pauses.next_ms() / 1000)
        self._left(session)

    def _next(self, session: SessionId) -> OpenTurn | None:
        """Return the session's next open turn. Where there is none the session is nobody's any more, in one step."""
        with self._lock:
            turn = next((turn for turn in self._parts.store.open_turns() if turn.session == session), None)
            if turn is None:
                self._at_work.pop(session, None)
            return turn

    def _left(self, session: SessionId) -> None:
        if self._stopping.is_set():
            with self._lock:
                self._running.pop(session, None)
            return
        try:
            self.look()
        except StateError as fault:
            self._parts.condition.trouble(Part.STATE, fault)
            self._parts.on_unseen()

    # -- one turn -------------------------------------------------------------------------------

    def _answer(self, turn: OpenTurn) -> None:
        """Follow the turn and keep its answer; raises StateError where it could not be kept."""
        try:
            outgoing = self._followed(turn)
        finally:
            self._shown(turn, running=False)
        self._parts.store.answered(turn.session, turn.turn, outgoing)
        self._parts.condition.well(Part.STATE)
        log.info("turn answered session=%s turn=%d posts=%d", turn.session, turn.turn, len(outgoing))
        self._parts.on_answered()

    def _followed(self, turn: OpenTurn) -> tuple[Outgoing, ...]:
        """Return the posts of the turn's end, however often the way to loopd breaks meanwhile."""
        pauses, tries = self._parts.backoff(), 0

        def found() -> None:
            pauses.reset()
            self._parts.condition.well(Part.LOOP)
            self._shown(turn, running=True)

        while True:
            try:
                return self._composed(turn, self._parts.port.follow(turn.session, turn.turn, found=found))
            except BoxmakerError as fault:
                self._shown(turn, running=False)
                its_own = isinstance(fault, RemoteFault) and fault.code in _ITS_OWN | _GONE
                tries += its_own
                if fault.code in _GONE or tries >= self._parts.attempts:
                    log.error("turn lost session=%s turn=%d code=%s", turn.session, turn.turn, fault.code)
                    return answers.own_words(turn, answers.lost(fault.code))
                if not its_own:
                    self._tell(fault)
            if self._stopping.wait(pauses.next_ms() / 1000):
                raise Stopped

    def _composed(self, turn: OpenTurn, ended: Ended) -> tuple[Outgoing, ...]:
        try:
            return self._parts.compose(turn, ended)
        except Exception:
            # A text that breaks us would break us at each try, and keep the turns after it.
            log.exception("answer not prepared session=%s turn=%d code=internal", turn.session, turn.turn)
            return answers.own_words(turn, answers.UNPREPARED.format(session=turn.session))

    def _tell(self, fault: BoxmakerError) -> None:
        # Silence and being let go are no trouble: the turn goes on, and is looked up again.
        if not isinstance(fault, PeerSilent) and fault.code != ErrorCode.LAGGED.value:
            self._parts.condition.trouble(Part.LOOP, fault)

    def _shown(self, turn: OpenTurn, *, running: bool) -> None:
        with self._lock:
            changed = (turn.session in self._running) is not running
            if running:
                self._running[turn.session] = turn
            else:
                self._running.pop(turn.session, None)
        if changed:
            self._parts.on_turns()
