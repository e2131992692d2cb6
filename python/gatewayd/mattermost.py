"""The calls of the server's REST interface that Boxmaker makes.

Every call raises a MattermostFault and nothing else: away, busy, denied and so on (gatewayd.faults). What a call
answers has been parsed; in a list, an entry that cannot be read is left out and logged, since it would come again
whenever the list is asked for. Sources: docs/mattermost.md. Threads: a Mattermost belongs to one thread; any may
`close` it, which ends the call that is under way.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import attrs

from bxcore import logs, strictjson
from bxcore.deadline import Clock, SystemClock
from bxcore.ids import MattermostId
from bxcore.secrets import Secret
from bxcore.settings import gatewayd as settings_file
from bxcore.timestamp import Timestamp
from gatewayd import httpstatus, posts, serverjson
from gatewayd.faults import MattermostFault, MattermostRefused, MattermostUnclear, TokenRefused
from gatewayd.posts import Account, Channel, NotOurs, Post
from gatewayd.resthttp import Answer, RestHttp
from gatewayd.servertime import ServerTime

log = logs.get("mattermost")
T = TypeVar("T")

PAGE = 200
"""The most that the server gives at once; it cuts a larger number down, or refuses it."""

_SAFE_CHARACTERS = 4_000  # what every server takes, where it does not say
_USUAL_TYPING_MS = 5_000
_NO_CHANNELS = "app.channel.get_channels.not_found.app_error"
_ERROR = re.compile(r"(?=.{1,128}\Z)[a-z0-9_]+(?:\.[a-z0-9_]+)+")  # with a dot in it: nobody's token
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")


@attrs.frozen(kw_only=True)
class ServerConfig:
    """What the server says of itself. `max_post_characters` counts code points, as len() does."""

    max_post_characters: int
    typing_ms: int
    version: str | None
    site_url: str


class Mattermost:
    """The server, as one bot sees it. Raises ConfigError at once where the token or ca_file is unfit.

    `on_token_refused` is told of every TokenRefused before it is raised; it must not block.
    """

    def __init__(
        self,
        settings: settings_file.Mattermost,
        token: Secret,
        clock: Clock | None = None,
        *,
        on_token_refused: Callable[[], None] = lambda: None,
    ) -> None:
        clock = clock or SystemClock()
        self._http = RestHttp(settings, token, clock)
        self._time = ServerTime(clock)
        self._on_token_refused = on_token_refused
        self._most_pause_ms = settings.retry_most_ms

    def close(self) -> None:
        """End the connection, and with MattermostAway every call that is under way or still to come. Any thread."""
        self._http.close()

    def now(self) -> Timestamp:
        """Return the time at the server, by its last answer; ours, before the first one."""
        return self._time.now()

    # -- accounts and the server ----------------------------------------------------------------

    def me(self) -> Account:
        """Return the bot's own account."""
        return _parsed(posts.account, self._get("/users/me", fixed=True))

    def config(self) -> ServerConfig:
        """Return the server's limits; what it does not say has the value that every server bears."""
        fields = self._get("/config/client?format=old", fixed=True)
        if not isinstance(fields, dict):
            raise MattermostUnclear("/config/client: expected an object")
        return ServerConfig(
            max_post_characters=_number(fields, "MaxPostSize", otherwise=_SAFE_CHARACTERS),
            typing_ms=_number(fields, "TimeBetweenUserTypingUpdatesMilliseconds", otherwise=_USUAL_TYPING_MS),
            version=_words(fields, "Version") or None,
            site_url=_words(fields, "SiteURL"),
        )

    def usernames(self, names: Sequence[str]) -> tuple[Account, ...]:
        """Return the accounts of those names that exist."""
        return self._accounts("/users/usernames", names)

    def users(self, ids: Sequence[MattermostId]) -> tuple[Account, ...]:
        """Return the accounts of those ids that exist."""
        return self._accounts("/users/ids", ids)

    # -- channels -------------------------------------------------------------------------------

    def channels(self) -> tuple[Channel, ...]:
        """Return all channels that the bot is in, of every team, direct ones included."""
        target = "/users/me/channels"
        try:
            body = self._ask("GET", target, fixed=True).body.lstrip()
        except MattermostFault as fault:
            if fault.error == _NO_CHANNELS:
                return ()
            raise
        if body.startswith(b"[") and _error(body[1:]) == _NO_CHANNELS:
            return ()  # it had begun the list before it found that there is nothing to list
        return _each(posts.channel, _value(body, target))

    def channel(self, id: MattermostId) -> Channel:  # noqa: A002  # the server's word for it
        """Return a channel. MattermostDenied where the bot is not in it."""
        return _parsed(posts.channel, self._get(f"/channels/{id}"))

    def direct(self, a: MattermostId, b: MattermostId) -> Channel:
        """Return the direct channel of two users, made where there was none."""
        return _parsed(posts.channel, self._send("POST", "/channels/direct", [a, b]))

    def typing(self, channel: MattermostId, parent: MattermostId | None) -> None:
        """Show the bot as typing: in the thread of `parent`, or at the top level of the channel."""
        self._ask("POST", "/users/me/typing", _body({"channel_id": channel, "parent_id": parent or ""}), fixed=True)

    # -- posts ----------------------------------------------------------------------------------

    def post(self, id: MattermostId) -> Post:  # noqa: A002
        """Return a post. MattermostDenied where it was deleted."""
        return _parsed(posts.post, self._get(f"/posts/{id}"))

    def posts(self, channel: MattermostId, *, page: int, per_page: int = PAGE) -> tuple[Post, ...]:
        """Return a page of a channel's posts and replies, newest first, none that was deleted.

        Only an empty page is the end: one with fewer posts than were asked for may have lost one that was unreadable.
        """
        query = urlencode({"page": page, "per_page": per_page, "skipFetchThreads": "true"})
        return _ordered(self._get(f"/channels/{channel}/posts?{query}"))

    def thread(self, root: MattermostId) -> tuple[Post, ...]:
        """Return a thread, its first post first, then the replies as they came. MattermostDenied where it is gone."""
        found: dict[MattermostId, Post] = {}
        query: dict[str, Any] = {"perPage": PAGE, "direction": "down"}
        while True:
            listed = self._get(f"/posts/{root}/thread?{urlencode(query)}")
            new = [post for post in _ordered(listed) if post.id not in found]
            found.update((post.id, post) for post in new)
            if not new or listed.get("has_next") is not True:
                return tuple(sorted(found.values(), key=lambda post: (post.id != root, post.create_at, post.id)))
            last = max(new, key=lambda post: (post.create_at, post.id))
            query |= {"fromCreateAt": last.create_at, "fromPost": last.id}

    def create_post(
        self,
        channel: MattermostId,
        message: str,
        *,
        root: MattermostId | None,
        props: Mapping[str, Any],
        pending: str,
    ) -> Post:
        """Post. Repeated with the same `pending` within half a minute, the server makes one post of it."""
        body = {"channel_id": channel, "message": message, "props": dict(props), "pending_post_id": pending}
        if root is not None:
            body["root_id"] = root
        return _parsed(posts.post, self._send("POST", "/posts?set_online=false", body))

    def patch_post(self, id: MattermostId, *, message: str, props: Mapping[str, Any]) -> Post:  # noqa: A002
        """Change a post. `props` replaces all that it had."""
        return _parsed(posts.post, self._send("PUT", f"/posts/{id}/patch", {"message": message, "props": dict(props)}))

    # -- inside ---------------------------------------------------------------------------------

    def _accounts(self, target: str, wanted: Sequence[str]) -> tuple[Account, ...]:
        found: list[Account] = []
        for start in range(0, len(wanted), PAGE):
            listed = self._send("POST", target, list(wanted[start : start + PAGE]), fixed=True)
            found += _each(posts.account, listed)
        return tuple(found)

    def _get(self, target: str, *, fixed: bool = False) -> Any:
        return _value(self._ask("GET", target, fixed=fixed).body, _path(target))

    def _send(self, method: str, target: str, body: Any, *, fixed: bool = False) -> Any:
        return _value(self._ask(method, target, _body(body), fixed=fixed).body, _path(target))

    def _ask(self, method: str, target: str, body: bytes | None = None, *, fixed: bool) -> Answer:
        """Return an answer that is a success. `fixed`: the target names nothing that could have gone."""
        answer = self._http.ask(method, target, body)
        if 200 <= answer.status < 300:  # else it may be another program's, and its clock's
            self._time.answered(answer.headers.get("date"))
            return answer
        error = _error(answer.body)
        fault = httpstatus.fault(
            f"{method} {_path(target)}",
            answer.status,
            answer.headers,
            most_ms=self._most_pause_ms,
            error=error or "",
            fixed=fixed,
            foreign=error is None,
        )
        if isinstance(fault, TokenRefused):
            self._on_token_refused()
        raise fault


