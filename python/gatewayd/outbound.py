"""Makes the posts that wait, one after the other, each once.

Invariant (INV-6): that a post may be there from now on is on disk before the server is asked; from then on it is looked
for, by its key, before it is made again. Time mends a server that is away: everything waits, in order. Where it breaks
at one post alone, those of other threads go first. What the server says it will never take, and what it did not take
for `limits.give_up_ms`, is set aside with the rest of its answer, and the owner can see it. Writes: Mattermost, and the
queue. Threads: one of its own, with a connection of its own; `wake` and `stop` from any.
"""

import random
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from bxcore import hosts, logs
from bxcore.deadline import Clock
from bxcore.errors import StateError
from bxcore.ids import MattermostId
from bxcore.settings.gatewayd import GatewaydSettings
from gatewayd import answers, lookup, split
from gatewayd.answers import PostSize
from gatewayd.backoff import Backoff
from gatewayd.condition import Condition, Part
from gatewayd.entries import Outgoing, Unsent
from gatewayd.faults import (
    MattermostAway,
    MattermostDenied,
    MattermostFault,
    MattermostRefused,
    MattermostUnclear,
    TokenRefused,
)
from gatewayd.heldback import HeldBack
from gatewayd.posts import Account, Post
from gatewayd.store import Store
from gatewayd.worker import AskingWorker, Rest

log = logs.get("outbound")

FIRST_PAUSE_MS = 1_000
HELD_AT_ONCE = 3
"""So many posts in a row that the server breaks at are a server that breaks at posts: the round ends."""

GIVEN_UP = "answer_too_old"
THREAD_DELETED = "thread_deleted"
_ROOT_GONE = "api.post.create_post.root_id.app_error"
_TOO_LONG = "model.post.is_valid.message_length.app_error"
_TOO_LARGE = 413


class HasSize(Protocol):
    """What the server's configuration says; gatewayd.mattermost.ServerConfig."""

    @property
    def max_post_characters(self) -> int: ...


class Server(lookup.Server, lookup.Maker, Protocol):
    """As much of gatewayd.mattermost.Mattermost as is used here."""

    def me(self) -> Account: ...

    def config(self) -> HasSize: ...

    def close(self) -> None: ...


