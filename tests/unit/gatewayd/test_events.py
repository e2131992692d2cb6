"""The event connection, against a server with the real one's rules."""

import threading
from collections.abc import Callable, Iterator

import pytest

from gatewayd.condition import Part
from gatewayd.events import ChannelGone, ChannelJoined, Deleted, Edited, Item, Lost, Opened, Posted
from gatewayd.faults import MattermostAway
from gatewayd.posts import ChannelType
from tests.fakes.eventplace import EventPlace
from tests.fakes.mattermost import Mattermost as Server


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do; the test's own time limit is the only one."""
    pause = threading.Event()
    while not holds():
        pause.wait(0.002)


def up(place: EventPlace) -> bool:
    return place.condition.open


def code(place: EventPlace) -> str | None:
    worst = place.condition.worst()
    return worst.code if worst else None


def test_a_new_stream_says_so_before_its_events(server: Server) -> None:
    with EventPlace(server) as place:
        opened = place.next()
        assert isinstance(opened, Opened)
        assert not opened.resumed
        assert opened.version is not None
        said = place.say("hello")
        item = place.next()
        assert isinstance(item, Posted)
        assert (item.post.id, item.post.message, item.channel_type) == (said, "hello", ChannelType.DIRECT)


def test_the_condition_shows_the_connection(server: Server) -> None:
    place = EventPlace(server)
    assert not up(place)
    with place:
        place.opened()
        assert up(place)
        assert place.condition.server_version == "11.6.0"
        assert place.condition.worst() is None
    assert not up(place)
    assert isinstance(place.next(), Lost)


def test_edits_and_deletions_are_told_apart_from_posts(server: Server) -> None:
    with EventPlace(server) as place:
        place.opened()
        said = place.say("one")
        server.edit(said, "two")
        server.delete(said)
        items = [place.next() for _ in range(3)]
        assert [type(item) for item in items] == [Posted, Edited, Deleted]
        assert isinstance(items[1], Edited)
        assert (items[1].post.message, items[1].post.edit_at > 0) == ("two", True)


def test_channels_that_come_and_go_are_told(server: Server) -> None:
    with EventPlace(server) as place:
        place.opened()
        town = server.add_channel("O", [place.owner], name="town")
        server.join(town, place.bot)
        assert place.until(ChannelJoined).channel == town
        server.remove(town, place.bot)
        assert place.until(ChannelGone).channel == town
        square = server.add_channel("O", [place.owner, place.bot], name="square")
        server.archive(square)
        assert place.until(ChannelGone).channel == square
        other = server.add_user("other")
        direct = server.direct(other, place.bot)
        assert place.until(ChannelJoined).channel == direct


def test_c5_a_dropped_connection_is_resumed_without_loss(server: Server) -> None:
    with EventPlace(server) as place:
        place.opened()
        first = place.say("before")
        assert place.until(Posted).post.id == first
        server.drop_sockets()
        during = place.say("during")
        assert isinstance(place.next(), Lost)
        opened, item = place.next(), place.next()
        assert isinstance(opened, Opened)
        assert opened.resumed
        assert isinstance(item, Posted)
        assert item.post.id == during


def test_a_quiet_stream_is_known_to_be_resumed_by_the_answer_to_a_ping(server: Server) -> None:
    with EventPlace(server) as place:
        place.opened()
        server.drop_sockets()
        assert place.opened().resumed


def test_c5_a_restarted_server_is_a_new_stream(server: Server) -> None:
    with EventPlace(server) as place:
        place.opened()
        place.say("before")
        server.restart()
        assert not place.opened().resumed


def test_c5_events_that_were_thrown_away_are_a_new_stream(server: Server) -> None:
    """More than its queue holds: the server says hello, and only REST can find what is missing."""
    with EventPlace(server) as place:
        place.opened()
        server.drop_sockets()
        for number in range(300):
            place.say(str(number))
        opened = place.opened()
        while opened.resumed:  # it was back before they were said
            server.drop_sockets()
            for number in range(300):
                place.say(str(number))
            opened = place.opened()
        assert not opened.resumed


def test_c5_a_hundred_drops_lose_nothing(server: Server) -> None:
    """Every post arrives once, or the stream says that it is a new one."""
    with EventPlace(server) as place:
        place.opened()
        for number in range(100):
            server.drop_sockets()
            place.say(str(number))
        last = place.say("last")
        texts: list[str] = []
        resumed = True
        while True:
            item = place.next()
            if isinstance(item, Opened):
                resumed &= item.resumed
            if isinstance(item, Posted):
                texts.append(item.post.message)
                if item.post.id == last:
                    break
        assert len(texts) == len(set(texts))
        assert texts == [*map(str, range(100)), "last"] or not resumed


def test_a_half_open_connection_is_noticed_by_its_ping(server: Server) -> None:
    with EventPlace(server, ping_ms=50) as place:
        place.opened()
        server.half_open()
        assert isinstance(place.until(Lost), Lost)
        said: list[Item] = []
        while not isinstance(opened := place.next(), Opened):
            said.append(opened)
        assert said == []
        assert place.condition.open


def test_c11_a_revoked_token_is_a_state_and_not_a_loop(server: Server) -> None:
    with EventPlace(server, ping_ms=50) as place:
        place.opened()
        server.revoke(place.token)
        eventually(lambda: code(place) == "token_refused")
        assert not place.condition.open
        trouble = place.condition.worst()
        assert trouble is not None
        assert place.token not in str(trouble)


