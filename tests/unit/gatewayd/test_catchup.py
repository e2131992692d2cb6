"""Catching up reads each channel down to where it was read before: all of it, in order, in bounded memory."""

from collections.abc import Callable, Mapping, Sequence

import attrs
import pytest

from bxcore.ids import MattermostId
from bxcore.timestamp import Timestamp
from gatewayd import catchup
from gatewayd.catchup import BATCH, NONE_MOST, PAGE, SAME_MOST, CatchUp, Read, Wanted
from gatewayd.faults import MattermostAway, MattermostDenied, MattermostFault, MattermostRefused, MattermostUnclear
from gatewayd.posts import Channel, ChannelType, Post
from tests.fakes.clocks import BEGIN
from tests.fakes.queued import DIRECT, TOWN, an_id, channel, post

NOW = Timestamp(BEGIN + 86_400_000)


class Marks:
    """What the store knows."""

    def __init__(self, marks: Mapping[MattermostId, int] | None = None, began: int = BEGIN) -> None:
        self._marks = {id_: Timestamp(at) for id_, at in (marks or {}).items()}
        self._began = Timestamp(began)
        self.told: Timestamp | None = None

    def marks(self) -> Mapping[MattermostId, Timestamp]:
        return self._marks

    def server_time(self, now: Timestamp, /) -> None:
        self.told = now

    def began(self) -> Timestamp:
        return self._began


class Reader:
    """A server with these channels, whose posts are given oldest first. `before` runs before each page."""

    def __init__(self, posts: Mapping[Channel, Sequence[Post]]) -> None:
        self.said = {channel: list(said) for channel, said in posts.items()}
        self.asked: list[tuple[MattermostId, int]] = []
        self.before: Callable[[MattermostId, int], None] = lambda channel, page: None

    def now(self) -> Timestamp:
        return NOW

    def channels(self) -> tuple[Channel, ...]:
        return tuple(self.said)

    def channel(self, channel: MattermostId, /) -> Channel:
        for found in self.said:
            if found.id == channel:
                return found
        raise MattermostDenied("no such channel", status=404)

    def posts(self, channel: MattermostId, /, *, page: int, per_page: int = PAGE) -> tuple[Post, ...]:
        self.asked.append((channel, page))
        self.before(channel, page)
        newest_first = [post for found, said in self.said.items() if found.id == channel for post in said][::-1]
        return tuple(newest_first[page * per_page : (page + 1) * per_page])


def many(count: int, *, first: int = 0, step_ms: int = 1_000) -> list[Post]:
    return [post("post", number, after_ms=number * step_ms) for number in range(first, first + count)]


def a_channel(name: str = "direct", *, last: Sequence[Post] = (), kind: ChannelType = ChannelType.DIRECT) -> Channel:
    newest = max((post.create_at for post in last), default=BEGIN)
    return channel(name, kind, last_ms=newest - BEGIN)


def catching(marks: Marks, *, fresh_from: int = 0, overlap_ms: int = 0) -> CatchUp:
    wanted = Wanted(
        channel=lambda channel: channel.type is ChannelType.DIRECT,
        post=lambda channel, post: post.message != "noise",
        stale_ms=NOW - fresh_from,
        overlap_ms=overlap_ms,
    )
    return CatchUp(marks, wanted)


def ids(reads: Sequence[Read]) -> list[MattermostId]:
    return [post.id for read in reads for post in read.posts]


@pytest.mark.parametrize("count", [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 7])
def test_all_posts_since_the_beginning_come_once_and_oldest_first(count: int) -> None:
    said = many(count)
    reads = list(catching(Marks()).run(Reader({a_channel(last=said): said})))
    assert ids(reads) == [post.id for post in said]
    assert all(len(read.posts) <= BATCH for read in reads)


def test_the_mark_comes_with_the_last_of_a_channels_posts_and_not_before() -> None:
    said = many(BATCH + 5)
    reads = list(catching(Marks()).run(Reader({a_channel(last=said): said})))
    assert [read.marks for read in reads] == [{}, {DIRECT: said[-1].create_at}]


def test_reading_ends_below_the_mark_less_the_overlap() -> None:
    said = many(1_000)
    reader = Reader({a_channel(last=said): said})
    reads = list(catching(Marks({DIRECT: BEGIN + 990_000}), overlap_ms=5_000).run(reader))
    assert ids(reads) == [post.id for post in said[985:]]
    assert reader.asked == [(DIRECT, 0)]


def test_what_is_from_before_the_beginning_is_not_looked_at() -> None:
    said = many(10)
    reader = Reader({a_channel(last=said): said})
    assert ids(list(catching(Marks(began=BEGIN + 4_000)).run(reader))) == [post.id for post in said[4:]]
    marked = Marks({DIRECT: BEGIN + 5_000}, began=BEGIN + 4_000)
    assert ids(list(catching(marked, overlap_ms=60_000).run(reader))) == [post.id for post in said[4:]]


