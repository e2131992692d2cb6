"""Posts of a made-up server, and the entries of gatewayd's queue that they become."""

from typing import Any

from bxcore.ids import MattermostId, mattermost_id
from bxcore.timestamp import Timestamp
from gatewayd.entries import Incoming, Kind, Outgoing
from gatewayd.posts import Account, Channel, ChannelType, Post
from gatewayd.store import Store
from tests.fakes.clocks import BEGIN


def an_id(name: str, number: int = 0) -> MattermostId:
    """Return an id that begins with a name of a-z and 0-9."""
    return mattermost_id(f"{name}{number:0{26 - len(name)}}")


BOT, OWNER, OTHER, STRANGER = an_id("bot"), an_id("owner"), an_id("other"), an_id("stranger")
DIRECT, TOWN = an_id("direct"), an_id("town")


def post(name: str = "post", number: int = 0, *, after_ms: int = 0, **fields: Any) -> Post:
    """Return a post of the owner in the direct channel, made `after_ms` after the tests' beginning."""
    usual: dict[str, Any] = {
        "id": an_id(name, number),
        "user": OWNER,
        "channel": DIRECT,
        "root": None,
        "type": "",
        "message": "hello",
        "props": {},
        "files": 0,
        "create_at": Timestamp(BEGIN + after_ms),
        "edit_at": Timestamp(0),
        "delete_at": Timestamp(0),
        "original": "",
    }
    return Post(**{**usual, **fields})


def incoming(name: str = "post", number: int = 0, *, after_ms: int = 0, **fields: Any) -> Incoming:
    """Return the entry of such a post."""
    usual: dict[str, Any] = {
        "id": an_id(name, number),
        "channel": DIRECT,
        "thread": fields.get("id", an_id(name, number)),
        "user": OWNER,
        "create_at": Timestamp(BEGIN + after_ms),
        "kind": Kind.MESSAGE,
        "direct": True,
        "text": "hello",
    }
    return Incoming(**{**usual, **fields})


def outgoing(key: str, message: str = "an answer", root: MattermostId | None = None) -> Outgoing:
    return Outgoing(key=key, channel=DIRECT, root=root, message=message)


def channel(
    name: str = "town", kind: ChannelType = ChannelType.OPEN, *, last_ms: int = 0, gone: bool = False
) -> Channel:
    """Return a channel; a direct one is the owner's and the bot's."""
    return Channel(
        id=an_id(name),
        type=kind,
        name=f"{BOT}__{OWNER}" if kind is ChannelType.DIRECT else name,
        last_post_at=Timestamp(BEGIN + last_ms),
        delete_at=Timestamp(1 if gone else 0),
    )


def account(user: MattermostId, username: str, *, is_bot: bool = False) -> Account:
    return Account(id=user, username=username, is_bot=is_bot, delete_at=Timestamp(0))


def keys(store: Store) -> list[str]:
    """Return the keys of what is to be posted, in order."""
    return [unsent.outgoing.key for unsent in store.unsent()]
