"""The fake keeps the rules of server 11.6 that a client can run into: accounts, posts, reading, limits, failures."""

import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
import requests

from tests.contract.mattermost.serverclient import AUTHORITY, Caller
from tests.fakes.mattermost import Mattermost

BODY = "api.context.invalid_body_param.app_error"
DENIED = (403, "api.context.permissions.app_error")
EXPIRED = (401, "api.context.session_expired.app_error")
NOT_A_ROOT = (400, "api.post.create_post.root_id.app_error")


class Place:
    """A server with Ann, the bot and their direct channel."""

    def __init__(self, server: Mattermost) -> None:
        self.server = server
        self.ann = server.add_user("ann")
        self.box, self.token = server.add_bot("box")
        self.direct = server.direct(self.ann, self.box)
        self.api = Caller(server, self.token)

    def post(self, message: str, **more: Any) -> Any:
        return self.api.done("POST", "/posts", {"channel_id": self.direct, "message": message, **more})

    def page(self, query: str) -> list[str]:
        """Return the texts of a page of the direct channel, in its order."""
        said = self.api.done("GET", f"/channels/{self.direct}/posts?{query}")
        return [said["posts"][post]["message"] for post in said["order"]]


@pytest.fixture
def server() -> Iterator[Mattermost]:
    with Mattermost() as started:
        yield started


@pytest.fixture
def place(server: Mattermost) -> Iterator[Place]:
    made = Place(server)
    with made.api:
        yield made


# --- accounts ---


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "token", "Token"])
def test_both_words_of_the_header_log_in(place: Place, scheme: str) -> None:
    with Caller(place.server) as api:
        me = api.ask("GET", "/users/me", headers={"Authorization": f"{scheme} {place.token}"}).json()
    assert (me["username"], me["is_bot"]) == ("box", True)


def test_a_cookie_wins_over_the_header(place: Place) -> None:
    headers = {"Cookie": f"MMAUTHTOKEN={place.server.token_for(place.ann)}"}
    assert place.api.ask("GET", "/users/me", headers=headers).json()["username"] == "ann"
    assert "is_bot" not in place.api.ask("GET", "/users/me", headers=headers).json()
    # What a page of another site could do with that cookie is refused.
    stray = place.api.ask("POST", "/posts", {"channel_id": place.direct, "message": "x"}, headers=headers)
    assert stray.status_code == HTTPStatus.UNAUTHORIZED


def test_a_token_in_the_address_is_refused(place: Place) -> None:
    with Caller(place.server) as api:
        answer = api.ask("GET", f"/users/me?access_token={place.token}")
    assert answer.json()["id"] == "api.context.token_provided.app_error"


def test_revoked_and_disabled_are_the_same_answer_and_enabled_works_again(place: Place) -> None:
    place.server.disable(place.box)
    assert place.api.refused("GET", "/users/me") == EXPIRED
    place.server.enable(place.box)
    assert place.api.done("GET", "/users/me")["id"] == place.box
    place.server.revoke(place.token)
    assert place.api.refused("GET", "/users/me") == EXPIRED


def test_only_existing_names_come_back_and_the_bot_is_found_by_its_exact_name(place: Place) -> None:
    found = place.api.done("POST", "/users/usernames", ["ann", "Box", "box", "all", "nobody"])
    assert [user["username"] for user in found] == ["ann", "box"]
    assert [user["id"] for user in place.api.done("POST", "/users/ids", [place.ann, "x" * 26])] == [place.ann]


def test_the_one_setting_that_an_administrator_must_switch(server: Mattermost) -> None:
    server.set_config(EnableBotAccountCreation=False)
    assert server.admin.request("POST", "/bots", {"username": "helper"})[0] == HTTPStatus.FORBIDDEN
    server.set_config(EnableBotAccountCreation=True)
    bot = server.admin.post("/bots", {"username": "helper"})
    made = server.admin.post(f"/users/{bot['user_id']}/tokens", {"description": "for the appliance"})
    with Caller(server, made["token"]) as api:
        assert api.done("GET", "/users/me")["username"] == "helper"
        (greeting,) = api.done("GET", "/users/me/channels")
        assert [post["type"] for post in server.posts_of(greeting["id"])] == ["add_bot_teams_channels"]


def test_in_no_channel_the_answer_is_cut_off_json_with_status_200(place: Place) -> None:
    place.server.leave_all(place.box)
    answer = place.api.ask("GET", "/users/me/channels")
    assert answer.status_code == HTTPStatus.OK
    assert answer.text.startswith('[{"id":"app.channel.get_channels.not_found.app_error"')
    with pytest.raises(requests.JSONDecodeError):
        answer.json()


