"""All parts of gatewayd, built and wired: who wakes whom, what starts after what, and what stops first.

Before the server has said who the bot is, only its sockets are served and only what is true without it is said.
Invariant: a part is stopped before those that it hands work to, and what it did not finish is in the queue.
Threads: `begin` has one of its own, which ends when the parts run; `start`, `stop` and `join` belong to one thread.
"""

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from bxcore import logs
from bxcore.deadline import Clock, Deadline
from bxcore.errors import BoxmakerError
from bxcore.ids import MattermostId
from bxcore.secrets import Secret
from bxcore.settings.gatewayd import GatewaydSettings
from gatewayd import account
from gatewayd.answers import PostSize
from gatewayd.condition import Condition
from gatewayd.conversation import Conversation
from gatewayd.doing import Doing
from gatewayd.events import Events
from gatewayd.faults import MattermostAway, MattermostFault
from gatewayd.inbound import Inbound
from gatewayd.mattermost import Mattermost
from gatewayd.outbound import Poster
from gatewayd.owner import Owner
from gatewayd.posts import Account
from gatewayd.questionposts import World
from gatewayd.questions import Questions
from gatewayd.store import Store
from gatewayd.typingshown import SHOWN_MS, Typing

log = logs.get("parts")


class Part(Protocol):
    """Whatever has threads."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def join(self, milliseconds: int, /) -> bool: ...


class Parts:
    """See the module's header. `failure` is what ended the start; it is valid after `on_failure`."""

    def __init__(self, settings: GatewaydSettings, token: Secret, *, store: Store, clock: Clock) -> None:
        self._settings, self._token, self._store, self._clock = settings, token, store, clock
        self.failure: BaseException | None = None
        self._condition = Condition(clock)
        self._account: Account | None = None
        self._size, self._typing_ms = PostSize(), SHOWN_MS
        self._poster: Poster | None = None
        self._typing: Typing | None = None
        self._events: Events | None = None
        self._lock = threading.Lock()  # around the two below, and the decision to start
        self._running: list[Part] = []
        self._first: Mattermost | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        world = World(
            store=store,
            api=self._api,
            condition=self._condition,
            clock=clock,
            retry_most_ms=settings.mattermost.retry_most_ms,
            bot=self._bot,
        )
        approvers = tuple(map(MattermostId, settings.approvers))
        self.questions = Questions(world, approvers=approvers, on_outgoing=self._outgoing)
        self.owner = Owner(
            settings=settings,
            store=store,
            condition=self._condition,
            api=self._api,
            bot=lambda: self._account,
            questions=self.questions.open_count,
        )

    # -- starting, stopping ---------------------------------------------------------------------

    def start(self, *, tried: Callable[[], None], on_failure: Callable[[], None]) -> None:
        """Ask the server who we are, for as long as that takes, then start everything.

        `tried` is called after the first try; `on_failure` where gatewayd has to end.
        """
        self._thread = threading.Thread(target=self._begin, args=(tried, on_failure), name="begin", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all parts soon, those first that hand work on. May be called twice."""
        self._stopping.set()
        self._store.hurry()
        with self._lock:
            running = list(self._running)
            if self._first is not None:
                self._first.close()  # ends a call that is under way
        for part in running:
            part.stop()
        self.questions.stop()

    def join(self, milliseconds: int) -> bool:
        """Wait so long at most for all threads; say whether they have ended."""
        deadline = Deadline.after(self._clock, milliseconds=milliseconds)
        if self._thread is not None:
            self._thread.join(deadline.remaining_ms() / 1000)
        left = [part for part in self._running if not part.join(deadline.remaining_ms())]
        for part in left:
            log.warning("a part has not ended part=%s code=drain_passed", type(part).__name__.lower())
        return not left

    def _begin(self, tried: Callable[[], None], on_failure: Callable[[], None]) -> None:
        try:
            found = account.check(
                self._first_api, self._settings, self._condition, stopping=self._stopping, tried=tried
            )
            if found is not None:
                self._account = found
                self._learn_limits()
                self._start_all(found)
        except BaseException as error:  # handed to the main thread, which says it and ends with its code
            if not isinstance(error, BoxmakerError):
                log.exception("the start failed code=internal")
            self.failure = error
            on_failure()

    def _start_all(self, found: Account) -> None:
        parts = self._built(found)
        with self._lock:
            if self._stopping.is_set():
                return
            self._running = parts
            # Backwards: whoever hands work on comes after whoever takes it.
            for part in reversed(parts):
                part.start()
        log.info("working bot=%s post_characters=%d", found.id, self._size.characters)

    # -- building -------------------------------------------------------------------------------

    def _built(self, found: Account) -> list[Part]:
        """Return all parts, those first that hand work on."""
        settings, store, clock, condition = self._settings, self._store, self._clock, self._condition
        self._poster = poster = Poster(
            store=store,
            api=self._api,
            settings=settings,
            bot=found.id,
            condition=condition,
            clock=clock,
            size=self._size,
        )
        conversation = Conversation(
            store=store,
            settings=settings,
            condition=condition,
            clock=clock,
            size=self._size,
            on_answered=poster.wake,
            on_turns=self._turns_changed,
        )
        self._typing = typing = Typing(
            running=conversation.running, api=self._api, clock=clock, shown_ms=lambda: self._typing_ms
        )
        doing = Doing(
            store=store,
            condition=condition,
            turns=conversation,
            questions=self.questions,
            attempts=settings.limits.attempts,
            on_outgoing=poster.wake,
        )
        inbound = Inbound(
            store=store,
            api=self._api,
            settings=settings,
            account=found,
            condition=condition,
            clock=clock,
            on_accepted=lambda: _wake(conversation, doing, poster),
            turns=conversation,
            on_deleted=self.questions.deleted,
        )
        self._events = events = Events(
            settings.mattermost, self._token, clock=clock, condition=condition, sink=inbound.put, api=self._api
        )
        return [events, inbound, doing, conversation, typing, self.questions, poster]

    def _learn_limits(self) -> None:
        try:
            with closing(self._first_api()) as api:
                config = api.config()
        except MattermostFault as error:
            log.warning("the server's limits are not known, the smallest are kept code=%s", error.code)
            return
        self._size.characters, self._typing_ms = config.max_post_characters, config.typing_ms

    def _api(self) -> Mattermost:
        return Mattermost(self._settings.mattermost, self._token, on_token_refused=self._doubt)

    def _doubt(self) -> None:
        if self._events is not None:
            self._events.doubt()

    def _first_api(self) -> Mattermost:
        """Return the connection of the start, which `stop` ends."""
        made = self._api()  # outside of the lock, which `stop` takes: the first one reads certificates
        with self._lock:
            self._first = made
            if self._stopping.is_set():
                made.close()
            return made

    def _bot(self) -> MattermostId:
        if self._account is None:
            raise MattermostAway("the server has not said yet who we are")
        return self._account.id

    def _outgoing(self) -> None:
        if self._poster is not None:
            self._poster.wake()

    def _turns_changed(self) -> None:
        if self._typing is not None:
            self._typing.wake()


class _Wakes(Protocol):
    def wake(self) -> None: ...


def _wake(*parts: _Wakes) -> None:
    for part in parts:
        part.wake()