def _path(target: str) -> str:
    return target.partition("?")[0]


def _body(value: Any) -> bytes:
    try:
        return strictjson.dumps(value)
    except (TypeError, ValueError):
        raise MattermostRefused("a text or a value of this request cannot be sent as JSON") from None


def _value(untrusted: bytes, path: str) -> Any:
    try:
        return serverjson.loads(untrusted)
    except NotOurs as fault:
        raise MattermostUnclear(f"{path}: {fault}") from None


def _parsed(parse: Callable[[object], T], untrusted: object) -> T:
    try:
        return parse(untrusted)
    except NotOurs as fault:
        raise MattermostUnclear(f"an answer of the server: {fault}") from None


def _ordered(untrusted: Any) -> tuple[Post, ...]:
    """Return the posts of a list that the server put in order; its map holds the posts above them as well."""
    order, by_id = (untrusted.get("order"), untrusted.get("posts")) if isinstance(untrusted, dict) else (None, None)
    if not isinstance(order, list) or not isinstance(by_id, dict):
        raise MattermostUnclear("a list of posts: expected their order, and the posts")
    return _each(posts.post, [by_id.get(id_) if isinstance(id_, str) else None for id_ in order])


def _each(parse: Callable[[object], T], untrusted: object) -> tuple[T, ...]:
    if not isinstance(untrusted, list):
        raise MattermostUnclear("an answer of the server: expected a list")
    found: list[T] = []
    faults: list[NotOurs] = []
    for entry in untrusted:
        try:
            found.append(parse(entry))
        except NotOurs as fault:  # each entry is judged for itself
            faults.append(fault)
    if faults:
        log.warning("entries of a list skipped count=%d first=%s", len(faults), faults[0])
    return tuple(found)


def _error(untrusted: bytes) -> str | None:
    """Return the server's own name for an error: "" for one that is a sentence, as plugins have; None for no error."""
    try:
        name = serverjson.loads(untrusted).get("id")
    except (NotOurs, AttributeError):
        return None
    if not isinstance(name, str):
        return None
    return name if _ERROR.fullmatch(name) else ""


def _number(fields: Mapping[str, Any], name: str, *, otherwise: int) -> int:
    """Return a setting, which is a number in words. The server has no use for 0 or for millions."""
    found = _NUMBER.fullmatch(_words(fields, name))
    return int(found[0]) if found else otherwise


def _words(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