# --- making posts ---


def test_what_only_the_server_may_say_of_a_post(place: Place) -> None:
    made = place.post("hello", create_at=5, user_id=place.ann, props={"own": "key"})
    assert made["create_at"] > 5
    assert made["user_id"] == place.box
    assert made["props"] == {"own": "key", "from_bot": "true"}


def test_a_reply_goes_to_a_root_of_the_same_channel_that_is_still_there(place: Place) -> None:
    root = place.post("root")
    reply = place.post("reply", root_id=root["id"])
    other = place.server.say(place.box, place.server.direct(place.box, place.server.add_user("ben")), "elsewhere")
    path, body = "/posts", {"channel_id": place.direct, "message": "x"}
    assert place.api.refused("POST", path, {**body, "root_id": reply["id"]}) == NOT_A_ROOT
    elsewhere = (400, "api.post.create_post.channel_root_id.app_error")
    assert place.api.refused("POST", path, {**body, "root_id": other["id"]}) == elsewhere
    place.server.delete(root["id"])
    assert place.api.refused("POST", path, {**body, "root_id": root["id"]}) == NOT_A_ROOT
    assert place.api.refused("GET", f"/posts/{reply['id']}") == (404, "app.post.get.app_error")


def test_length_counts_code_points(place: Place) -> None:
    place.server.set_config(MaxPostSize=10)
    assert place.post("\N{GRINNING FACE}" * 10)["message"] == "\N{GRINNING FACE}" * 10
    too_long = {"channel_id": place.direct, "message": "x" * 11}
    assert place.api.refused("POST", "/posts", too_long) == (400, "model.post.is_valid.message_length.app_error")


def test_a_body_above_the_limit_is_413(place: Place) -> None:
    body = {"channel_id": place.direct, "message": "x", "props": {"a": "x" * 300_600}}
    assert place.api.refused("POST", "/posts", body) == (413, "api.context.request_body_too_large.app_error")


def test_archived_channels_and_channels_of_others_take_no_post(place: Place) -> None:
    channel = place.server.add_channel("P", [place.ann])
    assert place.api.refused("POST", "/posts", {"channel_id": channel, "message": "x"}) == DENIED
    place.server.join(channel, place.box)
    place.server.archive(channel)
    archived = (400, "api.post.create_post.can_not_post_to_deleted.error")
    assert place.api.refused("POST", "/posts", {"channel_id": channel, "message": "x"}) == archived


def test_a_pending_id_is_remembered_for_thirty_seconds_and_not_stored(place: Place) -> None:
    first = place.post("hello", pending_post_id="p")
    assert first["pending_post_id"] == "p"
    place.server.advance(29_000)
    assert place.post("hello", pending_post_id="p")["id"] == first["id"]
    place.server.advance(1_001)
    assert place.post("hello", pending_post_id="p")["id"] != first["id"]
    assert place.server.post(first["id"])["pending_post_id"] == ""


def test_a_pending_id_of_a_failed_post_is_forgotten(place: Place) -> None:
    wrong = {"channel_id": place.direct, "message": "x", "root_id": "x" * 26, "pending_post_id": "p"}
    assert place.api.refused("POST", "/posts", wrong) == NOT_A_ROOT
    assert place.post("now it is right", pending_post_id="p")["message"] == "now it is right"


def test_a_restart_forgets_pending_ids(place: Place) -> None:
    first = place.post("hello", pending_post_id="p")
    place.server.restart()
    assert place.post("hello", pending_post_id="p")["id"] != first["id"]


def test_while_the_first_is_still_running_a_pending_id_is_500(place: Place) -> None:
    go_on, results = threading.Event(), list[Any]()
    begun = place.server.fail("POST", "/posts", wait=go_on)
    slow = threading.Thread(target=lambda: results.append(place.post("hello", pending_post_id="p")))
    slow.start()
    begun.wait()
    with Caller(place.server, place.token) as other:
        body = {"channel_id": place.direct, "message": "hello", "pending_post_id": "p"}
        assert other.refused("POST", "/posts", body) == (500, "api.post.deduplicate_create_post.pending")
    go_on.set()
    slow.join()
    assert [post["message"] for post in place.server.posts_of(place.direct)] == ["hello"]
    assert results[0]["message"] == "hello"


def test_a_patch_replaces_all_props_and_leaves_the_old_text_as_a_deleted_post(place: Place) -> None:
    made = place.post("before", props={"unsafe_links": "true", "own": "key"})
    patched = place.api.done("PUT", f"/posts/{made['id']}/patch", {"message": "after", "props": {"own": "key"}})
    assert (patched["message"], patched["props"]) == ("after", {"own": "key"})
    assert patched["edit_at"] >= made["create_at"]
    since = place.api.done("GET", f"/channels/{place.direct}/posts?since={made['create_at'] - 1}")
    old = [post for post in since["posts"].values() if post["original_id"] == made["id"]]
    assert [(post["message"], post["delete_at"] > 0) for post in old] == [("before", True)]
    assert place.page("page=0") == ["after"]


