"""The REST calls, against a server with the real one's rules."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from bxcore.ids import MattermostId
from bxcore.secrets import Secret
from bxcore.settings.gatewayd import Mattermost as Settings
from gatewayd import mattermost
from gatewayd.faults import (
    MattermostAway,
    MattermostBusy,
    MattermostDenied,
    MattermostFault,
    MattermostRefused,
    MattermostUnclear,
    TokenRefused,
)
from gatewayd.posts import ChannelType
from tests.fakes.mattermost import Mattermost as Server

UNSAFE = {"unsafe_links": "true"}
NOBODY = MattermostId("n" * 26)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


class Place:
    """A server, a person who talks with a bot, and the bot's way to the server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.owner = MattermostId(server.add_user("owner"))
        bot, self.token = server.add_bot("boxmaker")
        self.bot = MattermostId(bot)
        self.channel = MattermostId(server.direct(self.owner, self.bot))
        self.api = self.another()

    def another(self) -> mattermost.Mattermost:
        return mattermost.Mattermost(Settings(url=self.server.url), Secret("mattermost-token", self.token))

    def say(self, text: str, *, root: str | None = None) -> MattermostId:
        self.server.advance(1)  # posts of one millisecond have no order
        return MattermostId(self.server.say(self.owner, self.channel, text, root=root)["id"])


@pytest.fixture
def place(server: Server) -> Iterator[Place]:
    place = Place(server)
    yield place
    place.api.close()


def test_me_is_the_bot(place: Place) -> None:
    me = place.api.me()
    assert (me.id, me.username, me.is_bot, me.delete_at) == (place.bot, "boxmaker", True, 0)


def test_config_is_what_the_server_says(place: Place) -> None:
    place.server.set_config(MaxPostSize=4_321, TimeBetweenUserTypingUpdatesMilliseconds=6_000)
    config = place.api.config()
    assert (config.max_post_characters, config.typing_ms) == (4_321, 6_000)
    assert config.version is not None


@pytest.mark.parametrize("size", ["", "0", "-1", "many", "99999999999"])
def test_a_limit_that_is_none_becomes_the_safe_one(place: Place, size: str) -> None:
    place.server.set_config(MaxPostSize=size, TimeBetweenUserTypingUpdatesMilliseconds=size)
    config = place.api.config()
    assert (config.max_post_characters, config.typing_ms) == (4_000, 5_000)


def test_channels_are_those_that_the_bot_is_in(place: Place) -> None:
    town = place.server.add_channel("O", [place.owner, place.bot], name="town")
    place.server.add_channel("O", [place.owner], name="elsewhere")
    found = {channel.id: channel.type for channel in place.api.channels()}
    assert found[place.channel] is ChannelType.DIRECT
    assert found[MattermostId(town)] is ChannelType.OPEN
    assert place.server.add_channel("P", [place.owner], name="private") not in found
    assert place.api.channel(MattermostId(town)).name == "town"


NO_CHANNELS = '{"id":"app.channel.get_channels.not_found.app_error","message":"none","status_code":404}'


@pytest.mark.parametrize(
    ("status", "body"), [(200, f"[{NO_CHANNELS}"), (200, f"[\n{NO_CHANNELS}\n"), (404, NO_CHANNELS)]
)
def test_no_channel_at_all_is_no_fault(place: Place, status: int, body: str) -> None:
    """The server begins a list before it finds that there is nothing to list."""
    place.server.fail("GET", "/users/me/channels", status=status, body=body)
    assert place.api.channels() == ()


@pytest.mark.parametrize("body", ["[", '[{"id":"api.other.app_error"}', "{}", "", '[{"id":'])
def test_half_a_list_of_channels_is_a_fault(place: Place, body: str) -> None:
    """Else a proxy that cuts an answer off would make the bot forget where it is."""
    place.server.fail("GET", "/users/me/channels", status=200, body=body)
    with pytest.raises(MattermostUnclear):
        place.api.channels()


def test_posts_come_newest_first_replies_included(place: Place) -> None:
    first = place.say("one")
    reply = place.say("two", root=first)
    last = place.say("three")
    found = [post.id for post in place.api.posts(place.channel, page=0)]
    assert found[:3] == [last, reply, first]


def test_pages_of_posts_go_on_until_one_is_empty(place: Place) -> None:
    before = [post.id for post in place.api.posts(place.channel, page=0)]
    said = [place.say(str(number)) for number in range(5)]
    pages = [place.api.posts(place.channel, page=page, per_page=2) for page in range(5)]
    assert [post.id for page in pages for post in page] == [*reversed(said), *before]
    assert pages[-1] == ()


def test_the_order_counts_and_not_the_map(place: Place) -> None:
    """The map of a page holds thread parents too, which are older than the page."""
    root = place.say("root")
    for number in range(3):
        place.say(str(number))
    reply = place.say("reply", root=root)
    assert [post.id for post in place.api.posts(place.channel, page=0, per_page=1)] == [reply]


