"""The posts that put brokerd's questions: made part by part, and marked when they can no longer be answered.

Invariant: a post that looks answerable is in the store from before it is made until it is marked, so that none is
left so, whenever the process is killed. What is posted is brokerd's own text, unchanged. Writes: `asking` and
`questions` of the store. Threads: `make` in the worker of the question; `Marking` has one of its own.
"""

import heapq
import itertools
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from random import random
from typing import Any, Protocol, TypeVar

import attrs

from bxcore import logs
from bxcore.deadline import Clock
from bxcore.errors import StateError
from bxcore.ids import MattermostId, SessionId
from bxcore.timestamp import Timestamp
from bxcore.wire.approvals import ApprovalOpen
from gatewayd import lookup
from gatewayd.backoff import Backoff
from gatewayd.condition import Condition, Part
from gatewayd.entries import Asking, Outgoing, Question, Unsent, thread_of
from gatewayd.faults import MattermostDenied, MattermostFault, MattermostRefused
from gatewayd.posts import Channel, Post
from gatewayd.store import Store

FIRST_PAUSE_MS = 1_000

_FENCE = re.compile("`{3,}")

log = logs.get("questionposts")
T = TypeVar("T")


class Api(lookup.Server, lookup.Maker, Protocol):
    """As much of gatewayd.mattermost.Mattermost as is used here."""

    def patch_post(self, post: MattermostId, /, *, message: str, props: Mapping[str, Any]) -> Post: ...
    def post(self, post: MattermostId, /) -> Post: ...
    def direct(self, a: MattermostId, b: MattermostId) -> Channel: ...
    def close(self) -> None: ...


@attrs.frozen(kw_only=True)
class World:
    """What both halves need. `bot` is our own user; a MattermostFault until the server has said who that is."""

    store: Store
    api: Callable[[], Api]
    condition: Condition
    clock: Clock
    retry_most_ms: int
    bot: Callable[[], MattermostId]


@attrs.frozen(kw_only=True)
class Made:
    """A question that can be read. `thread` is where it is answered, `create_at` the server's time of its last part.

    `before` are the posts of its other parts.
    """

    question: Question
    thread: MattermostId
    create_at: Timestamp
    before: tuple[MattermostId, ...] = ()

    def stands_on(self, post: MattermostId) -> bool:
        """Say whether without this post it can not be read whole, or not be answered."""
        return post in (self.question.post, self.thread, *self.before)


class GivenUp(Exception):
    """The question need not be posted any more."""


def props(key: str) -> dict[str, str]:
    """Return the props of a post of ours that is changed: all of them, since it loses what is not said again."""
    return {**lookup.props(key), "from_bot": "true"}


def found(api: Api, asking: Asking, bot: MattermostId) -> Post | None:
    """Look up a post that may be there."""
    sought = Outgoing(key=asking.key, channel=asking.channel, root=asking.root, message=asking.message)
    return lookup.find(api, Unsent(number=0, outgoing=sought, tried=True, attempts=1, made=asking.made), bot=bot)


# -- making ---------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Place:
    channel: MattermostId
    root: MattermostId | None


class Posting:
    """Posts one question after the other, each in its caller's thread. The first of `approvers` is asked directly."""

    def __init__(self, world: World, *, approvers: tuple[MattermostId, ...]) -> None:
        self._world = world
        self._approvers = approvers
        self._lock = threading.Lock()  # around the connections that are open
        self._apis = set[Api]()

    def stop(self) -> None:
        """End the calls that are under way. Whoever waits is told by its own `wait`."""
        with self._lock:
            for api in self._apis:
                api.close()

    def make(
        self, opened: ApprovalOpen, *, wait: Callable[[int], bool], unknown: Callable[[Asking], None]
    ) -> Made | None:
        """Post all parts in order and return the whole; None where it is given up.

        Tries for ever: `wait` pauses so many milliseconds at most, and says whether to give up. `unknown` is told of
        a post that may be there and is given up.
        """
        api = self._world.api()
        with self._lock:
            self._apis.add(api)
        try:
            return _Maker(self._world, api, opened, wait, unknown).make(self._approvers)
        except GivenUp:
            self._world.condition.well(Part.QUESTIONS)  # nobody waits for it here; others say so again
            return None
        finally:
            with self._lock:
                self._apis.remove(api)
            api.close()


