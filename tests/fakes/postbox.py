"""A Mattermost server's REST calls without the server: posts in memory, and failures in the order that a test wants.

For unit tests of what asks; the real rules are in tests/fakes/mattermost.py. Threads: any.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from bxcore.ids import MattermostId
from bxcore.timestamp import Timestamp
from gatewayd.faults import MattermostDenied, MattermostRefused
from gatewayd.mattermost import ServerConfig
from gatewayd.posts import Account, Channel, ChannelType, Post

PATIENCE_SECONDS = 60
T = TypeVar("T")
BEGIN = 1_767_225_600_000


def an_id(name: str) -> MattermostId:
    """Return an id that says what it is of."""
    return MattermostId(f"{name:0<26}"[:26])


BOT = Account(id=an_id("bot"), username="boxmaker", is_bot=True, delete_at=Timestamp(0))


def person(name: str, *, is_bot: bool = False, delete_at: int = 0) -> Account:
    return Account(id=an_id(name), username=name, is_bot=is_bot, delete_at=Timestamp(delete_at))


class Postbox:
    """What the server has. `raises` are the next failures of a call; `then` runs after a call has had its effect."""

    def __init__(self) -> None:
        self.made: list[Post] = []
        self.accounts: dict[MattermostId, Account] = {BOT.id: BOT}
        self.account = BOT
        self.channel_list: list[Channel] = []
        self.calls: list[str] = []
        self.raises: dict[str, list[Exception]] = {}
        self.loses: dict[str, list[Exception]] = {}
        """As `raises`, but the call had its effect before it failed."""
        self.gone = set[MattermostId]()
        """Threads and channels that are not there any more."""
        self.opened = 0
        """Connections that were made and not given back."""
        self._changed = threading.Condition()
        self._now = BEGIN

    def api(self) -> "Way":
        """Open a connection, as `api: Callable[[], Mattermost]`."""
        with self._changed:
            self.opened += 1
        return Way(self)

    def left(self) -> None:
        with self._changed:
            self.opened -= 1

    # -- calls ----------------------------------------------------------------------------------

    def me(self) -> Account:
        return self._call("me", lambda: self.account)

    def config(self) -> ServerConfig:
        answer = ServerConfig(max_post_characters=16_383, typing_ms=5_000, version="11.6.0", site_url="")
        return self._call("config", lambda: answer)

    def channels(self) -> tuple[Channel, ...]:
        return self._call("channels", lambda: tuple(self.channel_list))

    def users(self, ids: Sequence[MattermostId]) -> tuple[Account, ...]:
        return self._call("users", lambda: tuple(self.accounts[user] for user in ids if user in self.accounts))

    def direct(self, a: MattermostId, b: MattermostId) -> Channel:
        return self._call("direct", lambda: direct(a, b))

    def create_post(
        self,
        channel: MattermostId,
        message: str,
        *,
        root: MattermostId | None,
        props: Mapping[str, Any],
        pending: str,
    ) -> Post:
        return self._call("create_post", lambda: self._create(channel, message, root, props))

    def patch_post(self, id: MattermostId, *, message: str, props: Mapping[str, Any]) -> Post:  # noqa: A002
        return self._call("patch_post", lambda: self._patch(id, message, props))

    def post(self, id: MattermostId) -> Post:  # noqa: A002
        return self._call("post", lambda: self._post(id))

    def thread(self, root: MattermostId) -> tuple[Post, ...]:
        return self._call("thread", lambda: self._thread(root))

    def posts(self, channel: MattermostId, *, page: int, per_page: int = 200) -> tuple[Post, ...]:
        return self._call("posts", lambda: self._newest(channel)[page * per_page : (page + 1) * per_page])

    def _call(self, name: str, ask: Callable[[], T]) -> T:
        with self._changed:
            self.calls.append(name)
            self._changed.notify_all()
            if self.raises.get(name):
                raise self.raises[name].pop(0)
            answer = ask()
            self._changed.notify_all()
            if self.loses.get(name):
                raise self.loses[name].pop(0)
            return answer

    def _create(self, channel: MattermostId, message: str, root: MattermostId | None, props: Mapping[str, Any]) -> Post:
        if {channel, root} & self.gone:
            raise MattermostRefused("no such root", status=400)
        self._now += 1
        post = Post(
            id=an_id(f"post{len(self.made)}x"),
            user=self.account.id,
            channel=channel,
            root=root,
            type="",
            message=message,
            props=dict(props),
            files=0,
            create_at=Timestamp(self._now),
            edit_at=Timestamp(0),
            delete_at=Timestamp(0),
            original="",
        )
        self.made.append(post)
        return post

    def _patch(self, id: MattermostId, message: str, props: Mapping[str, Any]) -> Post:  # noqa: A002
        for number, post in enumerate(self.made):
            if post.id == id and id not in self.gone:
                self.made[number] = attrs.evolve(post, message=message, props=dict(props))
                return self.made[number]
        raise MattermostDenied("no such post", status=404)

    def _post(self, id: MattermostId) -> Post:  # noqa: A002
        for post in self.made:
            if post.id == id and id not in self.gone:
                return post
        raise MattermostDenied("no such post", status=404)

    def _newest(self, channel: MattermostId) -> tuple[Post, ...]:
        return tuple(post for post in reversed(self.made) if post.channel == channel)

    def _thread(self, root: MattermostId) -> tuple[Post, ...]:
        if root in self.gone:
            raise MattermostDenied("no such post", status=404)
        return tuple(post for post in self.made if post.thread == root)

    # -- looking --------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds that only calls can change."""
        with self._changed:
            assert self._changed.wait_for(holds, PATIENCE_SECONDS), f"it never came; calls: {self.calls}"

    def message(self, post: MattermostId) -> str:
        with self._changed:
            return next(one.message for one in self.made if one.id == post)


class Way:
    """One connection to the postbox: closed as often as one likes, by any thread."""

    def __init__(self, postbox: Postbox) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._left = postbox.left
        self.me, self.config, self.channels, self.users = postbox.me, postbox.config, postbox.channels, postbox.users
        self.direct, self.create_post, self.patch_post = postbox.direct, postbox.create_post, postbox.patch_post
        self.post, self.thread, self.posts = postbox.post, postbox.thread, postbox.posts

    def close(self) -> None:
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._left()


def direct(a: MattermostId, b: MattermostId) -> Channel:
    """Return the direct channel of two users, which `Postbox.direct` gives too."""
    first, second = sorted((a, b))
    return Channel(
        id=an_id(f"dm{b[:8]}"),
        type=ChannelType.DIRECT,
        name=f"{first}__{second}",
        last_post_at=Timestamp(0),
        delete_at=Timestamp(0),
    )