def test_a_deleted_post_is_in_no_list(place: Place) -> None:
    gone = place.say("gone")
    place.server.delete(gone)
    assert gone not in {post.id for post in place.api.posts(place.channel, page=0)}
    with pytest.raises(MattermostDenied):
        place.api.post(gone)


def test_a_post_that_cannot_be_read_is_left_out(place: Place) -> None:
    good = place.api.post(place.say("good"))
    raw = place.server.post(good.id)
    body = {"order": [good.id, "x" * 26, 7], "posts": {good.id: raw, "x" * 26: raw | {"create_at": "noon"}}}
    place.server.fail("GET", "/posts", status=200, body=json.dumps(body))
    assert [post.id for post in place.api.posts(place.channel, page=0)] == [good.id]


@pytest.mark.parametrize("body", ["[]", "{}", '{"order":{},"posts":{}}', '{"order":[],"posts":[]}', "<html>", "7"])
def test_what_is_no_list_of_posts_is_unclear(place: Place, body: str) -> None:
    place.server.fail("GET", "/posts", status=200, body=body)
    with pytest.raises(MattermostUnclear):
        place.api.posts(place.channel, page=0)


@pytest.mark.parametrize("replies", [0, 1, 199, 200, 450])
def test_a_thread_is_whole_and_in_order(place: Place, replies: int) -> None:
    root = place.say("root")
    said = [place.say(str(number), root=root) for number in range(replies)]
    assert [post.id for post in place.api.thread(root)] == [root, *said]


def test_a_thread_in_one_millisecond_is_whole(place: Place) -> None:
    """Pages go on behind a post of the same time, whichever its id."""
    root = place.say("root")
    at = place.server.post(root)["create_at"] + 5
    said = {place.server.say(place.owner, place.channel, str(n), root=root, at=at)["id"] for n in range(230)}
    found = place.api.thread(root)
    assert found[0].id == root
    assert {post.id for post in found[1:]} == said
    assert len(found) == 231


def test_a_thread_that_is_gone_is_denied(place: Place) -> None:
    root = place.say("root")
    place.server.delete(root)
    with pytest.raises(MattermostDenied):
        place.api.thread(root)


def test_a_post_is_made_with_its_props(place: Place) -> None:
    root = place.say("hello")
    made = place.api.create_post(
        place.channel, "hi \N{GRINNING FACE}", root=root, props={**UNSAFE, "boxmaker": "k"}, pending="p"
    )
    there = place.server.post(made.id)
    assert (there["message"], there["root_id"], there["user_id"]) == ("hi \N{GRINNING FACE}", root, place.bot)
    assert there["props"] == {**UNSAFE, "boxmaker": "k", "from_bot": "true"}
    assert place.api.post(made.id) == made


def test_a_post_that_is_sent_again_at_once_is_one_post(place: Place) -> None:
    made = [place.api.create_post(place.channel, "x", root=None, props=UNSAFE, pending="same").id for _ in range(2)]
    assert made[0] == made[1]


def test_a_patch_replaces_text_and_props(place: Place) -> None:
    made = place.api.create_post(place.channel, "old", root=None, props=UNSAFE, pending="p")
    patched = place.api.patch_post(made.id, message="new", props={**UNSAFE, "from_bot": "true"})
    assert (patched.id, patched.message) == (made.id, "new")
    assert place.server.post(made.id)["props"] == {**UNSAFE, "from_bot": "true"}


def test_the_direct_channel_is_found_or_made(place: Place) -> None:
    assert place.api.direct(place.bot, place.owner).id == place.channel
    other = MattermostId(place.server.add_user("other"))
    made = place.api.direct(place.bot, other)
    assert made.type is ChannelType.DIRECT
    assert set(made.name.split("__")) == {place.bot, other}


def test_typing_has_a_thread_form_and_a_channel_form(place: Place) -> None:
    root = place.say("hello")
    place.api.typing(place.channel, root)
    place.api.typing(place.channel, None)
    assert [(seen.channel, seen.parent) for seen in place.server.typings] == [
        (place.channel, root),
        (place.channel, ""),
    ]


def test_names_and_ids_find_those_who_exist(place: Place) -> None:
    assert {user.id for user in place.api.usernames(["owner", "nobody"])} == {place.owner}
    assert {user.username for user in place.api.users([place.owner, NOBODY])} == {"owner"}
    assert place.api.usernames([]) == ()