def test_a_channel_in_which_nothing_was_said_is_not_read() -> None:
    quiet, busy = a_channel(), a_channel("busy", last=many(9))
    reader = Reader({quiet: [], busy: many(9)})
    marks = Marks({quiet.id: BEGIN + 70_000, busy.id: BEGIN + 2_000}, began=0)
    list(catching(marks, overlap_ms=60_000).run(reader))
    assert {asked for asked, _ in reader.asked} == {busy.id}


def test_an_edit_moves_the_channels_time_and_loses_nothing() -> None:
    """The server counts an edit as the channel's newest post."""
    said = many(3)
    reads = list(catching(Marks()).run(Reader({channel("direct", ChannelType.DIRECT, last_ms=900_000): said})))
    assert reads[-1].marks == {DIRECT: said[-1].create_at}


def test_a_channel_that_is_not_read_is_marked_without_reading_and_marked_once() -> None:
    town = channel("town", last_ms=5_000)
    reader = Reader({town: many(6)})
    assert list(catching(Marks()).run(reader)) == [Read(channel=None, posts=(), marks={TOWN: Timestamp(BEGIN + 5_000)})]
    assert list(catching(Marks({TOWN: BEGIN + 5_000})).run(reader)) == []
    assert reader.asked == []


def test_an_archived_channel_is_not_read() -> None:
    reader = Reader({channel("direct", ChannelType.DIRECT, last_ms=5_000, gone=True): many(6)})
    assert list(catching(Marks()).run(reader)) == []


def test_noise_is_read_and_not_handed_on_and_moves_the_mark() -> None:
    said = [attrs.evolve(one, message="noise") for one in many(450)]
    reads = list(catching(Marks()).run(Reader({a_channel(last=said): said})))
    assert ids(reads) == []
    assert reads[-1].marks == {DIRECT: said[-1].create_at}


def test_of_old_posts_no_more_than_a_page_is_held_and_fresh_ones_come_last() -> None:
    said = many(2 * PAGE + 50)
    fresh_from = said[2 * PAGE].create_at
    reads = list(catching(Marks(), fresh_from=fresh_from).run(Reader({a_channel(last=said): said})))
    assert sorted(ids(reads)) == [post.id for post in said]
    assert max(len(read.posts) for read in reads) <= PAGE
    assert [post.id for post in reads[-1].posts] == [post.id for post in said[2 * PAGE :]]
    assert [bool(read.marks) for read in reads] == [False] * (len(reads) - 1) + [True]


def test_posts_that_come_while_it_is_read_lose_nothing() -> None:
    said = many(3 * PAGE)
    reader = Reader({a_channel(last=said): said})

    def more(channel: MattermostId, page: int) -> None:
        [rows] = reader.said.values()
        rows.extend(many(7, first=len(rows)))

    reader.before = more
    reads = list(catching(Marks()).run(reader))
    assert set(ids(reads)) >= {post.id for post in said}
    assert len(ids(reads)) == len(set(ids(reads)))


def test_what_is_fresh_is_judged_by_the_clock_that_the_server_has_once_it_has_answered() -> None:
    said = many(10)

    class Waits(Reader):
        """Its clock is known with its first answer."""

        time = Timestamp(BEGIN - 86_400_000)

        def now(self) -> Timestamp:
            return self.time

        def channels(self) -> tuple[Channel, ...]:
            self.time = Timestamp(BEGIN + 9_000)
            return super().channels()

    marks = Marks()
    wanted = Wanted(channel=lambda _: True, post=lambda *_: True, stale_ms=5_000, overlap_ms=0)
    reads = list(CatchUp(marks, wanted).run(Waits({a_channel(last=said): said})))
    assert [[post.id for post in read.posts] for read in reads] == [
        [post.id for post in said[:4]],
        [post.id for post in said[4:]],
    ]
    assert marks.told == BEGIN + 9_000


def test_no_channel_at_all_where_there_were_some_is_believed_the_third_time() -> None:
    reader, it = Reader({}), catching(Marks({DIRECT: BEGIN}))
    for _ in range(NONE_MOST - 1):
        with pytest.raises(MattermostUnclear):
            list(it.run(reader))
    assert list(it.run(reader)) == []
    assert list(catching(Marks()).run(reader)) == []


def test_a_server_that_has_ever_more_posts_of_one_time_comes_to_an_end() -> None:
    class Endless(Reader):
        def posts(self, channel: MattermostId, /, *, page: int, per_page: int = PAGE) -> tuple[Post, ...]:
            self.asked.append((channel, page))
            return tuple(post("post", page * PAGE + number) for number in range(PAGE))

    reader = Endless({a_channel(): []})
    list(catching(Marks()).run(reader))
    assert len(reader.asked) == 1 + SAME_MOST


def test_of_a_channel_without_end_the_newest_pages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catchup, "PAGES_MOST", 4)

    class Endless(Reader):
        def posts(self, channel: MattermostId, /, *, page: int, per_page: int = PAGE) -> tuple[Post, ...]:
            self.asked.append((channel, page))
            return tuple(post("post", page * PAGE + number, after_ms=10**6 - page) for number in range(PAGE))

    reader = Endless({a_channel(): []})
    reads = list(catching(Marks()).run(reader))
    assert (len(reader.asked), len(ids(reads))) == (4, 4 * PAGE)
    assert reads[-1].marks == {DIRECT: BEGIN + 10**6}


