"""/etc/boxmaker/gatewayd.toml as one frozen type; defaults and units live here.

In bxcore because two programs read the file: gatewayd, and `bxctl config check`. People and channels are named by
their Mattermost ids: a name can be given away, an id cannot.
"""

import ipaddress
import re
from pathlib import Path
from urllib.parse import urlsplit

import attrs

from bxcore import hosts, ids
from bxcore.settings.ranges import whole
from bxcore.settings.secrets import Sources, check_names
from bxcore.timestamp import DAY_MS

TOKEN = "mattermost-token"
"""The name of the one secret: the bot's access token."""

_URL = re.compile(
    r"https?://[A-Za-z0-9.-]+(?::[1-9][0-9]{0,4})?(?:/[A-Za-z0-9._~-]+)*|https?://\[[0-9a-f:.]+\](?::[1-9][0-9]{0,4})?"
)
_wait = whole(1, DAY_MS)


def _url(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
    if not _URL.fullmatch(value):
        raise ValueError(
            f"{attribute.name}: expected the server's address, as https://chat.example.org, without a slash at its end"
        )


def _ids(_: object, attribute: "attrs.Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    for entry in value:
        try:
            ids.mattermost_id(entry)
        except ValueError:
            raise ValueError(
                f"{attribute.name}: expected Mattermost ids, 26 characters of a-z and 0-9 each, and no names"
            ) from None
    if len(set(value)) != len(value):
        raise ValueError(f"{attribute.name}: expected each id once")


def _hosts(_: object, attribute: "attrs.Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    for entry in value:
        try:
            hosts.rule(entry)
        except hosts.BadHost as error:
            raise ValueError(f"{attribute.name}: {error}") from None


def in_clear(url: str) -> bool:
    """Say whether what is sent to this address can be read on the way, the token first: no TLS, another machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "http" and not here


@attrs.frozen(kw_only=True)
class Listen:
    """Where gatewayd listens: `gateway` for brokerd's questions, `owner` for bxctl."""

    gateway: Path
    owner: Path


@attrs.frozen(kw_only=True)
class Mattermost:
    """The server, and how long to wait for it (milliseconds).

    `ca_file` holds certificates in PEM that are believed beside those of the host. `http://` sends the token in the
    clear: for a server on this machine, or behind a tunnel.
    """

    url: str = attrs.field(validator=_url)
    ca_file: Path | None = None
    connect_ms: int = attrs.field(default=10_000, validator=_wait)
    reply_ms: int = attrs.field(default=30_000, validator=_wait)
    ping_ms: int = attrs.field(default=30_000, validator=_wait)
    """How often the event connection is tried; an answer that is still missing at the next try ends it."""
    retry_most_ms: int = attrs.field(default=60_000, validator=_wait)
    """The longest pause between two tries to reach the server; the first is about a second."""

    @property
    def in_clear(self) -> bool:
        """Whether the token crosses a network in the clear."""
        return in_clear(self.url)


@attrs.frozen(kw_only=True)
class Loop:
    """The way to loopd."""

    socket: Path


@attrs.frozen(kw_only=True)
class Allow:
    """Who may speak: `users`, in direct messages always, in `channels` (group messages too) where they name the bot.

    gatewayd does not start where `users` is empty.
    """

    users: tuple[str, ...] = attrs.field(validator=_ids)
    channels: tuple[str, ...] = attrs.field(default=(), validator=_ids)


@attrs.frozen(kw_only=True)
class Approvals:
    """Who may answer brokerd's questions; the users of `allow` where it is empty."""

    users: tuple[str, ...] = attrs.field(default=(), validator=_ids)


@attrs.frozen(kw_only=True)
class Links:
    """Hosts that an answer may link to, as in a grant. Any other address is shown as text that nobody can click."""

    hosts: tuple[str, ...] = attrs.field(default=(), validator=_hosts)


@attrs.frozen(kw_only=True)
class Limits:
    """What is too old, and how much is taken on."""

    stale_ms: int = attrs.field(default=3_600_000, validator=_wait)
    """A post that is first seen when it is older than this is listed to its author, and not acted upon."""
    overlap_ms: int = attrs.field(default=60_000, validator=_wait)
    """Catching up begins so far before the newest post that was seen: a cluster's servers differ in their clocks."""
    attempts: int = attrs.field(default=3, validator=whole(1, 100))
    """A post that fails so often for reasons of its own is set aside and reported."""
    give_up_ms: int = attrs.field(default=DAY_MS, validator=whole(60_000, 7 * DAY_MS))
    """An answer that could not be posted for so long is set aside and reported."""
    connections: int = attrs.field(default=64, validator=whole(4, 1024))
    """At a time, on one socket. Each open question of brokerd holds one."""


@attrs.frozen(kw_only=True)
class GatewaydSettings:
    """The whole file. `state` is the directory of the queue."""

    state: Path
    listen: Listen
    mattermost: Mattermost
    loop: Loop
    allow: Allow
    approvals: Approvals = Approvals()
    links: Links = Links()
    limits: Limits = Limits()
    secrets: Sources = attrs.field(factory=dict, validator=check_names)

    @property
    def approvers(self) -> tuple[str, ...]:
        """Who may answer a question."""
        return self.approvals.users or self.allow.users