STATUSES: dict[str, tuple[int, type[MattermostFault], str]] = {
    "400": (400, MattermostUnclear, "mattermost_unclear"),
    "401": (401, TokenRefused, "token_refused"),
    "403": (403, MattermostUnclear, "mattermost_unclear"),
    "404": (404, MattermostUnclear, "mattermost_unclear"),
    "413": (413, MattermostRefused, "mattermost_refused"),
    "429": (429, MattermostBusy, "mattermost_busy"),
    "500": (500, MattermostAway, "mattermost_away"),
    "502": (502, MattermostAway, "mattermost_away"),
    "503": (503, MattermostAway, "mattermost_away"),
    "301": (301, MattermostUnclear, "mattermost_unclear"),
}
PAGES = {
    "html": "<html><body>502 Bad Gateway: 401 Unauthorized</body></html>",
    "text": "limit exceeded",
    "nothing": "",
    "other json": '{"id": 401, "status_code": 401}',
}


def test_a_token_that_is_refused_is_told_before_the_call_fails(place: Place) -> None:
    told: list[str] = []
    secret = Secret("mattermost-token", place.token)
    made = mattermost.Mattermost(Settings(url=place.server.url), secret, on_token_refused=lambda: told.append("401"))
    with closing(made) as api:
        api.me()
        place.server.fail("GET", "/posts/", status=403)
        with pytest.raises(MattermostFault):
            api.post(NOBODY)
        assert told == []
        place.server.revoke(place.token)
        with pytest.raises(TokenRefused):
            api.typing(place.channel, None)
    assert told == ["401"]


@pytest.mark.parametrize("body", PAGES.values(), ids=PAGES.keys())
@pytest.mark.parametrize(("status", "kind", "code"), STATUSES.values(), ids=STATUSES.keys())
def test_c8_the_status_alone_says_what_went_wrong(
    place: Place, status: int, kind: type[MattermostFault], code: str, body: str
) -> None:
    place.server.fail("GET", "/posts/", status=status, body=body, headers={"Content-Type": "text/html"})
    with pytest.raises(MattermostFault) as caught:
        place.api.post(NOBODY)
    assert (type(caught.value), caught.value.code, caught.value.status) == (kind, code, status)
    assert caught.value.error == ""


@pytest.mark.parametrize("name", ["api.context.permissions.app_error", "Post rejected by plugin. No."])
@pytest.mark.parametrize(("status", "kind"), {400: MattermostRefused, 403: MattermostDenied}.items())
def test_a_refusal_is_the_servers_where_it_has_the_form_of_its_errors(
    place: Place, status: int, kind: type[MattermostFault], name: str
) -> None:
    body = f'{{"id": "{name}", "message": "no", "status_code": {status}}}'
    place.server.fail("GET", "/posts/", status=status, body=body)
    with pytest.raises(kind) as caught:
        place.api.post(NOBODY)
    assert caught.value.error == (name if name.startswith("api.") else "")


def test_the_servers_own_name_for_an_error_is_kept(place: Place) -> None:
    root = place.say("root")
    reply = place.say("reply", root=root)
    with pytest.raises(MattermostRefused) as caught:
        place.api.create_post(place.channel, "x", root=reply, props=UNSAFE, pending="p")
    assert caught.value.error == "api.post.create_post.root_id.app_error"


def test_too_long_a_message_is_refused_with_its_name(place: Place) -> None:
    place.server.set_config(MaxPostSize=16_383)
    place.api.create_post(place.channel, "\N{GRINNING FACE}" * 16_383, root=None, props=UNSAFE, pending="p")
    with pytest.raises(MattermostRefused) as caught:
        place.api.create_post(place.channel, "x" * 16_384, root=None, props=UNSAFE, pending="q")
    assert caught.value.error == "model.post.is_valid.message_length.app_error"