def test_posts_of_one_millisecond_over_a_page_border_all_come() -> None:
    said = [post("post", number) for number in range(PAGE + 30)]
    reads = list(catching(Marks()).run(Reader({a_channel(last=said): said})))
    assert set(ids(reads)) == {post.id for post in said}


def test_a_server_that_says_the_same_page_for_ever_comes_to_an_end() -> None:
    said = many(PAGE)

    class Stuck(Reader):
        def posts(self, channel: MattermostId, /, *, page: int, per_page: int = PAGE) -> tuple[Post, ...]:
            return super().posts(channel, page=0)

    reader = Stuck({a_channel(last=said): said})
    assert len(ids(list(catching(Marks()).run(reader)))) == PAGE
    assert len(reader.asked) == 1 + SAME_MOST


def test_as_many_posts_as_a_page_holds_may_come_between_two_pages() -> None:
    """Then the next page is the one before, and the rest comes behind it."""
    said = many(3 * PAGE)
    reader = Reader({a_channel(last=said): said})

    def more(channel: MattermostId, page: int) -> None:
        if page == 1:
            [rows] = reader.said.values()
            rows.extend(many(PAGE, first=len(rows)))

    reader.before = more
    assert set(ids(list(catching(Marks()).run(reader)))) == {post.id for post in many(3 * PAGE)}


def test_a_page_with_fewer_posts_than_asked_for_is_not_the_end() -> None:
    said = many(PAGE + 20)

    class Leaves(Reader):
        def posts(self, channel: MattermostId, /, *, page: int, per_page: int = PAGE) -> tuple[Post, ...]:
            return super().posts(channel, page=page)[3:]

    reads = list(catching(Marks()).run(Leaves({a_channel(last=said): said})))
    assert len(ids(reads)) == PAGE + 20 - 6


def test_after_a_fault_it_goes_on_with_the_channels_that_are_left() -> None:
    said = {a_channel(name, last=many(3)): many(3) for name in ("one", "two", "three")}
    reader = Reader(said)

    def away(channel: MattermostId, page: int) -> None:
        if channel == an_id("two") and reader.asked.count((channel, 0)) == 1:
            raise MattermostAway("away")

    reader.before = away
    it = catching(Marks())
    reads: list[Read] = []
    with pytest.raises(MattermostAway):
        reads.extend(it.run(reader))
    reads = list(it.run(reader))
    assert {read.channel.id for read in reads if read.channel} == {an_id("two"), an_id("three")}
    assert sorted({channel for channel, _ in reader.asked}) == sorted(map(an_id, ("one", "two", "three")))
    assert [asked[0] for asked in reader.asked].count(an_id("one")) == 2  # its page, and the empty one


@pytest.mark.parametrize("fault", [MattermostDenied("no", status=403), MattermostRefused("no", status=400)])
def test_a_channel_that_may_not_be_read_is_left_out_and_not_tried_again(fault: MattermostFault) -> None:
    reader = Reader({a_channel(name, last=many(3)): many(3) for name in ("one", "two")})

    def refused(channel: MattermostId, page: int) -> None:
        if channel == an_id("one"):
            raise fault

    reader.before = refused
    it = catching(Marks())
    assert [read.channel.id for read in it.run(reader) if read.channel] == [an_id("two")]
    assert list(it.run(reader)) == []
    assert reader.asked.count((an_id("one"), 0)) == 1


def test_one_channel_alone_can_be_read() -> None:
    reader = Reader({a_channel(name, last=many(3)): many(3) for name in ("one", "two")})
    assert {read.channel.id for read in catching(Marks()).run(reader, an_id("two")) if read.channel} == {an_id("two")}
    assert list(catching(Marks()).run(reader, an_id("nothing"))) == []


def test_a_post_that_is_deleted_between_two_pages_hides_another_until_the_channel_is_read_again() -> None:
    said = many(2 * PAGE)
    reader = Reader({a_channel(last=said): said})

    def delete(channel: MattermostId, page: int) -> None:
        if (channel, page) == (DIRECT, 1) and reader.asked.count((DIRECT, 1)) == 1:
            [rows] = reader.said.values()
            rows.pop()

    reader.before = delete
    marks = Marks()
    it = catching(marks)
    missed = {post.id for post in said} - set(ids(list(it.run(reader))))
    assert missed == {said[PAGE - 1].id}
    assert it.paged == {DIRECT: BEGIN}
    wanted = Wanted(channel=lambda _: True, post=lambda *_: True, stale_ms=NOW, overlap_ms=0)
    again = CatchUp(Marks({DIRECT: said[-1].create_at}), wanted, it.paged)
    assert missed <= set(ids(list(again.run(reader, DIRECT))))


def test_a_channel_of_one_page_needs_no_second_look() -> None:
    said = many(PAGE)
    it = catching(Marks())
    list(it.run(Reader({a_channel(last=said): said})))
    assert it.paged == {}
