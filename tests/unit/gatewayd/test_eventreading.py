"""What the order of a stream's messages means: nothing is handed on across a gap, and a new stream says so."""

import json
import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from bxcore.deadline import SystemClock
from bxcore.secrets import Secret
from bxcore.settings.gatewayd import Mattermost as Settings
from gatewayd.events import Events, Item, Lost, Opened, Posted
from gatewayd.mattermost import Mattermost
from tests.fakes.eventplace import Told
from tests.fakes.eventscript import STREAM, EventScript

K1, K2 = "a" * 26, "b" * 26
PONG = {"status": "OK", "seq_reply": 1, "data": {"text": "pong"}}
FAIL = {"status": "FAIL", "seq_reply": 1, "error": {"status_code": 401}}
NEVER_MS = 86_400_000


def hello(connection: str, seq: int = 0) -> object:
    data = {"connection_id": connection, "server_version": "11.6.0.x"}
    return {"event": "hello", "data": data, "broadcast": {"user_id": "m" * 26}, "seq": seq}


def posted(seq: int, text: str) -> object:
    post = {"id": "p" * 26, "user_id": "o" * 26, "channel_id": "c" * 26, "message": text, "create_at": 1}
    return {"event": "posted", "data": {"post": json.dumps(post)}, "broadcast": {}, "seq": seq}


def event(seq: int, name: str = "typing", data: object = None) -> object:
    return {"event": name, "data": data, "broadcast": {}, "seq": seq}


class Connected:
    """The event connection to a script; `told` is its condition."""

    def __init__(self, server: EventScript, *, ping_ms: int) -> None:
        settings = Settings(url=server.url, ping_ms=ping_ms, retry_most_ms=10)
        token = Secret("mattermost-token", "t0ken")
        self.items: queue.Queue[Item] = queue.Queue()
        self.told = Told()
        self.events = Events(
            settings,
            token,
            clock=SystemClock(),
            condition=self.told,
            sink=self.items.put,
            api=lambda: Mattermost(settings, token),
        )

    def heard(self, count: int) -> list[str]:
        """Return so many items, each in a word."""
        return [_word(self.items.get(timeout=60)) for _ in range(count)]


@contextmanager
def connected(*scripts: Sequence[object], ping_ms: int = NEVER_MS) -> Iterator[tuple[EventScript, Connected]]:
    with EventScript(*scripts) as server:
        place = Connected(server, ping_ms=ping_ms)
        place.events.start()
        try:
            yield server, place
        finally:
            place.events.stop()
            assert place.events.join(60_000)


def _word(item: Item) -> str:
    match item:
        case Opened(resumed=resumed):
            return "resumed" if resumed else "new"
        case Lost():
            return "lost"
        case Posted(post=post):
            return post.message
    return type(item).__name__


def heard(count: int, *scripts: Sequence[object]) -> list[str]:
    with connected(*scripts) as (_, place):
        return place.heard(count)


def test_a_stream_goes_on_where_it_was() -> None:
    scripts = ([hello(K1), PONG, event(1), posted(2, "a"), None], [posted(3, "b"), PONG, posted(4, "c")])
    with connected(*scripts) as (server, place):
        assert place.heard(6) == ["new", "a", "lost", "resumed", "b", "c"]
        assert server.targets == [STREAM, f"{STREAM}?connection_id={K1}&sequence_number=3"]


def test_the_answer_to_a_ping_alone_means_resumed() -> None:
    assert heard(5, [hello(K1), posted(1, "a"), None], [PONG, posted(2, "b")]) == ["new", "a", "lost", "resumed", "b"]


def test_hello_means_new_whatever_was_asked_for() -> None:
    scripts = ([hello(K1), posted(1, "a"), None], [hello(K2), PONG, posted(1, "b")])
    assert heard(5, *scripts) == ["new", "a", "lost", "new", "b"]


def test_hello_behind_the_answer_to_a_ping_means_new_all_the_same() -> None:
    """However the server orders its queue: what cannot be had must end as a new stream."""
    scripts = ([hello(K1), posted(1, "a"), None], [PONG, hello(K2), posted(1, "b")])
    assert heard(6, *scripts) == ["new", "a", "lost", "resumed", "new", "b"]