def test_a_patch_without_a_new_text_is_no_edit(place: Place) -> None:
    made = place.post("text")
    assert place.api.done("PUT", f"/posts/{made['id']}/patch", {"message": "text", "props": {}})["edit_at"] == 0


def test_posts_of_others_and_deleted_ones_cannot_be_patched(place: Place) -> None:
    foreign = place.server.say(place.ann, place.direct, "mine")
    assert place.api.refused("PUT", f"/posts/{foreign['id']}/patch", {"message": "yours"}) == DENIED
    own = place.post("gone")
    place.api.done("DELETE", f"/posts/{own['id']}")
    assert place.api.refused("PUT", f"/posts/{own['id']}/patch", {"message": "back"}) == DENIED


def test_a_webhook_posts_under_the_id_of_whoever_made_it(place: Place) -> None:
    room = place.server.add_channel("P", [place.ann, place.box])
    with Caller(place.server, place.server.token_for(place.ann)) as ann:
        hook = ann.done("POST", "/hooks/incoming", {"channel_id": room, "display_name": "news"})
    said = requests.post(f"{place.server.url}/hooks/{hook['id']}", json={"text": "!approve 1"}, timeout=30)
    assert said.text == "ok"
    (post,) = place.server.posts_of(room)
    assert (post["user_id"], post["type"], post["props"]["from_webhook"]) == (place.ann, "", "true")


# --- reading posts ---


def test_pages_are_newest_first_and_cut_to_200_in_silence(place: Place) -> None:
    begin = place.server.now() - 1_000
    for number in range(250):
        place.server.say(place.ann, place.direct, str(number), at=begin + number)
    assert place.page("page=0&per_page=1000") == [str(number) for number in range(249, 49, -1)]
    assert place.page("page=1&per_page=200") == [str(number) for number in range(49, -1, -1)]
    assert len(place.page("")) == 60


def test_a_page_holds_parents_that_are_not_in_its_order_unless_threads_are_skipped(place: Place) -> None:
    root = place.server.say(place.ann, place.direct, "root")
    for number in range(3):
        place.server.say(place.ann, place.direct, str(number), root=root["id"])
    whole = place.api.done("GET", f"/channels/{place.direct}/posts?per_page=1")
    short = place.api.done("GET", f"/channels/{place.direct}/posts?per_page=1&skipFetchThreads=true")
    assert (len(whole["order"]), len(whole["posts"])) == (1, 4)
    assert (len(short["order"]), len(short["posts"])) == (1, 2)


def test_since_returns_any_thousand_and_the_newest_may_be_missing(place: Place) -> None:
    begin = place.server.now() - 5_000
    for number in range(1_200):
        place.server.say(place.ann, place.direct, str(number), at=begin + number)
    found = place.page(f"since={begin - 1}")
    assert len(found) == 1_000
    assert "1199" not in found


def test_since_returns_deleted_posts_and_roots_that_a_reply_has_touched(place: Place) -> None:
    begin = place.server.now() - 5_000
    place.server.say(place.ann, place.direct, "old root", at=begin)
    root = place.server.posts_of(place.direct)[0]["id"]
    place.server.delete(place.server.say(place.ann, place.direct, "gone", at=begin + 1)["id"])
    place.server.say(place.ann, place.direct, "reply", root=root)
    assert place.page(f"since={begin + 100}") == ["reply", "gone", "old root"]


def test_after_leaves_out_what_has_the_same_millisecond(place: Place) -> None:
    at = place.server.now() - 5_000
    anchor = place.server.say(place.ann, place.direct, "anchor", at=at)["id"]
    place.server.say(place.ann, place.direct, "twin", at=at)
    place.server.say(place.ann, place.direct, "next", at=at + 1)
    assert place.page(f"after={anchor}") == ["next"]


def test_an_edit_moves_the_channels_last_post_although_nothing_is_newer(place: Place) -> None:
    made = place.server.say(place.ann, place.direct, "one")
    place.server.advance(60_000)
    place.server.edit(made["id"], "two")
    assert place.api.done("GET", f"/channels/{place.direct}")["last_post_at"] >= made["create_at"] + 60_000


