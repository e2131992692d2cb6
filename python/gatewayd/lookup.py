"""Finds a post of ours that may be there already: by the key that it carries, among what the bot itself wrote.

Who else puts that key into a post is not believed. Reads Mattermost, writes nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from bxcore.ids import MattermostId
from bxcore.timestamp import Timestamp
from gatewayd.entries import Unsent
from gatewayd.posts import KEY_PROP, Post

EARLIER_MS = 600_000
"""A post is looked for from so long before it was first tried: our clock and the server's may differ."""

_PAGES = 100


class Server(Protocol):
    """As much of gatewayd.mattermost.Mattermost as is used here."""

    def thread(self, root: MattermostId) -> tuple[Post, ...]: ...

    def posts(self, channel: MattermostId, *, page: int) -> tuple[Post, ...]: ...


class Maker(Protocol):
    """What makes a post at the server; `pending` makes a repetition within half a minute harmless."""

    def create_post(
        self,
        channel: MattermostId,
        message: str,
        *,
        root: MattermostId | None,
        props: Mapping[str, Any],
        pending: str,
    ) -> Post: ...


def props(key: str) -> dict[str, str]:
    """Return what every post of ours carries. `unsafe_links` keeps the server from fetching what a text names."""
    return {"unsafe_links": "true", KEY_PROP: key}


def find(server: Server, unsent: Unsent, *, bot: MattermostId) -> Post | None:
    """Return the post where the server has it. Raises MattermostFault."""
    outgoing = unsent.outgoing
    if outgoing.root is not None:
        return _ours(server.thread(outgoing.root), outgoing.key, bot)
    begin = Timestamp(max(0, unsent.made - EARLIER_MS))
    for page in range(_PAGES):
        posts = server.posts(outgoing.channel, page=page)
        found = _ours(posts, outgoing.key, bot)
        if found is not None or not posts or posts[-1].create_at < begin:
            return found
    return None


def _ours(posts: Iterable[Post], key: str, bot: MattermostId) -> Post | None:
    return next((post for post in posts if post.user == bot and post.props.get(KEY_PROP) == key), None)