def test_c11_a_bot_that_was_disabled_and_enabled_hears_again(server: Server) -> None:
    """The server leaves the stream open and silent; only the status of a ping's answer tells."""
    with EventPlace(server, ping_ms=50) as place:
        place.opened()
        server.disable(place.bot)
        eventually(lambda: code(place) == "token_refused")
        server.enable(place.bot)
        assert not place.opened().resumed
        said = place.say("again")
        assert place.until(Posted).post.id == said
        assert place.condition.worst() is None


def test_a_token_that_never_held_is_found_out_by_asking(server: Server) -> None:
    """The server lets anybody upgrade, and never says hello."""
    place = EventPlace(server, ping_ms=50)
    server.revoke(place.token)
    with place:
        eventually(lambda: code(place) == "token_refused")
        assert place.asked >= 1
    assert place.items.empty()


def test_c11_a_token_that_another_call_found_revoked_is_known_at_once(server: Server) -> None:
    """The stream's own pings are minutes away."""
    with EventPlace(server) as place:
        place.opened()
        server.revoke(place.token)
        place.events.doubt()
        eventually(lambda: code(place) == "token_refused")
        assert not place.condition.open


def test_a_token_that_was_doubted_and_holds_leaves_no_trouble_and_what_was_said_is_caught_up(server: Server) -> None:
    with EventPlace(server, retry_most_ms=60_000) as place:
        place.opened()
        place.events.doubt()
        assert not place.opened().resumed
        assert place.asked == 1
        assert place.condition.worst() is None
        place.events.doubt()  # too soon after the server said that it holds
        said = place.say("still here")
        item = place.next()
        assert isinstance(item, Posted)
        assert item.post.id == said


def test_a_doubt_while_no_stream_is_open_is_harmless(server: Server) -> None:
    place = EventPlace(server)
    place.events.doubt()
    with place:
        place.opened()
        assert place.asked == 0


STATUSES = {
    401: "token_refused",
    403: "mattermost_denied",
    400: "mattermost_refused",
    404: "mattermost_unclear",
    302: "mattermost_unclear",
    200: "mattermost_unclear",
    429: "mattermost_busy",
    500: "mattermost_away",
    502: "mattermost_away",
    503: "mattermost_away",
}


@pytest.mark.parametrize(("status", "expected"), STATUSES.items())
def test_c8_the_status_of_the_handshake_is_a_state_and_mends(server: Server, status: int, expected: str) -> None:
    body = "<html>401 Unauthorized, 429, and so on</html>"
    server.fail("GET", "/websocket", status=status, body=body, headers={"Content-Type": "text/html"}, times=3)
    with EventPlace(server) as place:
        assert not place.opened().resumed
        assert place.condition.codes == [expected] * 3
        assert place.condition.worst() is None


def test_a_pause_that_the_server_asks_for_is_kept(server: Server) -> None:
    """Bounded by the longest pause, which is all that a test can wait for."""
    server.fail("GET", "/websocket", status=429, body="limit exceeded", headers={"Retry-After": "3600"})
    with EventPlace(server) as place:
        assert not place.opened().resumed


def test_c11_a_server_that_is_not_there_is_tried_for_ever(server: Server) -> None:
    place = EventPlace(server)
    server.down()
    with place:
        eventually(lambda: code(place) == "mattermost_away")
        server.up()
        assert not place.opened().resumed
        assert code(place) is None


def test_a_sink_that_fails_ends_the_stream_and_not_the_thread(server: Server) -> None:
    place = EventPlace(server)
    calls: list[Item] = []

    def sink(item: Item) -> None:
        calls.append(item)
        if isinstance(item, Posted) and item.post.message == "poison":
            raise ZeroDivisionError
        place.items.put(item)

    place.events._sink = sink
    with place:
        place.opened()
        place.say("poison")
        assert not place.opened().resumed
        said = place.say("fine")
        assert place.until(Posted).post.id == said


def test_stop_ends_a_connection_that_reads(server: Server) -> None:
    place = EventPlace(server)
    with place:
        place.opened()
    assert place.events.join(0)


def test_stop_ends_a_pause(server: Server) -> None:
    place = EventPlace(server, retry_most_ms=86_400_000)
    server.fail("GET", "/websocket", status=401, times=10**6)
    with place:
        eventually(lambda: code(place) == "token_refused")


def test_stop_ends_a_handshake_that_nobody_answers(server: Server) -> None:
    held = threading.Event()
    server.fail("GET", "/websocket", status=500, wait=held)
    place = EventPlace(server)
    with place:
        eventually(lambda: place.events._end is not None)
    held.set()
    assert place.items.empty()


def test_stop_ends_the_question_about_the_token(server: Server) -> None:
    held = threading.Event()
    place = EventPlace(server, ping_ms=50)
    server.fail("GET", "/users/me", status=500, wait=held)
    server.revoke(place.token)
    with place:
        eventually(lambda: place.asked > 0)
    held.set()


def test_stop_before_start_and_twice_is_harmless(server: Server) -> None:
    place = EventPlace(server)
    place.events.stop()
    assert place.events.join(0)
    place.events.start()
    assert place.events.join(60_000)
    place.events.stop()
    assert place.items.empty()


def test_the_condition_of_other_parts_is_left_alone(server: Server) -> None:
    place = EventPlace(server)
    place.condition.trouble(Part.OUTBOUND, MattermostAway("elsewhere"))
    with place:
        place.opened()
        assert code(place) == "mattermost_away"
