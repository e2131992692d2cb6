"""From the queue to loopd and back: says what waits, follows the turns, keeps the answers to be posted.

Threads: the sayer's, and one per session at work (gatewayd.following). Every method may be called from any thread.
"""

import random
from collections.abc import Callable

from bxcore import hosts, logs
from bxcore.client import RemoteFault
from bxcore.deadline import Clock, Deadline
from bxcore.errors import BoxmakerError
from bxcore.ids import SessionId
from bxcore.settings.gatewayd import GatewaydSettings
from bxcore.wire.channel import LoopStatusReport
from bxcore.wire.control import ErrorCode
from gatewayd import answers
from gatewayd.answers import PostSize
from gatewayd.backoff import Backoff
from gatewayd.condition import Condition
from gatewayd.entries import OpenTurn, Outgoing
from gatewayd.following import Followers, Follows
from gatewayd.loopport import Ended, LoopPort
from gatewayd.saying import Sayer, Says
from gatewayd.store import Store

log = logs.get("conversation")

FIRST_PAUSE_MS = 200
MOST_PAUSE_MS = 5_000
"""loopd is on this machine: asking it once more costs nothing."""


class Conversation:
    """See the module's header. `on_answered`: posts are to be made; `on_turns`: other turns run than before."""

    def __init__(
        self,
        *,
        store: Store,
        settings: GatewaydSettings,
        condition: Condition,
        clock: Clock,
        size: PostSize,
        on_answered: Callable[[], None],
        on_turns: Callable[[], None],
        first_pause_ms: int = FIRST_PAUSE_MS,
    ) -> None:
        self._clock = clock
        self._size = size
        self._hosts = tuple(hosts.rule(host) for host in settings.links.hosts)
        self._port = LoopPort(settings.loop.socket, clock)
        attempts = settings.limits.attempts

        def pauses() -> Backoff:
            return Backoff(first_pause_ms, MOST_PAUSE_MS, random.random)

        self._followers = Followers(
            Follows(
                store=store,
                port=self._port,
                condition=condition,
                attempts=attempts,
                backoff=pauses,
                compose=self._compose,
                on_answered=on_answered,
                on_turns=on_turns,
                on_unseen=self.wake,
            )
        )
        self._sayer = Sayer(
            Says(
                store=store,
                port=self._port,
                condition=condition,
                look=self._followers.look,
                attempts=attempts,
                pauses=pauses(),
                on_outgoing=on_answered,
            )
        )
        self._closed = False

    def start(self) -> None:
        """Begin: first with the turns that were open when gatewayd ended."""
        self._sayer.start()

    def wake(self) -> None:
        """Posts were accepted. Never blocks."""
        self._sayer.wake()

    def stop(self) -> None:
        """End soon. Turns go on at loopd and are found again at the next start. May be called twice."""
        if not self._closed:
            self._followers.stop()
            self._sayer.stop()
            self._port.stop()

    def join(self, ms: int) -> bool:
        """Wait so long at most for the threads to end; say whether they have."""
        deadline = Deadline.after(self._clock, milliseconds=ms)
        ended = self._sayer.join(deadline.remaining_ms())
        ended = self._followers.join(deadline.remaining_ms() / 1000) and ended
        if ended and not self._closed:
            self._closed = True
            self._port.close()
        return ended

    # -- for the others -------------------------------------------------------------------------

    def running(self) -> tuple[OpenTurn, ...]:
        """Return the turns that loopd works at now."""
        return self._followers.running()

    def stop_turn(self, session: SessionId) -> bool:
        """Stop whichever turn of the session runs; say whether one did. Raises UpstreamError where loopd is away."""
        try:
            return self._port.cancel(session) is not None
        except RemoteFault as fault:
            if fault.code == ErrorCode.NO_SESSION.value:
                return False
            raise

    def cancel(self, session: SessionId) -> bool:
        """As stop_turn; also false where loopd is away."""
        try:
            return self.stop_turn(session)
        except BoxmakerError as fault:
            log.warning("turn not stopped session=%s code=%s", session, fault.code)
            return False

    def loop_status(self) -> LoopStatusReport | None:
        """Return how loopd is, None where it does not say."""
        try:
            return self._port.status()
        except BoxmakerError:
            return None

    def _compose(self, turn: OpenTurn, ended: Ended) -> tuple[Outgoing, ...]:
        return answers.posts(turn, ended.text, ended.sentence, limit=self._size.characters, hosts=self._hosts)