class _Maker:
    """One question being posted."""

    def __init__(
        self,
        world: World,
        api: Api,
        opened: ApprovalOpen,
        wait: Callable[[int], bool],
        unknown: Callable[[Asking], None],
    ) -> None:
        self._world = world
        self._api = api
        self._opened = opened
        self._wait = wait
        self._unknown = unknown
        self._key = f"question:{opened.id}:{secrets.token_hex(8)}"
        self._attempted = set[str]()
        self._backoff = Backoff(FIRST_PAUSE_MS, world.retry_most_ms, random)

    def make(self, approvers: tuple[MattermostId, ...]) -> Made:
        *before, last = self._opened.parts
        thread = _asking_thread(self._world.store, self._opened.session, approvers)
        while True:
            place = thread or self._directly(approvers[0])
            root = place.root
            posts: list[MattermostId] = []
            try:
                for number, part in enumerate(before, 1):
                    post = self._part(self._asking(place.channel, root, part, f"{self._key}:{number}"))
                    root = post.thread
                    posts.append(post.id)
                return attrs.evolve(self._last(place.channel, root, last), before=tuple(posts))
            except (MattermostDenied, MattermostRefused) as error:
                # The thread was deleted, or the bot is not in its channel any more: ask directly then.
                if thread is None:
                    self._pause(error)
                thread = None

    def _directly(self, approver: MattermostId) -> _Place:
        channel = self._tried(lambda: self._api.direct(self._world.bot(), approver), patient=True)
        return _Place(channel=channel.id, root=None)

    def _last(self, channel: MattermostId, root: MattermostId | None, message: str) -> Made:
        store = self._world.store
        asking = self._asking(channel, root, message, self._key)
        store.question_asking(asking)
        try:
            post = self._part(asking)
            question = Question(post=post.id, id=asking.id, channel=channel, root=post.root, message=message)
            store.question_posted(question, asking.key)
        except (MattermostDenied, MattermostRefused):
            store.question_never(asking.key)
            raise
        except (GivenUp, StateError):
            self._unknown(asking)
            raise
        self._world.condition.well(Part.QUESTIONS)
        return Made(question=question, thread=post.thread, create_at=post.create_at)

    def _asking(self, channel: MattermostId, root: MattermostId | None, message: str, key: str) -> Asking:
        now = self._world.clock.now_ms()
        return Asking(key=key, id=self._opened.id, channel=channel, root=root, message=message, made=now)

    def _part(self, asking: Asking) -> Post:
        def create() -> Post:
            # Not by the answer alone: one that did not come may have been a post all the same.
            there = found(self._api, asking, self._world.bot()) if asking.key in self._attempted else None
            self._attempted.add(asking.key)
            return there or self._api.create_post(
                asking.channel,
                asking.message,
                root=asking.root,
                props=lookup.props(asking.key),
                pending=asking.key,
            )

        return self._tried(create)

    def _tried(self, ask: Callable[[], T], *, patient: bool = False) -> T:
        """Ask until there is an answer. A no is raised unless `patient`."""
        while not self._wait(0):
            try:
                answer = ask()
            except (MattermostDenied, MattermostRefused) as error:
                if not patient:
                    raise
                self._pause(error)
            except MattermostFault as error:
                self._pause(error)
            else:
                self._backoff.reset()
                return answer
        raise GivenUp

    def _pause(self, error: MattermostFault) -> None:
        self._world.condition.trouble(Part.QUESTIONS, error)
        if self._wait(max(self._backoff.next_ms(), error.retry_ms)):
            raise GivenUp


def _asking_thread(store: Store, session: SessionId, approvers: tuple[MattermostId, ...]) -> _Place | None:
    """Return the caller's thread, unless it is known that nobody there may answer."""
    root = thread_of(session)
    thread = store.thread(root) if root is not None else None
    if thread is None or (thread.direct and thread.user not in approvers):
        return None
    return _Place(channel=thread.channel, root=thread.root)


# -- marking --------------------------------------------------------------------------------------


Job = Callable[[Api], None]