def test_a_thread_is_read_in_pages_by_time_and_id(place: Place) -> None:
    at = place.server.now() - 5_000
    root = place.server.say(place.ann, place.direct, "root", at=at)["id"]
    for number in range(5):
        place.server.say(place.ann, place.direct, str(number), root=root, at=at + 1 + number // 2)
    seen, query = list[str](), "direction=down&perPage=2"
    while True:
        said = place.api.done("GET", f"/posts/{root}/thread?{query}")
        new = [said["posts"][post] for post in said["order"] if post not in seen]
        seen += [post["id"] for post in new]
        if not said["has_next"]:
            break
        last = max((said["posts"][post] for post in said["order"]), key=lambda post: (post["create_at"], post["id"]))
        query = f"direction=down&perPage=2&fromPost={last['id']}&fromCreateAt={last['create_at']}"
    assert len(seen) == len(set(seen)) == 6


def test_thread_parameters_that_are_refused(place: Place) -> None:
    root = place.post("root")["id"]
    for query in ("perPage=201", f"fromPost={root}", "direction=sideways"):
        assert place.api.refused("GET", f"/posts/{root}/thread?{query}") == (400, BODY)


# --- limits and failures ---


def test_the_rate_limit_answers_in_plain_text_with_seconds(place: Place) -> None:
    place.server.rate_limit(True)
    answers = [place.api.ask("GET", "/users/me") for _ in range(200)]
    limited = next(answer for answer in answers if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS)
    assert answers.index(limited) > 100
    assert limited.text == "limit exceeded\n"
    assert limited.headers["Content-Type"].startswith("text/plain")
    assert 1 <= int(limited.headers["Retry-After"]) <= 11
    assert limited.headers["X-RateLimit-Limit"] == "101"
    place.server.advance(11_000)
    assert place.api.ask("GET", "/users/me").ok


def test_every_answer_names_its_request_and_the_version(place: Place) -> None:
    for answer in (place.api.ask("GET", "/users/me"), place.api.ask("GET", "/nothing/here")):
        assert len(answer.headers["X-Request-Id"]) == 26
        assert answer.headers["X-Version-Id"].startswith("11.6.0.")
    assert answer.json()["id"] == "api.context.404.app_error"


def test_details_are_for_developers_and_hardened_servers_say_nothing_of_5xx(place: Place) -> None:
    assert place.api.ask("GET", "/posts/" + "x" * 26).json()["detailed_error"] == ""
    place.post("once", pending_post_id="p")
    place.server.delete(place.server.posts_of(place.direct)[0]["id"])
    place.server.set_config(ExperimentalEnableHardenedMode=True)
    body = {"channel_id": place.direct, "message": "once", "pending_post_id": "p"}
    assert place.api.refused("POST", "/posts", body) == (500, "")


def test_an_answer_can_be_replaced_and_a_done_request_can_lose_its_answer(place: Place) -> None:
    place.server.fail(
        "POST", "/posts", status=502, body="<html>bad gateway</html>", headers={"Content-Type": "text/html"}
    )
    body = {"channel_id": place.direct, "message": "x"}
    assert place.api.ask("POST", "/posts", body).text == "<html>bad gateway</html>"
    assert place.server.posts_of(place.direct) == []
    place.server.fail("POST", "/posts", status=0, after=True)
    with pytest.raises(requests.ConnectionError):
        place.api.ask("POST", "/posts", body)
    assert [post["message"] for post in place.server.posts_of(place.direct)] == ["x"]


def test_a_server_that_is_down_refuses_connections_and_comes_back_at_its_address(place: Place) -> None:
    place.server.down()
    with pytest.raises(requests.ConnectionError):
        place.api.ask("GET", "/users/me")
    place.server.up()
    assert place.api.ask("GET", "/users/me").ok


def test_tls_with_the_authority_of_the_tests() -> None:
    with Mattermost(tls=True) as server:
        assert requests.get(f"{server.url}/api/v4/system/ping", verify=str(AUTHORITY), timeout=30).ok
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(f"{server.url}/api/v4/system/ping", timeout=30)


def test_nothing_is_left_behind_when_it_is_closed() -> None:
    class Slowly(threading.Event):
        """Lets nobody go on before the request that waits for it has had time to be answered."""

        def set(self) -> None:
            super().set()
            held.join()

    before = set(threading.enumerate())
    with Mattermost() as server:
        place = Place(server)
        place.post("hello")
        begun = server.fail("GET", "/users/me", wait=Slowly())
        held = threading.Thread(target=_ask_in_vain, args=(place.api,))
        held.start()
        begun.wait()
    held.join()
    place.api.close()
    assert set(threading.enumerate()) == before


def _ask_in_vain(api: Caller) -> None:
    with pytest.raises(requests.ConnectionError):
        api.ask("GET", "/users/me")
