"""What an event or a caught-up post becomes: accepted into the queue, answered at once, listed, or nothing.

Reads: items of the event stream (`put`, from its reader's thread) and the server over REST. Writes: the store.
Invariants: a message is decided upon after everything that came before it in its channel, so what was missed is caught
up before newer events are looked at, but for commands (gatewayd.ahead); a channel's mark moves in the step that takes
over what it passes; so a kill at any step loses nothing, and an item that comes twice is taken once. Threads: one of
its own, which alone decides.
"""

import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import attrs

from bxcore import logs
from bxcore.deadline import Clock, Deadline
from bxcore.errors import StateError
from bxcore.ids import MattermostId, SessionId
from bxcore.settings.gatewayd import GatewaydSettings
from bxcore.timestamp import DAY_MS, Timestamp
from gatewayd import admission, answerhint, oldposts, servertime
from gatewayd.admission import Ignored, Rules, Seen, Why
from gatewayd.ahead import Ahead, Unasked
from gatewayd.backoff import Backoff
from gatewayd.catchup import CatchUp, Wanted
from gatewayd.condition import Condition, Part
from gatewayd.entries import Kind, Outgoing, State, Taken
from gatewayd.eventqueue import EventQueue
from gatewayd.faults import MattermostDenied, MattermostFault, MattermostRefused
from gatewayd.items import ChannelGone, ChannelJoined, Deleted, Edited, Item, Lost, Opened, Posted
from gatewayd.mattermost import Mattermost
from gatewayd.names import Accounts, KnownNames
from gatewayd.posts import Account, Channel, ChannelType, Post
from gatewayd.sharedbot import SharedBot
from gatewayd.store import Store

log = logs.get("inbound")

FIRST_PAUSE_MS = 1_000
ATTEMPTS = 3
"""So often is something tried that fails by a fault of ours; then it is left, and logged."""
IDLE_MS = 600_000
PAGED_MS = 60_000
"""So long after a catching up of several pages may be told that a post was deleted while they were read."""
MARKS_EVERY_MS = 5_000
"""Marks over posts that are nothing to us are written down so often; behind by that, a start reads a little more."""
_KNOWN_MOST = 4_096


@attrs.frozen(kw_only=True)
class _Met:
    """A post as it was met: by an event, or in catching up."""

    post: Post
    direct: bool
    age_ms: int


class Turns(Protocol):
    """As much of gatewayd.conversation.Conversation as is used here."""

    def cancel(self, session: SessionId) -> bool: ...