PAUSES: dict[str, tuple[int, dict[str, str], int]] = {
    "retry-after": (429, {"Retry-After": "7"}, 7_000),
    "reset": (429, {"X-RateLimit-Reset": "3"}, 3_000),
    "the later of both": (429, {"Retry-After": "2", "X-RateLimit-Reset": "5"}, 5_000),
    "neither": (429, {}, 1_000),
    "nothing to wait for": (429, {"Retry-After": "0"}, 1_000),
    "a date": (429, {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 1_000),
    "an epoch": (429, {"X-RateLimit-Reset": "1790000000"}, 60_000),
    "a year": (429, {"Retry-After": "31536000"}, 60_000),
    "more digits than anybody reads": (429, {"Retry-After": "9" * 5_000}, 1_000),
    "negative": (429, {"Retry-After": "-5"}, 1_000),
    "503 with a time": (503, {"Retry-After": "4"}, 4_000),
}


@pytest.mark.parametrize(("status", "headers", "pause_ms"), PAUSES.values(), ids=PAUSES.keys())
def test_c8_a_pause_that_the_server_asks_for_is_heeded_within_bounds(
    place: Place, status: int, headers: dict[str, str], pause_ms: int
) -> None:
    place.server.fail("GET", "/users/me", status=status, body="limit exceeded", headers=headers)
    with pytest.raises(MattermostBusy) as caught:
        place.api.me()
    assert caught.value.retry_ms == pause_ms


def test_c8_the_servers_rate_limit_is_a_pause(place: Place) -> None:
    place.server.rate_limit(True)
    with pytest.raises(MattermostBusy) as caught:
        [place.api.me() for _ in range(200)]
    assert 1_000 <= caught.value.retry_ms <= 60_000


def test_c11_a_server_without_our_calls_is_unclear(place: Place) -> None:
    """A 404 for what names nothing that could have gone: no Mattermost server, or no /api/v4 any more."""
    for call in (place.api.me, place.api.config, place.api.channels, lambda: place.api.usernames(["x"])):
        place.server.fail("*", "/api/v4", status=404, body="404 page not found")
        with pytest.raises(MattermostUnclear):
            call()


def test_c11_a_revoked_token_and_a_disabled_bot_are_told(place: Place) -> None:
    place.server.disable(place.bot)
    with pytest.raises(TokenRefused):
        place.api.me()
    place.server.enable(place.bot)
    assert place.api.me().id == place.bot
    place.server.revoke(place.token)
    with pytest.raises(TokenRefused):
        place.api.me()


def test_c8_a_removed_bot_is_denied(place: Place) -> None:
    town = MattermostId(place.server.add_channel("P", [place.owner, place.bot], name="town"))
    place.server.remove(town, place.bot)
    with pytest.raises(MattermostDenied):
        place.api.posts(town, page=0)
    with pytest.raises(MattermostDenied):
        place.api.create_post(town, "x", root=None, props=UNSAFE, pending="p")


def test_a_redirect_is_not_followed(place: Place) -> None:
    trap = place.server.add_user("trap")
    place.server.fail("GET", "/users/me$", status=302, headers={"Location": f"{place.server.url}/api/v4/users/{trap}"})
    with pytest.raises(MattermostUnclear, match="is the server's address right"):
        place.api.me()


def test_what_cannot_be_sent_is_refused_before_it_is_sent(place: Place) -> None:
    with pytest.raises(MattermostRefused):
        place.api.create_post(place.channel, "half a character: \ud800", root=None, props=UNSAFE, pending="p")


def test_half_a_character_of_the_server_becomes_a_whole_one(place: Place) -> None:
    said = place.say("x")
    raw = json.dumps(place.server.post(said) | {"message": "?"}).replace("?", "\\ud800")
    place.server.fail("GET", f"/posts/{said}", status=200, body=raw)
    assert place.api.post(said).message == "\N{REPLACEMENT CHARACTER}"


def test_a_server_that_went_away_and_came_back_is_asked_again(place: Place) -> None:
    assert place.api.me().id == place.bot
    place.server.down()
    with pytest.raises(MattermostAway):
        place.api.me()
    place.server.up()
    assert place.api.me().id == place.bot


def test_a_read_over_a_kept_connection_that_was_just_cut_is_tried_once_more(place: Place) -> None:
    place.api.me()
    place.server.fail("GET", "/users/me", status=0)
    assert place.api.me().id == place.bot


def test_a_write_is_never_repeated_behind_the_callers_back(place: Place) -> None:
    place.api.me()
    place.server.fail("POST", "/posts", status=0, after=True)
    with pytest.raises(MattermostAway):
        place.api.create_post(place.channel, "once", root=None, props=UNSAFE, pending="p")
    assert [post["message"] for post in place.server.posts_of(place.channel)].count("once") == 1


def test_close_ends_a_call_of_another_thread(place: Place) -> None:
    held = threading.Event()
    place.server.fail("GET", "/users/me", status=200, wait=held)
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            api.me()
        except MattermostFault as fault:
            caught.append(fault)

    api = place.another()
    thread = threading.Thread(target=ask)
    thread.start()
    while not api._http._asking or api._http._line is None:
        threading.Event().wait(0.002)
    api.close()
    thread.join()
    held.set()
    assert [type(fault) for fault in caught] == [MattermostAway]
    with pytest.raises(MattermostAway):
        api.me()


def test_close_may_be_called_twice_and_before_anything(place: Place) -> None:
    api = place.another()
    api.close()
    api.close()
    with pytest.raises(MattermostAway):
        api.me()


@pytest.mark.parametrize("hours", [-2, 0, 2])
def test_its_time_is_the_one_of_its_last_answer_that_was_a_success(place: Place, hours: int) -> None:
    place.server.advance(hours * 3_600_000)
    place.api.me()
    earliest = place.server.now() // 1_000 * 1_000
    place.server.fail("GET", "/users/me", status=500, headers={"Date": "Mon, 30 Nov 2020 12:00:00 GMT"})
    with pytest.raises(MattermostAway):
        place.api.me()
    assert earliest - 1_000 <= place.api.now() <= place.server.now()
