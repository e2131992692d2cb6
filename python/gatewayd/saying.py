"""Says waiting posts to loopd, each on a short connection: in order within a thread, and no thread waits for another.

Invariant (INV-6): a post stays in the queue until loopd has it on disk, and is said under one key, so that a kill at
any step neither loses nor doubles it. A post that loopd does not take is tried a few times, then set aside and told.
Where loopd is away nothing is lost and nothing counted. Threads: one of its own; `wake` and `stop` from any.
"""

from collections.abc import Callable

import attrs

from bxcore import logs
from bxcore.client import PeerLeft, PeerSilent, RemoteFault
from bxcore.errors import BoxmakerError, StateError
from bxcore.ids import SessionId
from bxcore.wire.channel import MessageAccepted
from bxcore.wire.control import ErrorCode
from gatewayd import answers
from gatewayd.backoff import Backoff
from gatewayd.condition import Condition, Part
from gatewayd.entries import Incoming, Kind, State
from gatewayd.loopport import LoopPort, Stopped
from gatewayd.store import Store
from gatewayd.worker import UNTIL_WOKEN, Rest, Worker

log = logs.get("saying")

_PAGE = 256
_BROKEN_OFF = 3
"""Connections of one round that loopd took and did not answer on: then it is taken to be away."""

_AWAY = frozenset(
    code.value for code in (ErrorCode.NOT_READY, ErrorCode.BAD_VERSION, ErrorCode.FORBIDDEN, ErrorCode.DEADLINE)
)
"""What loopd says that concerns every post."""
_LATER = frozenset(code.value for code in (ErrorCode.STATE_UNWRITABLE, ErrorCode.STATE_IN_USE))
"""What concerns a session and mends by itself."""
_NEVER = frozenset(code.value for code in (ErrorCode.TEXT_TOO_LONG, ErrorCode.BAD_MESSAGE))
"""What no other try changes."""


class _Away(Exception):
    """Nobody can be said anything now."""


@attrs.frozen(kw_only=True)
class Says:
    """What saying needs of its surroundings. `on_outgoing`: there are posts to be made."""

    store: Store
    port: LoopPort
    condition: Condition
    look: Callable[[], None]
    """See to it that open turns are followed. Raises StateError."""
    attempts: int
    pauses: Backoff
    on_outgoing: Callable[[], None]


class Sayer(Worker):
    """See the module's header. The port must be stopped as well."""

    def __init__(self, parts: Says) -> None:
        super().__init__("sayer")
        self._parts = parts
        self._broken_off = 0
        self._at_work: frozenset[SessionId] | None = None  # whose turns ran when there was room for no other one's

    # -- inside ---------------------------------------------------------------------------------

    def _work(self) -> Rest:
        if self._tried():
            self._parts.pauses.reset()
            return UNTIL_WOKEN
        # Not to be shortened by another post: loopd would be asked as often as people type.
        return Rest(ms=self._parts.pauses.next_ms(), deaf=True)

    def _tried(self) -> bool:
        """Say what waits; return whether nothing is left."""
        try:
            self._parts.look()
            done = self._round()
            self._parts.condition.well(Part.STATE)
            if done:  # nobody waits for it, or all was taken; followers say anew what still is wrong
                self._parts.condition.well(Part.LOOP)
            return done
        except Stopped:
            return True
        except _Away:
            return False
        except StateError as fault:
            self._parts.condition.trouble(Part.STATE, fault)
        except Exception:
            log.exception("saying broke off code=internal")  # the thread's outermost frame
        return False

    def _round(self) -> bool:
        held: set[SessionId] = set()
        self._broken_off, self._at_work = 0, None
        page = self._parts.store.waiting(_PAGE, kind=Kind.MESSAGE)
        while page:
            for post in page:
                if self._stopping.is_set():
                    raise Stopped
                if post.session not in held and not (self._has_room(post) and self._say(post)):
                    held.add(post.session)
            page = self._parts.store.waiting(_PAGE, kind=Kind.MESSAGE, after=page[-1])
        return not held

    def _say(self, post: Incoming) -> bool:
        """Say one post; return whether the next one of its thread may follow."""
        if self._parts.store.known(post.id) is not State.WAITING:
            return True  # taken back since the page was read
        try:
            accepted = self._accepted(post)
            self._stop_if_taken_back(post, accepted)
        except RemoteFault as fault:
            return self._refused(post, fault)
        except (PeerLeft, PeerSilent) as fault:
            return self._unanswered(fault)
        except BoxmakerError as fault:
            self._parts.condition.trouble(Part.LOOP, fault)
            raise _Away from None
        self._parts.store.asked(post.id, post.session, accepted.turn)
        self._parts.condition.well(Part.LOOP)
        log.info("said session=%s turn=%d queued=%s", post.session, accepted.turn, accepted.queued)
        self._parts.look()
        return True

    def _accepted(self, post: Incoming) -> MessageAccepted:
        # A thread is not always what it seems: its first post was never said, or loopd's session was removed.
        new = post.first
        other = ErrorCode.SESSION_EXISTS if new else ErrorCode.NO_SESSION
        try:
            return self._parts.port.say(post, new=new)
        except RemoteFault as fault:
            if fault.code != other.value:
                raise
        return self._parts.port.say(post, new=not new)

    def _stop_if_taken_back(self, post: Incoming, accepted: MessageAccepted) -> None:
        """Whoever took it back while it was being said found no turn to stop."""
        if self._parts.store.known(post.id) is not State.WAITING:
            self._parts.port.cancel(post.session, accepted.turn)

    def _has_room(self, post: Incoming) -> bool:
        return self._at_work is None or post.session in self._at_work

    def _is_full(self, post: Incoming) -> None:
        """Too busy is a session at work for which enough is waiting; any other hears it of loopd itself."""
        if self._at_work is not None:
            raise _Away
        at_work = frozenset(turn.session for turn in self._parts.store.open_turns())
        if post.session not in at_work:
            self._at_work = at_work

    def _unanswered(self, fault: BoxmakerError) -> bool:
        self._parts.condition.trouble(Part.LOOP, fault)
        self._broken_off += 1
        if self._broken_off >= _BROKEN_OFF:
            raise _Away
        return False

    def _refused(self, post: Incoming, fault: RemoteFault) -> bool:
        if fault.code == ErrorCode.TOO_BUSY.value:
            self._parts.condition.trouble(Part.LOOP, fault)
            self._is_full(post)
            return False
        if fault.code in _AWAY | _LATER:
            self._parts.condition.trouble(Part.LOOP, fault)
            if fault.code in _AWAY:
                raise _Away
            return False
        tries = self._parts.store.attempted(post.id)
        if tries < self._parts.attempts and fault.code not in _NEVER:
            return False
        log.error("post set aside post=%s session=%s code=%s tries=%d", post.id, post.session, fault.code, tries)
        self._parts.store.settle(post.id, State.PARKED, [answers.not_said(post, fault.code)])
        self._parts.on_outgoing()
        return True
