"""What was said while nobody listened: every channel read over REST, newest first, down to where it was read before.

Not with `since=`, which leaves posts out (docs/mattermost.md). Posts that are fresh are kept until their channel is
read, since they are acted upon oldest first; older ones, which are at most listed, are handed on page by page, so that
a month's backlog takes no memory. How old a post is, the server's clock says, which dated it, and never ours.
Threads: one. Reads: the server, and the marks in the store.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import attrs

from bxcore import logs
from bxcore.ids import MattermostId
from bxcore.timestamp import Timestamp
from gatewayd.faults import MattermostDenied, MattermostRefused, MattermostUnclear
from gatewayd.posts import Channel, Post

log = logs.get("catchup")

PAGE = 200
SAME_MOST = 3
"""So often may a page reach no further back, since as many posts were made meanwhile; then it never will."""
PAGES_MOST = 1_000
"""Of one channel: what lies further back is left out, and logged."""
NONE_MOST = 3
"""So often is it asked again where it says that the bot is in no channel, although it was in some."""
BATCH = 256
"""Posts handed on at a time, hence the most that one transaction takes."""


class Reader(Protocol):
    """The calls that are made."""

    def now(self) -> Timestamp:
        """Return the time at the server, by its last answer."""
        ...

    def channels(self) -> tuple[Channel, ...]: ...
    def channel(self, channel: MattermostId, /) -> Channel: ...
    def posts(self, channel: MattermostId, /, *, page: int, per_page: int = 200) -> tuple[Post, ...]: ...


class Marks(Protocol):
    """How far each channel was read, and where all began; gatewayd.store."""

    def server_time(self, now: Timestamp, /) -> None:
        """Put what follows right by the server's clock."""
        ...

    def marks(self) -> Mapping[MattermostId, Timestamp]: ...
    def began(self) -> Timestamp: ...


@attrs.frozen(kw_only=True)
class Read:
    """Posts of one channel, oldest first, and the marks that hold once they were decided upon."""

    channel: Channel | None
    posts: tuple[Post, ...]
    marks: Mapping[MattermostId, Timestamp]


@attrs.frozen(kw_only=True)
class Wanted:
    """What is worth reading: `channel` and `post` are cheap. Posts older than `stale_ms` are not acted upon."""

    channel: Callable[[Channel], bool]
    post: Callable[[Channel, Post], bool]
    stale_ms: int
    overlap_ms: int


class CatchUp:
    """One catching up. `run` may be called again after a fault: channels that were finished are not read again."""

    def __init__(self, marks: Marks, wanted: Wanted, again: Mapping[MattermostId, int] | None = None) -> None:
        """Begin at the marks; `again`: in these channels from this time on, whatever their mark says."""
        self._again = again or {}
        self.paged: dict[MattermostId, int] = {}
        """Channels that took several pages, and where they were begun: a post that is deleted while they are read
        moves the others up, past the border between two pages."""
        self._wanted = wanted
        self._kept = marks
        self._marks: Mapping[MattermostId, Timestamp] = {}
        self._began = self._fresh_from = 0
        self._begun = False
        self._none = 0
        self._finished: set[MattermostId] = set()

    def run(self, reader: Reader, only: MattermostId | None = None) -> Iterator[Read]:
        """Yield what is to be decided upon, channel after channel. Raises MattermostFault where time mends it.

        A channel that may not be read is left out. `only`: one channel instead of all.
        """
        channels = reader.channels() if only is None else self._one(reader, only)
        if not self._begun:  # by now the server has said what time it is
            self._begin(reader.now())
        if only is None and not channels:
            self._doubt()
        open_ones = [channel for channel in channels if channel.delete_at == 0]
        yield from self._skipped([channel for channel in open_ones if not self._wanted.channel(channel)])
        for channel in open_ones:
            if channel.id in self._finished or not self._wanted.channel(channel) or not self._has_news(channel):
                continue
            try:
                yield from self._channel(reader, channel)
            except (MattermostDenied, MattermostRefused) as error:
                log.warning("channel left out channel=%s code=%s status=%d", channel.id, error.code, error.status)
            self._finished.add(channel.id)

    def _begin(self, now: Timestamp) -> None:
        self._kept.server_time(now)
        self._marks, self._began = self._kept.marks(), self._kept.began()
        self._fresh_from = now - self._wanted.stale_ms
        self._begun = True

    def _doubt(self) -> None:
        """A bot keeps its direct channels, so none at all is hardly the truth where there were some."""
        self._none += 1
        if self._marks and self._none < NONE_MOST:
            raise MattermostUnclear("the server says that the bot is in no channel, and it was in some")

    def _one(self, reader: Reader, channel: MattermostId) -> tuple[Channel, ...]:
        try:
            return (reader.channel(channel),)
        except (MattermostDenied, MattermostRefused) as error:
            log.warning("channel left out channel=%s code=%s status=%d", channel, error.code, error.status)
            return ()

    def _skipped(self, channels: Sequence[Channel]) -> Iterator[Read]:
        """What is in a channel that is not read is decided upon: should it be read one day, then from here on."""
        marks = {one.id: one.last_post_at for one in channels if one.last_post_at > self._marks.get(one.id, -1)}
        if marks:
            yield Read(channel=None, posts=(), marks=marks)
            self._marks = {**self._marks, **marks}

    def _floor(self, channel: Channel) -> int:
        if channel.id in self._again:
            return self._again[channel.id]
        mark = self._marks.get(channel.id)
        return self._began if mark is None else max(mark - self._wanted.overlap_ms, self._began)

    def _has_news(self, channel: Channel) -> bool:
        return channel.last_post_at >= self._floor(channel)

    def _channel(self, reader: Reader, channel: Channel) -> Iterator[Read]:
        fresh: dict[MattermostId, Post] = {}
        newest = self._marks.get(channel.id, Timestamp(0))
        floor = self._floor(channel)
        for number, page in enumerate(_pages(reader, channel, floor)):
            if number > 0:
                self.paged[channel.id] = floor
            newest = max(newest, *(post.create_at for post in page))
            wanted = [post for post in page if self._wanted.post(channel, post)]
            fresh.update({post.id: post for post in wanted if post.create_at >= self._fresh_from})
            older = [post for post in wanted if post.create_at < self._fresh_from]
            if older:
                yield Read(channel=channel, posts=_in_order(older), marks={})
        posts = _in_order(fresh.values())
        mark = {channel.id: newest} if newest > self._marks.get(channel.id, -1) else {}
        last = max(len(posts) - 1, 0) // BATCH * BATCH
        for begin in range(0, last + 1, BATCH):
            yield Read(channel=channel, posts=posts[begin : begin + BATCH], marks=mark if begin == last else {})


def _pages(reader: Reader, channel: Channel, floor: int) -> Iterator[tuple[Post, ...]]:
    """Yield what is not below `floor`, page by page. A short page is not the last one: a server may leave posts out."""
    reached: int | None = None
    same = 0
    for number in range(PAGES_MOST):
        page = reader.posts(channel.id, page=number, per_page=PAGE)
        if not page:
            return
        above = tuple(post for post in page if post.create_at >= floor)
        if above:
            yield above
        if len(above) < len(page):
            return
        oldest = page[-1].create_at
        same = same + 1 if reached is not None and oldest >= reached else 0
        if same == SAME_MOST:
            return
        reached = oldest if reached is None else min(reached, oldest)
    log.warning("too much was missed, older posts are left out channel=%s pages=%d", channel.id, PAGES_MOST)


def _in_order(posts: Iterable[Post]) -> tuple[Post, ...]:
    return tuple(sorted(posts, key=lambda post: (post.create_at, post.id)))