class Poster(AskingWorker[Server]):
    """See the module's header. `bot` is our own user; `size` is what answers are split by, and is lowered here."""

    def __init__(
        self,
        *,
        store: Store,
        api: Callable[[], Server],
        settings: GatewaydSettings,
        bot: MattermostId,
        condition: Condition,
        clock: Clock,
        size: PostSize,
        first_pause_ms: int = FIRST_PAUSE_MS,
    ) -> None:
        super().__init__("poster", api)
        self._store = store
        self._bot = bot
        self._condition = condition
        self._clock = clock
        self._size = size
        self._hosts = tuple(hosts.rule(host) for host in settings.links.hosts)
        self._give_up_ms = settings.limits.give_up_ms
        self._most_pause_ms = settings.mattermost.retry_most_ms
        self._pauses = Backoff(first_pause_ms, self._most_pause_ms, random.random)
        self._late = HeldBack(first_pause_ms, self._most_pause_ms, clock, random.random)
        self._broken = 0  # posts in a row that the server broke at
        self._pending: dict[int, str] = {}

    # -- the queue ------------------------------------------------------------------------------

    def _ask(self, server: Server) -> Rest:
        pause_ms = self._tried(server)
        if pause_ms is not None:
            return Rest(ms=pause_ms, deaf=True)  # not to be shortened by another post
        self._pauses.reset()
        return Rest(ms=self._late.until_due_ms())

    def _tried(self, server: Server) -> int | None:
        """Make what waits; return after how many milliseconds to go on, None where nothing is left but what is held."""
        try:
            self.post_all(server)
        except StateError as fault:
            self._condition.trouble(Part.STATE, fault)
        except MattermostFault as fault:
            if not self._stopping.is_set():  # else it was us who ended the call
                self._condition.trouble(Part.OUTBOUND, fault)
            return self._pause_ms(fault)
        except Exception:
            log.exception("posting broke off code=internal")  # the thread's outermost frame
        else:
            self._condition.well(Part.STATE)
            return None
        return self._pauses.next_ms()

    def _pause_ms(self, fault: MattermostFault) -> int:
        if isinstance(fault, TokenRefused):
            return self._most_pause_ms
        return max(self._pauses.next_ms(), fault.retry_ms)

    def post_all(self, server: Server) -> None:
        """Make what waits, in the caller's thread. Raises MattermostFault where all must wait, and StateError."""
        self._broken = 0
        self._post_others(server)
        # Only now those that failed before: however many they are, all others had their turn.
        while not self._stopping.is_set() and (unsent := self._late.due()) is not None:
            self._post(server, unsent)
            self._post_others(server)

    def _post_others(self, server: Server) -> None:
        """Make what waits for nothing that is held."""
        after = 0
        while not self._stopping.is_set() and (page := self._store.unsent(after=after)):
            for unsent in page:
                if not self._late.holds(unsent) and not self._post(server, unsent):
                    break  # the queue is another than it was
                after = unsent.number

    # -- one post -------------------------------------------------------------------------------

    def _post(self, server: Server, unsent: Unsent) -> bool:
        """Make one post, or set it aside; say whether those after it are still to be made as they were read."""
        old = self._clock.now_ms() - unsent.made > self._give_up_ms
        try:
            post = self._found(server, unsent) or (None if old else self._made(server, unsent))
        except (MattermostDenied, MattermostRefused, MattermostAway, MattermostUnclear) as fault:
            if self._about_this_post(server, fault):
                return self._refused(server, unsent, fault)
            if old:
                return self._set_aside(unsent, GIVEN_UP)
            if self._is_held(server, unsent, fault):
                return True
            raise
        if post is None:
            return self._set_aside(unsent, GIVEN_UP)
        self._store.sent(unsent.number, post.id)
        self._forget(unsent)
        self._broken = 0
        self._pauses.reset()
        if not self._late:
            self._condition.well(Part.OUTBOUND)
        return True

    def _found(self, server: Server, unsent: Unsent) -> Post | None:
        if not unsent.tried:
            return None
        try:
            return lookup.find(server, unsent, bot=self._bot)
        except MattermostDenied:
            # The thread or the channel is gone: making the post says which.
            return None

    def _made(self, server: Server, unsent: Unsent) -> Post:
        outgoing = unsent.outgoing
        pending = self._pending.setdefault(unsent.number, secrets.token_hex(13))
        self._store.trying(unsent.number)
        post = server.create_post(
            outgoing.channel,
            outgoing.message,
            root=outgoing.root,
            props=lookup.props(outgoing.key),
            pending=pending,
        )
        if post.message != outgoing.message:
            log.error(
                "the server changed a post post=%s sent=%d kept=%d code=answer_altered",
                post.id,
                len(outgoing.message),
                len(post.message),
            )
        return post

    def _about_this_post(self, server: Server, fault: MattermostFault) -> bool:
        """Say whether this post is refused, and not by somebody on the way."""
        if not isinstance(fault, MattermostDenied | MattermostRefused):
            return False
        if fault.error or fault.status == _TOO_LARGE:
            return True
        # A refusal in nobody's name is a proxy's, and one whose server is being restarted says 404 to everything.
        return self._is_well(server)

    def _is_held(self, server: Server, unsent: Unsent, fault: MattermostFault) -> bool:
        """Say whether those of other places are to be tried: the server works, and breaks at this one again and again.

        It may break at every post; so nothing is set aside for that before its time.
        """
        if not self._is_well(server) or not self._late.failed(unsent):
            return False
        self._broken += 1
        self._condition.trouble(Part.OUTBOUND, fault)
        return self._broken < HELD_AT_ONCE

    def _is_well(self, server: Server) -> bool:
        if self._stopping.is_set():
            return False
        try:
            server.me()
        except MattermostFault:
            return False
        return True

    # -- what the server does not take ----------------------------------------------------------

    def _refused(self, server: Server, unsent: Unsent, fault: MattermostFault) -> bool:
        if fault.error == _ROOT_GONE and unsent.outgoing.root is not None:
            return self._set_aside(unsent, THREAD_DELETED, _told_elsewhere(unsent.outgoing))
        if fault.status == _TOO_LARGE or fault.error == _TOO_LONG:
            self._size.lower(server.config().max_post_characters)
            if self._split_again(unsent):
                return False
        self._condition.trouble(Part.OUTBOUND, fault)
        return self._set_aside(unsent, fault.code)

    def _set_aside(self, unsent: Unsent, why: str, outgoing: Sequence[Outgoing] = ()) -> bool:
        rest = self._rest(unsent)
        numbers = [later.number for later in rest]
        log.error("posts set aside first=%s posts=%d why=%s", unsent.outgoing.key, len(numbers), why)
        self._store.park(numbers, why, outgoing)
        for later in rest:
            self._forget(later)
        return False

    def _forget(self, unsent: Unsent) -> None:
        self._pending.pop(unsent.number, None)
        self._late.forget(unsent)

    def _split_again(self, unsent: Unsent) -> bool:
        """Make more and smaller posts of what is left of an answer; say whether that is any use."""
        rest = self._rest(unsent)
        limit = self._size.characters
        if len(unsent.outgoing.message) <= limit:
            return False
        smaller = [piece for later in rest for piece in self._pieces(later.outgoing, limit)]
        self._store.replace([later.number for later in rest], smaller)
        for later in rest:
            self._forget(later)
        log.warning("an answer is split again first=%s limit=%d", unsent.outgoing.key, limit)
        return True

    def _pieces(self, outgoing: Outgoing, limit: int) -> list[Outgoing]:
        texts = split.parts(outgoing.message, limit=limit, hosts=self._hosts)
        return [
            Outgoing(key=f"{outgoing.key}.{number}", channel=outgoing.channel, root=outgoing.root, message=text)
            for number, text in enumerate(texts, 1)
        ]

    def _rest(self, unsent: Unsent) -> Sequence[Unsent]:
        """Return the post, and where it is one of an answer those that follow it there."""
        answer = answers.answer_of(unsent.outgoing.key)
        return self._store.of_answer(answer[1]) if answer else (unsent,)


def _told_elsewhere(outgoing: Outgoing) -> tuple[Outgoing, ...]:
    """Return what is said at the top of the channel where an answer has no thread any more."""
    answer = answers.answer_of(outgoing.key)
    if answer is None:
        return ()  # a note to somebody who removed what it is about
    session, prefix = answer
    words = f"The thread was deleted, so its answer is not posted. `bxctl sessions show {session}` shows it."
    return (Outgoing(key=f"gone:{prefix}", channel=outgoing.channel, root=None, message=f"*{words}*"),)