GAPS: dict[str, list[object]] = {
    "one is missing": [hello(K1), posted(1, "a"), posted(3, "c")],
    "one comes twice": [hello(K1), posted(1, "a"), posted(1, "a")],
    "one that means nothing is missing": [hello(K1), posted(1, "a"), event(7)],
    "no number": [hello(K1), posted(1, "a"), {"event": "typing"}],
    "no JSON": [hello(K1), posted(1, "a"), "<html>"],
    "neither event nor reply": [hello(K1), posted(1, "a"), {}],
}


@pytest.mark.parametrize("script", GAPS.values(), ids=GAPS.keys())
def test_a_gap_ends_the_stream_and_the_next_is_new(script: list[object]) -> None:
    with connected(script, [hello(K2), posted(1, "b")]) as (server, place):
        assert place.heard(5) == ["new", "a", "lost", "new", "b"]
        assert server.targets == [STREAM, STREAM]
        assert place.told.codes == ["mattermost_unclear"]


def test_events_without_hello_are_not_handed_on() -> None:
    with connected([PONG, posted(0, "a")], [hello(K1), posted(1, "b")]) as (_, place):
        assert place.heard(2) == ["new", "b"]


def test_a_resumed_stream_with_a_gap_is_new_afterwards() -> None:
    scripts = ([hello(K1), posted(1, "a"), None], [posted(5, "e"), PONG], [hello(K2), posted(1, "b")])
    with connected(*scripts) as (server, place):
        assert place.heard(5) == ["new", "a", "lost", "new", "b"]
        assert server.targets[2] == STREAM


def test_a_number_that_the_server_does_not_like_is_not_offered_twice() -> None:
    scripts = ([hello(K1), posted(1, "a"), None], [None], [hello(K2), posted(1, "b")])
    with connected(*scripts) as (server, place):
        assert place.heard(5) == ["new", "a", "lost", "new", "b"]
        assert server.targets == [STREAM, f"{STREAM}?connection_id={K1}&sequence_number=2", STREAM]


def test_a_ping_that_fails_ends_the_stream_and_the_next_is_new() -> None:
    """It does not matter that an answer came: the server says that it does not know us."""
    with connected([hello(K1), posted(1, "a"), FAIL], [hello(K2)]) as (server, place):
        assert place.heard(4) == ["new", "a", "lost", "new"]
        assert server.targets == [STREAM, STREAM]
        assert any(b"/users/me" in head for head in server.requests)


@pytest.mark.parametrize("first", [[hello(K1)], [hello(K1), event(1)]])
def test_a_ping_that_nobody_answers_ends_the_stream(first: list[object]) -> None:
    with connected(first, [hello(K2), PONG], ping_ms=30) as (_, place):
        assert place.heard(3) == ["new", "lost", "new"]
        assert place.told.codes[0] == "mattermost_away"


def test_a_stream_that_answers_and_never_says_hello_is_given_up() -> None:
    with connected([PONG], [hello(K1)], ping_ms=500) as (_, place):
        assert place.heard(1) == ["new"]
        assert place.told.codes == ["mattermost_unclear"]


BAD_POST: Any = {"post": "{}"}


def test_a_malformed_post_is_skipped_and_logged_once_by_name(caplog: pytest.LogCaptureFixture) -> None:
    script = [
        hello(K1),
        event(1, "posted", BAD_POST),
        event(2, "posted", BAD_POST),
        event(3, "post_edited", BAD_POST),
        event(4, "an_event_of_next_year", {"post": 7}),
        posted(5, "fine"),
    ]
    assert heard(2, script) == ["new", "fine"]
    lines = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert [line.split()[2] for line in lines] == ["event=posted", "event=post_edited"]


def test_names_of_events_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Only events that we read can be skipped, so that a server's own names never reach the log."""
    script = [hello(K1), *(event(number, f"name_{number}", BAD_POST) for number in range(1, 300)), posted(300, "fine")]
    assert heard(2, script) == ["new", "fine"]
    assert not [record for record in caplog.records if "skipped" in record.getMessage()]
