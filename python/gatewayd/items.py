"""What the event stream says: untrusted messages -> frames -> what it means for Boxmaker. Pure.

Most of a server's events mean nothing here, and a newer server has more of them: those are no items and no faults.
Sources: docs/mattermost.md.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from bxcore import ids
from bxcore.ids import MattermostId
from gatewayd import posts, serverjson
from gatewayd.posts import ChannelType, NotOurs, Post


@attrs.frozen(kw_only=True)
class Opened:
    """The stream is open. `resumed`: nothing was lost since it was open before; else catch up by REST."""

    resumed: bool
    version: str | None


@attrs.frozen(kw_only=True)
class Posted:
    """A post was made, by anybody, the bot included. `came_ms`: when the event came, by our monotonic clock."""

    post: Post
    channel_type: ChannelType | None
    came_ms: int | None = None


@attrs.frozen(kw_only=True)
class Edited:
    """A post is another than it was; its text only where `edit_at` moved."""

    post: Post


@attrs.frozen(kw_only=True)
class Deleted:
    """A post is gone; `post` is what it was."""

    post: Post


@attrs.frozen(kw_only=True)
class ChannelGone:
    """The bot is not in the channel any more, or the channel was archived."""

    channel: MattermostId


@attrs.frozen(kw_only=True)
class ChannelJoined:
    """The bot may be in a channel that it was not in before."""

    channel: MattermostId


@attrs.frozen(kw_only=True)
class Lost:
    """A stream that was open has ended."""


Item: TypeAlias = Opened | Posted | Edited | Deleted | ChannelGone | ChannelJoined | Lost


@attrs.frozen(kw_only=True)
class Event:
    """An event of the server, as it was sent. `seq` counts the events of one connection from 0."""

    name: str
    data: Mapping[str, Any]
    broadcast: Mapping[str, Any]
    seq: int


@attrs.frozen(kw_only=True)
class Reply:
    """An answer to what the client sent; not counted by `seq`."""

    ok: bool
    number: int


@attrs.frozen(kw_only=True)
class Hello:
    """The first event of a new connection. `connection` can be resumed, `user` is the bot."""

    connection: str | None
    version: str | None
    user: str | None


_VERSION = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,5}){1,2}")
_CONNECTION = re.compile(r"[A-Za-z0-9]{1,64}")


def frame(untrusted: str) -> Event | Reply:
    """Return what a message of the stream is. Raises NotOurs."""
    fields = serverjson.loads(untrusted)
    if not isinstance(fields, dict):
        raise NotOurs("message: expected an object")
    if "event" not in fields:
        return _reply(fields)
    name, seq = fields["event"], fields.get("seq")
    if not isinstance(name, str) or type(seq) is not int or not 0 <= seq <= ids.MAX_SAFE_INTEGER:
        raise NotOurs("event: expected a name and a number")
    return Event(name=name, data=_object(fields, "data"), broadcast=_object(fields, "broadcast"), seq=seq)


def hello(event: Event) -> Hello:
    """Return what `hello` says; what it does not say as we need it is None."""
    version = _VERSION.match(str(event.data.get("server_version", "")))
    connection, user = event.data.get("connection_id"), event.broadcast.get("user_id")
    return Hello(
        connection=connection if isinstance(connection, str) and _CONNECTION.fullmatch(connection) else None,
        version=version[0] if version else None,
        user=user if isinstance(user, str) and user else None,
    )


def item(event: Event, me: str | None) -> Item | None:
    """Return what an event means to the user `me`; None where it means nothing. Raises NotOurs."""
    match event.name:
        case "posted":
            return Posted(post=_post(event), channel_type=_channel_type(event))
        case "post_edited":
            return Edited(post=_post(event))
        case "post_deleted":
            return Deleted(post=_post(event))
        case "channel_deleted":
            return ChannelGone(channel=_channel(event))
        case "user_removed":
            # Said twice: to who stays, with the user's id, and to who had to go, with the channel's.
            return ChannelGone(channel=_channel(event)) if "user_id" not in event.data else None
        case "user_added":
            other = me is not None and event.data.get("user_id") != me
            return None if other else ChannelJoined(channel=_channel(event))
        case "direct_added" | "group_added" | "channel_created" | "channel_restored":
            return ChannelJoined(channel=_channel(event))
    return None


def _reply(fields: Mapping[str, Any]) -> Reply:
    status, number = fields.get("status"), fields.get("seq_reply", 0)
    if not isinstance(status, str) or type(number) is not int:
        raise NotOurs("message: expected an event or a reply")
    return Reply(ok=status == "OK", number=number)


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _post(event: Event) -> Post:
    inner = event.data.get("post")
    if not isinstance(inner, str):
        raise NotOurs("post: expected JSON inside of JSON")
    return posts.post(serverjson.loads(inner))


def _channel_type(event: Event) -> ChannelType | None:
    try:
        return ChannelType(event.data.get("channel_type"))
    except ValueError:
        return None


def _channel(event: Event) -> MattermostId:
    try:
        return ids.mattermost_id(event.data.get("channel_id") or event.broadcast.get("channel_id"))
    except ValueError:
        raise NotOurs("channel_id: expected an id of 26 letters and digits") from None