class Inbound:
    """The way in. `put` is the event stream's sink.

    `on_accepted` is called when the store has something new, `on_deleted` with each post that was deleted.
    """

    def __init__(
        self,
        *,
        store: Store,
        api: Callable[[], Mattermost],
        settings: GatewaydSettings,
        account: Account,
        condition: Condition,
        clock: Clock,
        on_accepted: Callable[[], None],
        turns: Turns,
        on_deleted: Callable[[MattermostId], None],
    ) -> None:
        self._store, self._api, self._turns = store, api, turns
        self._rules = Rules.of(settings, account)
        self._limits, self._retry_most_ms = settings.limits, settings.mattermost.retry_most_ms
        self._everybody = [MattermostId(user) for user in sorted(self._rules.users | self._rules.approvers)]
        self._condition, self._clock = condition, clock
        self._on_accepted, self._on_deleted = on_accepted, on_deleted
        self._waiting, self._ahead = EventQueue(), Ahead(account.username)
        self._shared = SharedBot(store, condition, clock)
        self._names = KnownNames(self._server, clock)
        self._accounts = Accounts(self._server)
        self._direct: dict[MattermostId, bool] = {}
        self._strangers: set[MattermostId] = set()
        self._catching: CatchUp | None = None
        self._paged: dict[MattermostId, int] = {}
        self._paged_ms = 0
        self._old_due = True
        self._places: dict[MattermostId, str] = {}
        self._unsaved: dict[MattermostId, Timestamp] = {}
        self._saved_ms = self._pruned_ms = clock.monotonic_ms()
        self._stopping = threading.Event()
        # A daemon: a name look-up cannot be interrupted, and must not hold up the end of the process.
        self._thread = threading.Thread(target=self._run, name="inbound", daemon=True)
        self._lock = threading.Lock()  # around _mattermost
        self._mattermost: Mattermost | None = None

    # -- for other threads ----------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def put(self, item: Item) -> None:
        """Take an item of the event stream. Never blocks."""
        if isinstance(item, Posted):
            item = attrs.evolve(item, came_ms=self._clock.monotonic_ms())
        self._waiting.put(item)

    def stop(self) -> None:
        """End soon. May be called twice."""
        self._stopping.set()
        self._waiting.end()
        with self._lock:
            if self._mattermost is not None:
                self._mattermost.close()

    def join(self, milliseconds: int) -> bool:
        """Wait for the end; say whether it came."""
        if self._thread.ident is not None:
            self._thread.join(milliseconds / 1000)
        return not self._thread.is_alive()

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                behind, items = self._waiting.take(MARKS_EVERY_MS if self._unsaved else IDLE_MS)
                if behind:
                    self._guarded(self._catch_up)
                else:
                    self._guarded(lambda items=items: self._handle(items), ATTEMPTS, items)  # type: ignore[misc]
                if self._old_due:
                    self._guarded(self._tell_old, attempts=ATTEMPTS)
                self._guarded(self._tidy, attempts=ATTEMPTS)
            self._save_marks()
        except StateError as error:  # at the end: a start reads a little more
            log.warning("marks not kept code=%s", error.code)
        finally:
            if self._mattermost is not None:
                self._mattermost.close()

    def _guarded(self, work: Callable[[], None], attempts: int | None = None, held: Sequence[Item] = ()) -> None:
        """Do it, again until it worked or there is an end. `attempts`: so often where it fails by a fault of ours.

        Commands do not wait for that, neither those among `held`, which is being worked on, nor those that come.
        """
        backoff = Backoff(FIRST_PAUSE_MS, self._retry_most_ms, random.random)
        parts: set[Part] = set()
        while not self._stopping.is_set():
            pause_ms = backoff.next_ms()
            try:
                work()
            except MattermostFault as error:
                parts.add(Part.INBOUND)
                self._condition.trouble(Part.INBOUND, error)
                pause_ms = max(pause_ms, error.retry_ms)
            except StateError as error:
                parts.add(Part.STATE)
                self._condition.trouble(Part.STATE, error)
            except Exception:
                attempts = None if attempts is None else attempts - 1
                log.exception("events not handled code=internal attempts_left=%s", attempts)
                if attempts == 0:
                    break
            else:
                break
            self._go_ahead(held)
            held = ()
            pause = Deadline.after(self._clock, milliseconds=pause_ms)
            while not self._stopping.is_set() and not pause.passed():
                self._go_ahead(self._waiting.glance(pause.remaining_ms()))
        for part in parts:
            self._condition.well(part)

    def _go_ahead(self, items: Sequence[Item]) -> None:
        """Accept the commands among events whose turn has not come, as far as they can be judged without asking."""
        for item in items:
            if isinstance(item, Posted) and item.channel_type is not None and self._ahead.is_command(item.post):
                try:
                    self._accept_ahead(self._met(item))
                except (MattermostFault, StateError) as error:
                    log.info("command has to wait post=%s code=%s", item.post.id, error.code)
                except Exception:  # it is met again in its turn
                    log.exception("command has to wait post=%s code=internal", item.post.id)

    def _accept_ahead(self, met: _Met) -> None:
        if self._accounts.known(met.post.user) is None:
            return
        one = self.decide(met.post, direct=met.direct, age_ms=met.age_ms, asking=False)
        if isinstance(one, Taken) and one.state is State.WAITING and self._store.take([one]):
            log.info("command goes ahead post=%s", met.post.id)
            self._ahead.went(one.post)
            self._on_accepted()

    def _server(self) -> Mattermost:
        with self._lock:
            if self._mattermost is None:
                self._mattermost = self._api()
            if self._stopping.is_set():
                self._mattermost.close()
            return self._mattermost

    def _handle(self, items: Sequence[Item]) -> None:
        posted = [self._met(item) for item in items if isinstance(item, Posted)]
        if posted:
            self._take(posted, _newest(posted))
            return
        for item in items:
            match item:
                case Opened(resumed=False):
                    self._catch_up()
                case Edited(post=post):
                    self._edited(post)
                case Deleted(post=post):
                    self._deleted(post)
                case ChannelJoined(channel=channel):
                    self._read(self._catching_up(), only=channel)
                case ChannelGone(channel=channel):
                    self._direct.pop(channel, None)
                case Opened() | Lost() | Posted():
                    pass  # nothing was missed, or nothing is to be had

    # -- catching up ----------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Read what was missed. After a fault the next call goes on where this one ended."""
        self._condition.reading(missed=True)
        if self._catching is None:
            self._save_marks()  # before they are put right by the server's clock
            self._accounts.forget()
            self._catching = self._catching_up()
        try:
            self._read(self._catching)
        except (MattermostFault, StateError):
            raise
        except Exception:
            self._catching = None  # may be left: the next gap must not go on where this one ended
            self._condition.reading(missed=False)
            raise
        self._paged, self._paged_ms = self._catching.paged, self._clock.monotonic_ms()
        self._catching = None
        self._old_due = True
        self._condition.reading(missed=False)

    def _catching_up(self, again: Mapping[MattermostId, int] | None = None) -> CatchUp:
        wanted = Wanted(
            channel=lambda channel: admission.is_read(channel, self._rules),
            post=self._is_wanted,
            stale_ms=self._limits.stale_ms,
            overlap_ms=self._limits.overlap_ms,
        )
        return CatchUp(self._store, wanted, again)

    def _is_wanted(self, channel: Channel, post: Post) -> bool:
        why = admission.refused(post, direct=_is_direct(channel), rules=self._rules)
        if why is Why.OWN:
            self._shared.seen(post)
        return why is None

    def _read(self, catching: CatchUp, only: MattermostId | None = None) -> None:
        for read in catching.run(self._server(), only):
            if self._stopping.is_set():
                return
            self._go_ahead(self._waiting.glance(0))
            if read.channel is not None:
                self._place(read.channel)
            direct = read.channel is not None and _is_direct(read.channel)
            now = self._server().now()
            self._take([_Met(post=post, direct=direct, age_ms=now - post.create_at) for post in read.posts], read.marks)

    def _place(self, channel: Channel) -> None:
        if channel.type is ChannelType.GROUP:
            self._places[channel.id] = "a group message"
        elif channel.type is not ChannelType.DIRECT:
            self._places[channel.id] = channel.name
        self._remember(channel.id, direct=_is_direct(channel))

    # -- posts ----------------------------------------------------------------------------------

    def _met(self, item: Posted) -> _Met:
        """An event is as old as it waited here: its post was made when it came, whatever date it has."""
        age_ms = 0 if item.came_ms is None else self._clock.monotonic_ms() - item.came_ms
        return _Met(post=item.post, direct=self._is_direct(item), age_ms=age_ms)

    def _take(self, posts: Sequence[_Met], marks: Mapping[MattermostId, Timestamp]) -> None:
        """Decide upon posts, in order, and take over what is for us together with the marks that this moves."""
        taken = self._decided(posts)
        # A post that is dated in the future must not have us skip what is dated in between.
        latest = Timestamp(self._server().now() + servertime.PRECISION_MS)
        for channel, mark in marks.items():
            self._unsaved[channel] = max(min(mark, latest), self._unsaved.get(channel, Timestamp(0)))
        new = self._store.take(taken, self._unsaved) if taken else ()
        self._ahead.met([met.post.id for met in posts])
        if not taken:
            return
        self._marks_saved()
        self._old_due = self._old_due or any(one.state is State.OLD for one in taken)
        if new:
            log.info("accepted new=%d of=%d", len(new), len(posts))
            self._on_accepted()

    def _decided(self, posts: Sequence[_Met]) -> list[Taken]:
        known = self._store.known_of([met.post.id for met in posts])
        begun: set[MattermostId] = set()
        taken: list[Taken] = []
        for met in posts:
            post = met.post
            if post.id in known:
                self._edited(post)
                continue
            one = self._one(met, begun)
            if isinstance(one, Taken):
                message = one.state is State.WAITING and one.post.kind is Kind.MESSAGE
                if message and self._ahead.stopped(one.post):
                    one, message = attrs.evolve(one, state=State.DONE), False
                taken.append(self._hinted(one) if message else one)
                if message:
                    begun.add(one.post.thread)
            elif one is not None and one.why is Why.STRANGER:
                self._tell_of_stranger(post)
            elif one is not None and one.why is Why.OWN:
                self._shared.seen(post)
        return taken

    def _hinted(self, taken: Taken) -> Taken:
        post = taken.post
        if post.user not in self._rules.approvers or not answerhint.like_an_answer(post.text):
            return taken
        return attrs.evolve(taken, outgoing=answerhint.hint(post, self._store.questions()))

    def _one(self, met: _Met, begun: set[MattermostId]) -> Taken | Ignored | None:
        post = met.post
        try:
            return self.decide(post, direct=met.direct, age_ms=met.age_ms, begun=begun)
        except (MattermostFault, StateError):
            raise
        except Exception:
            log.exception("post left out post=%s code=internal", post.id)
            return None

    def decide(
        self, post: Post, *, direct: bool, age_ms: int, begun: Collection[MattermostId] = (), asking: bool = True
    ) -> Taken | Ignored:
        """Return what becomes of a post. `begun`: threads that are ours by a post decided upon just before.

        `asking`: the server may be asked; else what is known of old has to do.

        Raises MattermostFault where the server has to be asked and does not say, StateError.
        """
        why = admission.refused(post, direct=direct, rules=self._rules)
        if why is not None:
            return Ignored(why=why)
        seen = Seen(
            post=post,
            direct=direct,
            own_thread=self._is_ours(post, begun),
            person=self._accounts.is_person(post.user, self._everybody)
            if asking
            else self._accounts.known(post.user) is True,
            age_ms=age_ms,
        )
        return admission.decide(seen, self._rules, self._names if asking else Unasked())

    def _is_ours(self, post: Post, begun: Collection[MattermostId]) -> bool:
        if post.root is None:
            return False
        thread = self._store.thread(post.root)
        return post.root in begun or (thread is not None and thread.channel == post.channel)

    def _is_direct(self, item: Posted) -> bool:
        if item.channel_type is not None:
            return item.channel_type is ChannelType.DIRECT
        channel = item.post.channel
        if channel not in self._direct:
            try:
                self._remember(channel, direct=_is_direct(self._server().channel(channel)))
            except (MattermostDenied, MattermostRefused) as error:
                log.warning("channel unknown channel=%s code=%s", channel, error.code)
                return False
        return self._direct[channel]

    def _remember(self, channel: MattermostId, *, direct: bool) -> None:
        if len(self._direct) >= _KNOWN_MOST:
            self._direct.clear()
        self._direct[channel] = direct

    def _edited(self, post: Post) -> None:
        """Say once that the first text counts, where another one was acted upon."""
        if post.edit_at == 0 or post.user not in self._everybody:
            return
        said = f"You edited your post of {oldposts.clock_time(post.create_at)} (UTC); I used its first text."
        note = Outgoing(key=f"edited-{post.id}", channel=post.channel, root=post.thread, message=said)
        if self._store.text_told(post.id, admission.text_of(post, self._rules.bot_name), [note]):
            self._on_accepted()

    def _deleted(self, post: Post) -> None:
        for session in self._store.take_back(post.id):
            log.info("thread deleted, turn cancelled session=%s", session)
            self._turns.cancel(session)
        self._on_deleted(post.id)
        if post.channel in self._paged and self._clock.monotonic_ms() - self._paged_ms < PAGED_MS:
            again = {post.channel: self._paged[post.channel]}
            self._read(self._catching_up(again), only=post.channel)

    def _tell_of_stranger(self, post: Post) -> None:
        if post.user not in self._strangers and len(self._strangers) < _KNOWN_MOST:
            self._strangers.add(post.user)
            log.info("a stranger spoke user=%s channel=%s", post.user, post.channel)

    # -- what is told, what is tidied -----------------------------------------------------------

    def _tell_old(self) -> None:
        """Post one list to each author of posts that nothing will be done about."""
        authors = self._store.old_authors()
        limit = self._server().config().max_post_characters if authors else 0
        for user, count in authors.items():
            self._store.list_old(user, self._lists(user, count, limit))
            self._on_accepted()
        self._old_due = False

    def _lists(self, user: MattermostId, count: int, limit: int) -> tuple[Outgoing, ...]:
        if user not in self._everybody:
            return ()
        try:
            channel = self._server().direct(self._rules.bot, user).id
        except (MattermostDenied, MattermostRefused) as error:
            log.warning("old posts cannot be listed user=%s count=%d code=%s", user, count, error.code)
            return ()
        newest = self._store.old(user, oldposts.LINES)
        log.info("old posts listed user=%s count=%d", user, count)
        return (oldposts.a_list(newest, count=count, channel=channel, places=self._places, limit=limit),)

    def _tidy(self) -> None:
        now = self._clock.monotonic_ms()
        self._shared.look()
        if self._unsaved and now - self._saved_ms >= MARKS_EVERY_MS:
            self._save_marks()
        if now - self._pruned_ms >= DAY_MS:
            self._store.prune()
            self._pruned_ms = now

    def _save_marks(self) -> None:
        if self._unsaved:
            self._store.take((), self._unsaved)
            self._marks_saved()

    def _marks_saved(self) -> None:
        self._unsaved.clear()
        self._saved_ms = self._clock.monotonic_ms()


def _is_direct(channel: Channel) -> bool:
    return channel.type is ChannelType.DIRECT


def _newest(posts: Sequence[_Met]) -> Mapping[MattermostId, Timestamp]:
    """Return how far each channel is read with these."""
    newest: dict[MattermostId, Timestamp] = {}
    for post in (met.post for met in posts):
        newest[post.channel] = max(post.create_at, newest.get(post.channel, post.create_at))
    return newest
