"""The fake keeps the rules of server 11.6 for event connections: login, numbers, resume, liveness, sizes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import websocket

from tests.contract.mattermost.serverclient import Caller, Socket, posted
from tests.fakes.mattermost import Mattermost

UNAUTHENTICATED = "api.web_socket_router.not_authenticated.app_error"


class Place:
    """A server with Ann, the bot and their direct channel."""

    def __init__(self, server: Mattermost) -> None:
        self.server = server
        self.ann = server.add_user("ann")
        self.box, self.token = server.add_bot("box")
        self.direct = server.direct(self.ann, self.box)

    def say(self, *texts: str) -> None:
        for text in texts:
            self.server.say(self.ann, self.direct, text)

    def resumed(self, hello: Any, sequence: int) -> Socket:
        query = f"?connection_id={hello['data']['connection_id']}&sequence_number={sequence}"
        return Socket(self.server, self.token, query=query)


@pytest.fixture
def place() -> Iterator[Place]:
    with Mattermost() as server:
        yield Place(server)


def names(events: list[Any]) -> list[str]:
    return [event["event"] for event in events]


# --- login ---


def test_a_header_logs_in_and_hello_is_event_zero(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        hello = events.next()
        pong = events.ask("ping", 7)
    assert (hello["event"], hello["seq"]) == ("hello", 0)
    assert hello["data"]["server_version"].startswith("11.6.0.")
    assert (pong["status"], pong["seq_reply"], pong["data"]["text"]) == ("OK", 7, "pong")
    assert "seq" not in pong


def test_a_challenge_logs_in_and_a_wrong_one_ends_the_connection(place: Place) -> None:
    with Socket(place.server) as events:
        assert events.ask("authentication_challenge", token=place.token)["event"] == "hello"
        assert events.next()["status"] == "OK"
    with Socket(place.server) as events:
        events.raw.send(json.dumps({"seq": 1, "action": "authentication_challenge", "data": {"token": "x" * 26}}))
        assert events.end() == "cut"


def test_who_is_not_logged_in_hears_nothing_gets_no_answer_and_is_dropped_after_five_seconds(place: Place) -> None:
    with Socket(place.server) as events:
        place.say("secret")
        events.raw.send(json.dumps({"seq": 1, "action": "ping"}))
        place.server.advance(5_000)
        assert events.end() == "cut"  # and nothing came before it, since end() would still be reading


def test_a_token_that_does_not_hold_is_no_reason_to_refuse_the_upgrade(place: Place) -> None:
    place.server.revoke(place.token)
    with Socket(place.server, place.token) as events:
        events.raw.send(json.dumps({"seq": 1, "action": "ping"}))
        place.server.advance(5_000)
        with pytest.raises((websocket.WebSocketConnectionClosedException, ConnectionError)):
            events.next()


def test_an_origin_has_to_be_the_servers_own(place: Place) -> None:
    with Socket(place.server, place.token, Origin=place.server.url) as events:
        assert events.next()["event"] == "hello"
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        Socket(place.server, place.token, Origin="https://chat.example.org")
    assert refused.value.status_code == 403
    place.server.set_config(SiteURL="https://chat.example.org")
    with Socket(place.server, place.token, Origin="https://chat.example.org") as events:
        assert events.next()["event"] == "hello"


def test_events_come_through_tls() -> None:
    with Mattermost(tls=True) as server:
        other = Place(server)
        with Socket(server, other.token) as events:
            events.next()
            other.say(*map(str, range(50)))
            assert list(posted(events.events(50))) == list(map(str, range(50)))
            assert events.ask("ping")["status"] == "OK"


# --- events ---


def test_a_post_is_json_within_json_and_its_author_gets_it_too(place: Place) -> None:
    with Socket(place.server, place.token) as events, Caller(place.server, place.token) as api:
        events.next()
        api.done("POST", "/posts?set_online=false", {"channel_id": place.direct, "message": "mine"})
        event = events.next()
    assert json.loads(event["data"]["post"])["message"] == "mine"
    assert (event["data"]["channel_type"], event["data"]["sender_name"]) == ("D", "@box")
    assert event["data"]["set_online"] is False
    assert event["broadcast"]["channel_id"] == place.direct
    assert "mentions" not in event["data"]


def test_mentions_name_the_receiver_alone_and_say_nothing_of_the_text(place: Place) -> None:
    room = place.server.add_channel("O", [place.ann, place.box])
    with Socket(place.server, place.token) as events:
        events.next()
        place.say("no name in here")
        place.server.say(place.ann, room, "@all")
        place.server.say(place.ann, room, "box, and nobody else")
        told = [event["data"].get("mentions") for event in events.events(3)]
    assert told == [json.dumps([place.box]), json.dumps([place.box]), None]


def test_a_deleted_root_is_one_event_that_shows_it_as_it_was(place: Place) -> None:
    root = place.server.say(place.ann, place.direct, "root")
    place.server.say(place.ann, place.direct, "reply", root=root["id"])
    with Socket(place.server, place.token) as events:
        events.next()
        place.server.delete(root["id"])
        gone = events.next()
        assert events.ask("ping")["status"] == "OK"
    told = json.loads(gone["data"]["post"])
    assert (gone["event"], told["message"], told["delete_at"]) == ("post_deleted", "root", 0)
    assert place.server.posts_of(place.direct) == []


def test_edits_memberships_and_channels_have_their_events(place: Place) -> None:
    made = place.server.say(place.ann, place.direct, "text")
    with Socket(place.server, place.token) as events:
        events.next()
        place.server.edit(made["id"], "other text")
        room = place.server.add_channel("O", [place.ann])
        place.server.join(room, place.box)
        place.server.remove(room, place.box)
        other = place.server.add_channel("P", [place.ann, place.box])
        place.server.archive(other)
        place.server.direct(place.box, place.server.add_user("ben"))
        seen = events.events(8)
    assert names(seen) == [
        "post_edited",
        "user_added",
        "user_removed",
        "user_added",
        "user_added",
        "channel_deleted",
        "new_user",
        "direct_added",
    ]
    assert (seen[2]["data"]["channel_id"], seen[2]["broadcast"]["user_id"]) == (room, place.box)
    assert seen[5]["data"]["channel_id"] == other


def test_typing_is_shown_to_the_others(place: Place) -> None:
    with Socket(place.server, place.token) as box, Socket(place.server, place.server.token_for(place.ann)) as ann:
        box.next()
        ann.next()
        assert box.ask("user_typing", channel_id=place.direct, parent_id="")["status"] == "OK"
        typing = ann.next()
        assert box.ask("ping", 2)["seq_reply"] == 2
    assert (typing["event"], typing["data"]["user_id"]) == ("typing", place.box)
    assert [(shown.user, shown.channel, shown.parent) for shown in place.server.typings] == [
        (place.box, place.direct, "")
    ]


def test_events_of_foreign_channels_do_not_come(place: Place) -> None:
    room = place.server.add_channel("P", [place.ann])
    with Socket(place.server, place.token) as events:
        events.next()
        place.server.say(place.ann, room, "secret")
        place.say("open")
        assert list(posted([events.next()])) == ["open"]


# --- resume ---


def test_what_waits_comes_after_a_drop_without_a_hello(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        hello = events.next()
        place.say("1", "2")
        assert [event["seq"] for event in events.events(2)] == [1, 2]
        place.server.drop_sockets()
        place.say("3", "4")
    with place.resumed(hello, 3) as events:
        seen = events.events(2)
    assert (list(posted(seen)), [event["seq"] for event in seen]) == (["3", "4"], [3, 4])


def test_what_was_sent_and_not_read_comes_again_with_its_number(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        hello = events.next()
        place.say("1", "2", "3")
        events.events(3)
        place.server.drop_sockets()
    with place.resumed(hello, 2) as events:
        place.say("4")
        seen = events.events(3)
    assert (list(posted(seen)), [event["seq"] for event in seen]) == (["2", "3", "4"], [2, 3, 4])


def test_older_than_128_is_lost_and_the_stream_begins_anew(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        hello = events.next()
        place.say(*map(str, range(1, 141)))
        events.events(140)
        place.server.drop_sockets()
    with place.resumed(hello, 13) as events:  # 13 is the oldest of the last 128
        assert next(posted(events.events(128))) == "13"
        place.server.drop_sockets()
    with place.resumed(hello, 12) as events:
        again = events.next()
    assert (again["event"], again["seq"]) == ("hello", 0)
    assert again["data"]["connection_id"] != hello["data"]["connection_id"]


@pytest.mark.parametrize(("count", "kept"), [(256, True), (257, False)])
def test_256_events_wait_and_one_more_ends_it(place: Place, count: int, kept: bool) -> None:
    with Socket(place.server, place.token) as events:
        hello = events.next()
        place.server.drop_sockets()
    place.say(*map(str, range(count)))
    with place.resumed(hello, 1) as events:
        first = events.next()
    assert (first["event"] == "posted") is kept


def test_while_the_old_connection_seems_alive_there_is_no_resume(place: Place) -> None:
    with Socket(place.server, place.token) as first:
        hello = first.next()
        place.server.half_open()
        place.say("unheard")
        with place.resumed(hello, 1) as second:
            assert second.next()["data"]["connection_id"] != hello["data"]["connection_id"]


def test_a_restart_an_idle_stream_and_another_user_cannot_be_resumed(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        hello = events.next()
        place.server.drop_sockets()
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number=1"
    with Socket(place.server, place.server.token_for(place.ann), query=query) as events:
        assert events.next()["event"] == "hello"
    place.server.advance(10 * 60_000)
    with place.resumed(hello, 1) as events:
        later = events.next()
        assert later["data"]["connection_id"] != hello["data"]["connection_id"]
        place.server.restart()
    with place.resumed(later, 1) as events:
        assert events.next()["data"]["connection_id"] != later["data"]["connection_id"]


@pytest.mark.parametrize("query", ["?connection_id=short&sequence_number=1", f"?connection_id={'a' * 26}"])
def test_half_a_question_to_resume_ends_the_connection(place: Place, query: str) -> None:
    with Socket(place.server, place.token, query=query) as events:
        assert events.end() == "cut"


def test_the_numbers_of_one_connection_are_whole_after_a_hundred_drops(place: Place) -> None:
    events = Socket(place.server, place.token)
    hello, seen = events.next(), list[Any]()
    for number in range(100):
        place.say(f"{number}a")
        place.server.drop_sockets()
        place.say(f"{number}b")
        events.raw.shutdown()  # type: ignore[no-untyped-call]
        events = place.resumed(hello, len(seen) + 1)
        seen += events.events(2)
    events.raw.shutdown()  # type: ignore[no-untyped-call]
    assert [event["seq"] for event in seen] == list(range(1, 201))
    assert list(posted(seen)) == [f"{number}{half}" for number in range(100) for half in "ab"]


# --- liveness and sizes ---


def test_a_revoked_token_leaves_the_connection_open_and_deaf(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        events.next()
        place.server.revoke(place.token)
        place.say("unheard")
        answer = events.ask("ping", 3)
    assert (answer["status"], answer["seq_reply"]) == ("FAIL", 3)
    assert (answer["error"]["id"], answer["error"]["status_code"]) == (UNAUTHENTICATED, 401)


def test_a_bot_that_was_disabled_and_enabled_stays_deaf_on_its_old_connection(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        events.next()
        place.server.disable(place.box)
        place.server.enable(place.box)
        place.say("unheard")
        assert events.ask("ping")["status"] == "FAIL"
        with Socket(place.server, place.token) as other:
            assert other.next()["event"] == "hello"


def test_the_protocols_ping_comes_every_minute_and_wants_its_pong(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        events.next()
        place.server.advance(60_000)
        code, _ = events.raw.recv_data(control_frame=True)  # answers it too
        assert code == websocket.ABNF.OPCODE_PING
        assert events.ask("ping")["status"] == "OK"
        place.server.advance(99_000)
        code, _ = events.raw.recv_data(control_frame=True)
        assert code == websocket.ABNF.OPCODE_PING
        assert events.ask("ping", 2)["status"] == "OK"
        place.server.half_open()
        place.server.advance(100_000)
        assert events.end() == "cut"


def test_a_frame_above_8192_bytes_closes(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        events.next()
        assert events.ask("ping", filler="x" * 8_000)["status"] == "OK"
        events.raw.send(json.dumps({"action": "ping", "seq": 2, "data": {"filler": "x" * 8_192}}))
        assert events.end() == "closed"


@pytest.mark.parametrize("text", ["no json", '{"action": "ping", "seq": "1"}', "[]"])
def test_what_is_no_request_ends_the_connection(place: Place, text: str) -> None:
    with Socket(place.server, place.token) as events:
        events.next()
        events.raw.send(text)
        assert events.end() == "cut"


def test_a_binary_frame_ends_the_connection(place: Place) -> None:
    with Socket(place.server, place.token) as events:
        events.next()
        events.raw.send_binary(json.dumps({"action": "ping", "seq": 1}).encode())
        assert events.end() == "cut"


@pytest.mark.parametrize(
    ("action", "seq", "error"),
    [
        ("", 1, "api.web_socket_router.no_action.app_error"),
        ("ping", 0, "api.web_socket_router.bad_seq.app_error"),
        ("dance", 1, "api.web_socket_router.bad_action.app_error"),
        ("user_typing", 1, "api.websocket_handler.invalid_param.app_error"),
    ],
)
def test_wrong_requests_are_answered_with_fail(place: Place, action: str, seq: int, error: str) -> None:
    with Socket(place.server, place.token) as events:
        events.next()
        answer = events.ask(action, seq)
    assert (answer["status"], answer["error"]["id"]) == ("FAIL", error)