class Marking:
    """Does what is left to do about questions, in the background: marks posts, and looks after what was promised.

    A job that the server cannot be asked about now is done again later; one that it refuses is dropped by the job.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._changed = threading.Condition()
        self._jobs: list[tuple[int, int, Job]] = []
        self._count = itertools.count()
        self._stopping = False
        self._api: Api | None = None
        self._failed = set[Part]()
        self._thread = threading.Thread(target=self._work, name="questions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is not done yet is done at the next start."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            api = self._api
        if api is not None:
            api.close()  # ends a call that is under way

    def join(self, milliseconds: int) -> bool:
        if self._thread.ident is not None:
            self._thread.join(milliseconds / 1000)
        return not self._thread.is_alive()

    def mark(self, question: Question, headline: str) -> None:
        """Make a post say that it cannot be answered any more."""
        self.put(lambda api: self._mark(api, question, headline))

    def resolve(self, asking: Asking, headline: str) -> None:
        """The same for a post that may be there or not."""
        self.put(lambda api: self._resolve(api, asking, headline))

    def put(self, job: Job, *, in_ms: int = 0) -> None:
        """Do something in a while, in the order in which it is due."""
        with self._changed:
            due = self._world.clock.monotonic_ms() + in_ms
            heapq.heappush(self._jobs, (due, next(self._count), job))
            self._changed.notify_all()

    # -- inside ---------------------------------------------------------------------------------

    def _work(self) -> None:
        backoff = Backoff(FIRST_PAUSE_MS, self._world.retry_most_ms, random)
        with closing(self._world.api()) as api:
            with self._changed:
                self._api = api
            while (entry := self._next()) is not None:
                pause_ms = self._did(api, entry[2], backoff)
                if pause_ms:
                    self._put_back(entry, pause_ms)
                else:
                    backoff.reset()

    def _next(self) -> tuple[int, int, Job] | None:
        with self._changed:
            while not self._stopping:
                left_ms = self._jobs[0][0] - self._world.clock.monotonic_ms() if self._jobs else None
                if left_ms is not None and left_ms <= 0:
                    return heapq.heappop(self._jobs)
                self._changed.wait(None if left_ms is None else left_ms / 1000)
        return None

    def _did(self, api: Api, job: Job, backoff: Backoff) -> int:
        """Do a job and return 0, or after how many milliseconds to do it again."""
        try:
            job(api)
        except MattermostFault as error:
            if not self._stopping:  # else it was us who ended the call
                self._world.condition.trouble(Part.QUESTIONS, error)
                self._failed.add(Part.QUESTIONS)
            return max(backoff.next_ms(), error.retry_ms)
        except StateError as error:
            self._world.condition.trouble(Part.STATE, error)
            self._failed.add(Part.STATE)
            return backoff.next_ms()
        except Exception:
            log.exception("a question's post was not looked after code=internal")
        while self._failed:
            self._world.condition.well(self._failed.pop())
        return 0

    def _put_back(self, entry: tuple[int, int, Job], pause_ms: int) -> None:
        """Keep its place among the others, all of which wait with it: they would meet the same server."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, pause_ms / 1000)
            heapq.heappush(self._jobs, entry)

    def _mark(self, api: Api, question: Question, headline: str) -> None:
        message = closed(question, headline)
        try:
            api.patch_post(question.post, message=message, props=props(f"question:{question.id}:closed"))
        except (MattermostDenied, MattermostRefused) as error:
            log.warning("a question's post stays as it is post=%s code=%s", question.post, error.code)
        self._world.store.question_closed(question.post)

    def _resolve(self, api: Api, asking: Asking, headline: str) -> None:
        try:
            post = found(api, asking, self._world.bot())
        except (MattermostDenied, MattermostRefused):
            post = None  # with its thread or channel the post is gone too
        if post is None:
            self._world.store.question_never(asking.key)
            return
        question = Question(post=post.id, id=asking.id, channel=asking.channel, root=post.root, message=asking.message)
        self._world.store.question_posted(question, asking.key)
        self._mark(api, question, headline)


def closed(question: Question, headline: str) -> str:
    """Return what a dead post says: that it is over first, then what was asked, without how to answer it."""
    lines = question.message.splitlines()
    fences = [number for number, line in enumerate(lines) if _FENCE.fullmatch(line)]
    # brokerd's block stands in a fence that nothing in it can close; what is behind it says how to answer.
    asked = "\n".join(lines[: fences[-1] + 1]) if len(fences) > 1 else f"Approval {question.id}"
    return f"**{headline}**\n\n{asked}"
