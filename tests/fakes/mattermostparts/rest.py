"""The request table: which calls there are, who may make them, and what they answer.

Each call runs under the world's lock. What the table does not have is a 404, as anywhere.
"""

import itertools
from collections.abc import Iterable, Mapping
from http import cookies

from tests.fakes.mattermostparts import rules
from tests.fakes.mattermostparts.accounts import Accounts, request_id
from tests.fakes.mattermostparts.calls import PER_PAGE_MOST, Answer, Call, Row, row
from tests.fakes.mattermostparts.hooks import Hooks
from tests.fakes.mattermostparts.hub import Hub
from tests.fakes.mattermostparts.posting import Posting
from tests.fakes.mattermostparts.records import AppError, Channel
from tests.fakes.mattermostparts.world import VERSION, Event, World

ROOT = "/api/v4"
_OK = {"status": "OK"}
_DENIED = "api.context.permissions.app_error"
_PARAM = "api.context.invalid_url_param.app_error"


class Rest:
    """The REST side of a world."""

    def __init__(self, world: World, hub: Hub) -> None:
        self._world = world
        self._hub = hub
        self.posting = Posting(world)
        self.accounts = Accounts(world, self.posting)
        self._hooks = Hooks(world, self.posting)
        self._numbers = itertools.count(1)
        self._rows: tuple[Row, ...] = (
            *self.accounts.rows(),
            *self._channel_rows(),
            *self._post_rows(),
            *self._hooks.rows(),
        )

    def _channel_rows(self) -> Iterable[Row]:
        return (
            row("POST /channels", self.create_channel),
            row("POST /channels/direct", self.create_direct),
            row("POST /channels/group", self.create_group),
            row("GET /channels/{channel}", self.get_channel),
            row("DELETE /channels/{channel}", self.archive),
            row("POST /channels/{channel}/members", self.add_member),
            row("GET /channels/{channel}/members", self.members),
            row("DELETE /channels/{channel}/members/{user}", self.remove_member),
            row("GET /users/{user}/channels", self.my_channels),
            row("GET /users/{user}/teams/{team}/channels", self.my_channels_of_team),
            row("POST /users/{user}/typing", self.typing),
            row("GET /channels/{channel}/posts", self.channel_posts),
        )

    def _post_rows(self) -> Iterable[Row]:
        return (
            row("POST /posts", self.create_post),
            row("POST /posts/ephemeral", self.create_ephemeral),
            row("GET /posts/{post}", self.get_post),
            row("DELETE /posts/{post}", self.delete_post),
            row("PUT /posts/{post}/patch", self.patch_post),
            row("GET /posts/{post}/thread", self.thread),
            row("GET /posts/{post}/edit_history", self.edit_history),
            row("POST /reactions", self.react),
            row("GET /posts/{post}/reactions", self.reactions),
        )

    # --- the way in ---

    def call(self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> Answer:
        """Do one request whose path begins below /api/v4."""
        request = request_id(next(self._numbers))
        call = Call(method=method, path=path, query=query, headers=headers, body=body, request_id=request)
        with self._world.lock:
            try:
                answer = self._route(call)
            except AppError as error:
                answer = self.refusal(error, request)
            version = f"{VERSION}.boxmaker.0123456789abcdef0123456789abcdef.false"
            answer.headers += [
                ("X-Request-Id", request),
                ("X-Version-Id", version),
                ("X-Content-Type-Options", "nosniff"),
            ]
            if method == "GET":
                answer.headers.append(("Expires", "0"))
            return answer

    def hook(self, name: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Do one request to the address of a webhook. It needs no login: who knows the address may."""
        request = request_id(next(self._numbers))
        call = Call(method="POST", path=name, query={}, headers=headers, body=body, request_id=request)
        with self._world.lock:
            try:
                return self._hooks.said(call)
            except AppError as error:
                return self.refusal(error, request)

    def refusal(self, error: AppError, request: str) -> Answer:
        said = error.json(request)
        if not self._world.on("EnableDeveloper"):
            said["detailed_error"] = ""
        if self._world.on("ExperimentalEnableHardenedMode") and error.status >= 500:
            said |= {"id": "", "message": "Internal Server Error", "detailed_error": "", "status_code": 500}
        return Answer(status=said["status_code"], json=said)

    def _route(self, call: Call) -> Answer:
        found = self._find(call)
        token, in_cookie, in_query = token_of(call.headers, call.query)
        session = self._world.session(token) if token else None
        if token and session is None and not found.public:
            raise AppError("api.context.session_expired.app_error", 401)
        if session is not None and in_query:
            raise AppError("api.context.token_provided.app_error", 401)
        if session is not None and in_cookie and call.method != "GET" and not _is_our_page(call.headers, session.csrf):
            raise AppError("api.context.session_expired.app_error", 401, "Appears to be a CSRF attempt")
        if session is not None:
            call.session, call.who = session, self._world.users[session.user]
        elif not found.public:
            raise AppError("api.context.session_expired.app_error", 401)
        if len(call.body) > int(self._world.config["MaximumPayloadSizeBytes"]) + 512:  # bytes.MinRead on top
            raise AppError("api.context.request_body_too_large.app_error", 413)
        return found.handle(call)

    def _find(self, call: Call) -> Row:
        for candidate in self._rows:
            match = candidate.path.fullmatch(call.path) if candidate.method == call.method else None
            if match is not None:
                call.names = match.groupdict()
                return candidate
        raise AppError("api.context.404.app_error", 404)

    # --- channels ---

    def _readable(self, call: Call, wanted: str) -> Channel:
        if not rules.ID.fullmatch(wanted):
            raise AppError(_PARAM, 400)
        channel = self._world.channels.get(wanted)
        if channel is None:
            raise AppError("app.channel.get.existing.app_error", 404)
        if not self._world.may_read(channel, call.user):
            raise AppError(_DENIED, 403)
        return channel

    def create_channel(self, call: Call) -> Answer:
        asked = call.object()
        team = self._world.teams.get(str(asked.get("team_id", "")))
        if asked.get("type") not in ("O", "P") or not asked.get("name") or not asked.get("display_name"):
            raise AppError("model.channel.is_valid.type.app_error", 400)
        if team is None or not (call.user.id in team.members or call.user.admin):
            raise AppError(_DENIED, 403)
        channel = self._world.add_channel(
            asked["type"],
            [call.user.id],
            name=asked["name"],
            display_name=asked["display_name"],
            team=team.id,
            creator=call.user.id,
        )
        data = {"channel_id": channel.id, "team_id": team.id}
        self._world.publish(Event(name="channel_created", data=data, user=call.user.id))
        return Answer(status=201, json=channel.json())

    def _users(self, ids: list[str]) -> list[str]:
        if not all(user in self._world.users for user in ids):
            raise AppError("api.channel.create_direct_channel.invalid_user.app_error", 400)
        return ids

    def create_direct(self, call: Call) -> Answer:
        ids = call.strings()
        if len(ids) != 2:
            raise AppError("api.context.invalid_body_param.app_error", 400)
        if not (call.user.id in ids or call.user.admin):
            raise AppError(_DENIED, 403)
        one, other = self._users(ids)
        channel, _ = self._world.direct(one, other)
        return Answer(status=201, json=channel.json())

    def create_group(self, call: Call) -> Answer:
        ids = self._users(list(dict.fromkeys([*call.strings(), call.user.id])))
        if not 3 <= len(ids) <= 8:
            raise AppError("api.channel.create_group.bad_size.app_error", 400)
        channel, _ = self._world.group(call.user.id, ids)
        return Answer(status=201, json=channel.json())

    def get_channel(self, call: Call) -> Answer:
        return Answer(json=self._readable(call, call.names["channel"]).json())

    def archive(self, call: Call) -> Answer:
        channel = self._readable(call, call.names["channel"])
        if channel.type in "DG":
            raise AppError("api.channel.delete_channel.type.invalid", 400)
        self._world.archive(channel)
        return Answer(json=_OK)

    def add_member(self, call: Call) -> Answer:
        channel = self._readable(call, call.names["channel"])
        user = str(call.object().get("user_id", ""))
        if user not in self._world.users:
            raise AppError("app.user.missing_account.const", 404)
        if channel.type in "DG":
            raise AppError("api.channel.add_user_to_channel.type.app_error", 400)
        if user not in self._world.teams[channel.team].members:
            raise AppError("api.channel.add_user.to.channel.failed.deleted.app_error", 400)
        self._world.join(channel, user)
        return Answer(status=201, json=_member(channel, user))

    def members(self, call: Call) -> Answer:
        channel = self._readable(call, call.names["channel"])
        page, per_page = call.paging()
        members = sorted(channel.members)[page * per_page : (page + 1) * per_page]
        return Answer(json=[_member(channel, user) for user in members])

    def remove_member(self, call: Call) -> Answer:
        channel = self._readable(call, call.names["channel"])
        if channel.type in "DG":
            raise AppError("api.channel.remove_user_from_channel.app_error", 400)
        self._world.leave(channel, call.named_user, by=call.user.id)
        return Answer(json=_OK)

    def _channels_of(self, call: Call) -> list[Channel]:
        if call.named_user != call.user.id and not call.user.admin:
            raise AppError(_DENIED, 403)
        deleted = call.flag("include_deleted")
        every = self._world.channels.values()
        mine = [
            channel for channel in every if call.named_user in channel.members and (deleted or not channel.delete_at)
        ]
        return sorted(mine, key=lambda channel: channel.id)

    def my_channels(self, call: Call) -> Answer:
        """Return all of them in one array, streamed: where there are none, what was begun is never closed."""
        channels = self._channels_of(call)
        if not channels:
            error = AppError("app.channel.get_channels.not_found.app_error", 404)
            return Answer(text="[" + rules.dump(error.json(call.request_id)))
        return Answer(text="[" + "\n,".join(rules.dump(channel.json()) for channel in channels) + "\n]")

    def my_channels_of_team(self, call: Call) -> Answer:
        channels = [channel for channel in self._channels_of(call) if channel.team in ("", call.names["team"])]
        if not channels:
            raise AppError("app.channel.get_channels.not_found.app_error", 404)
        return Answer(json=[channel.json() for channel in channels])

    def typing(self, call: Call) -> Answer:
        asked = call.object()
        self.posting.typing(call.user, str(asked.get("channel_id", "")), str(asked.get("parent_id") or ""))
        return Answer(json=_OK)

    # --- posts ---

    def channel_posts(self, call: Call) -> Answer:
        for name in ("after", "before"):
            if call.query.get(name) and not rules.ID.fullmatch(call.query[name]):
                raise AppError(_PARAM, 400)
        since = call.query.get("since", "")
        if since and not since.lstrip("-").isdecimal():
            raise AppError(_PARAM, 400)
        if call.flag("include_deleted") and not call.user.admin:
            raise AppError(_DENIED, 403)
        channel = self._readable(call, call.names["channel"])
        page, per_page = call.paging()
        threads = not call.flag("skipFetchThreads")
        if since and int(since) > 0:
            return Answer(json=self.posting.since(channel, int(since)))
        for name in ("after", "before"):
            if anchor := call.query.get(name):
                after = name == "after"
                return Answer(
                    json=self.posting.around(
                        channel, anchor, after=after, page=page, per_page=per_page, with_threads=threads
                    )
                )
        return Answer(json=self.posting.page(channel, page=page, per_page=per_page, with_threads=threads))

    def create_post(self, call: Call) -> Answer:
        set_online = call.query.get("set_online", "true") not in ("0", "f", "F", "false", "FALSE", "False")
        made = self.posting.create(call.user, call.object(), set_online=set_online, may_date=call.user.admin)
        assert call.session is not None
        self._hub.was_active(call.session.token)
        return Answer(status=201, json=made)

    def create_ephemeral(self, call: Call) -> Answer:
        if not call.user.admin:
            raise AppError(_DENIED, 403)
        raise AppError("api.context.not_in_this_fake.app_error", 501)

    def get_post(self, call: Call) -> Answer:
        post = self.posting.existing(call.names["post"])
        self._readable(call, post.channel)
        return Answer(json=self.posting.json(post))

    def delete_post(self, call: Call) -> Answer:
        self.posting.delete(call.user, call.names["post"])
        return Answer(json=_OK)

    def patch_post(self, call: Call) -> Answer:
        return Answer(json=self.posting.patch(call.user, call.names["post"], call.object()))

    def thread(self, call: Call) -> Answer:
        query = call.query
        per_page = query.get("perPage", "")
        if per_page and (not per_page.isdecimal() or int(per_page) > PER_PAGE_MOST):
            raise AppError("api.context.invalid_body_param.app_error", 400)
        if query.get("fromPost") and int(query.get("fromCreateAt") or 0) == 0:
            raise AppError("api.context.invalid_body_param.app_error", 400)
        if query.get("direction", "") not in ("", "up", "down"):
            raise AppError("api.context.invalid_body_param.app_error", 400)
        post = self.posting.existing(call.names["post"])
        self._readable(call, post.channel)
        return Answer(json=self.posting.thread(post.id, query))

    def edit_history(self, call: Call) -> Answer:
        post = self.posting.existing(call.names["post"])
        if post.user != call.user.id:
            raise AppError(_DENIED, 403)
        rows = [old for old in self._world.in_channel[post.channel] if old.original == post.id]
        return Answer(json=[self.posting.json(old) for old in sorted(rows, key=lambda old: -old.edit_at)])

    def react(self, call: Call) -> Answer:
        asked = call.object()
        if asked.get("user_id") != call.user.id:
            raise AppError("api.reaction.save_reaction.user_id.app_error", 403)
        post = self.posting.existing(str(asked.get("post_id", "")))
        self._readable(call, post.channel)
        reaction = (call.user.id, str(asked.get("emoji_name", "")), self._world.now())
        post.reactions.append(reaction)
        said = self._reaction(post.id, reaction)
        self._world.publish(Event(name="reaction_added", data={"reaction": rules.dump(said)}, channel=post.channel))
        return Answer(status=201, json=said)

    def reactions(self, call: Call) -> Answer:
        post = self.posting.existing(call.names["post"])
        self._readable(call, post.channel)
        return Answer(json=[self._reaction(post.id, reaction) for reaction in post.reactions])

    def _reaction(self, post: str, reaction: tuple[str, str, int]) -> dict[str, object]:
        user, emoji, at = reaction
        return {"user_id": user, "post_id": post, "emoji_name": emoji, "create_at": at, "update_at": at, "delete_at": 0}


def token_of(headers: Mapping[str, str], query: Mapping[str, str]) -> tuple[str, bool, bool]:
    """Return the token of a request, and whether it came in a cookie (which wins) or in the query."""
    jar = cookies.SimpleCookie(headers.get("cookie", ""))
    if "MMAUTHTOKEN" in jar:
        return jar["MMAUTHTOKEN"].value, True, False
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.upper() == "BEARER" or scheme.lower() == "token":
        return token, False, False
    return query.get("access_token", ""), False, True


def _is_our_page(headers: Mapping[str, str], csrf: str) -> bool:
    return headers.get("x-csrf-token") == csrf or headers.get("x-requested-with") == "XMLHttpRequest"


def _member(channel: Channel, user: str) -> dict[str, object]:
    return {
        "channel_id": channel.id,
        "user_id": user,
        "roles": "channel_user",
        "last_viewed_at": 0,
        "msg_count": 0,
        "mention_count": 0,
        "last_update_at": channel.members.get(user, 0),
        "scheme_user": True,
        "scheme_admin": False,
    }
