"""What the server says of posts, channels and accounts: untrusted JSON -> values. Pure.

Unknown fields are ignored, since a newer server has more of them; a field that we need and that is not there, or
is of another type, is NotOurs. Sources of the fields: docs/mattermost.md.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from bxcore import ids
from bxcore.ids import MattermostId
from bxcore.timestamp import Timestamp

INTEGRATION_PROPS = ("from_webhook", "from_bot", "from_plugin", "from_oauth_app", "override_username")
"""The names in a post's props that say that no person wrote it as it stands."""
KEY_PROP = "boxmaker"
"""The name in a post's props under which a post of ours keeps its key."""
_VALUE_MOST = 256


class NotOurs(ValueError):
    """The JSON is not what its place promises. The message names the field and never quotes a value."""


class ChannelType(Enum):
    """DIRECT is two people, GROUP three to eight; the other two are channels of a team."""

    DIRECT = "D"
    GROUP = "G"
    OPEN = "O"
    PRIVATE = "P"


@attrs.frozen(kw_only=True)
class Post:
    """A post as the server sent it. `thread` is the id of the thread's first post: its own, where it began one.

    `props` holds what is read here, and nothing else: anybody may send a quarter of a megabyte.
    `create_at` is the server's clock, `edit_at` 0 where its text was never changed.
    """

    id: MattermostId
    user: MattermostId
    channel: MattermostId
    root: MattermostId | None
    type: str
    message: str
    props: Mapping[str, Any]
    files: int
    create_at: Timestamp
    edit_at: Timestamp
    delete_at: Timestamp
    original: str

    @property
    def thread(self) -> MattermostId:
        return self.root or self.id


@attrs.frozen(kw_only=True)
class Channel:
    """A channel that the bot is in. `name` of a DIRECT one is both user ids, joined with `__`."""

    id: MattermostId
    type: ChannelType
    name: str
    last_post_at: Timestamp
    delete_at: Timestamp


@attrs.frozen(kw_only=True)
class Account:
    """A user or bot."""

    id: MattermostId
    username: str
    is_bot: bool
    delete_at: Timestamp


def post(value: object) -> Post:
    """Return a post. Raises NotOurs."""
    fields = _object(value, "post")
    props = fields.get("props")
    files = fields.get("file_ids")
    root = _text(fields, "root_id", missing="")
    return Post(
        id=_id(fields, "id"),
        user=_id(fields, "user_id"),
        channel=_id(fields, "channel_id"),
        root=_as_id(root, "root_id") if root else None,
        type=_text(fields, "type", missing=""),
        message=_text(fields, "message"),
        props=_props(props) if isinstance(props, dict) else {},
        files=len(files) if isinstance(files, list) else 0,
        create_at=_time(fields, "create_at"),
        edit_at=_time(fields, "edit_at", missing=0),
        delete_at=_time(fields, "delete_at", missing=0),
        original=_text(fields, "original_id", missing=""),
    )


def _props(untrusted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return those that are read; of a value that is no short text only that it is there."""
    read = {name: untrusted[name] for name in (*INTEGRATION_PROPS, KEY_PROP) if name in untrusted}
    return {name: value if isinstance(value, str) and len(value) <= _VALUE_MOST else "" for name, value in read.items()}


def channel(value: object) -> Channel:
    """Return a channel. Raises NotOurs."""
    fields = _object(value, "channel")
    try:
        kind = ChannelType(fields.get("type"))
    except ValueError:
        raise NotOurs("channel: type is not one of D, G, O, P") from None
    return Channel(
        id=_id(fields, "id"),
        type=kind,
        name=_text(fields, "name", missing=""),
        last_post_at=_time(fields, "last_post_at", missing=0),
        delete_at=_time(fields, "delete_at", missing=0),
    )


def account(value: object) -> Account:
    """Return a user. `is_bot` is absent where it is false. Raises NotOurs."""
    fields = _object(value, "user")
    return Account(
        id=_id(fields, "id"),
        username=_text(fields, "username"),
        is_bot=fields.get("is_bot") is True,
        delete_at=_time(fields, "delete_at", missing=0),
    )


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise NotOurs(f"{what}: expected an object")
    return value


def _text(fields: Mapping[str, Any], name: str, *, missing: str | None = None) -> str:
    value = fields.get(name, missing)
    if type(value) is not str:
        raise NotOurs(f"{name}: expected text")
    return value


def _id(fields: Mapping[str, Any], name: str) -> MattermostId:
    return _as_id(fields.get(name), name)


def _as_id(value: object, name: str) -> MattermostId:
    try:
        return ids.mattermost_id(value)
    except ValueError:
        raise NotOurs(f"{name}: expected an id of 26 letters and digits") from None


def _time(fields: Mapping[str, Any], name: str, *, missing: int | None = None) -> Timestamp:
    value = fields.get(name, missing)
    if type(value) is not int or not 0 <= value <= ids.MAX_SAFE_INTEGER:
        raise NotOurs(f"{name}: expected milliseconds since 1970")
    return Timestamp(value)
