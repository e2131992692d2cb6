"""Everything the server knows: accounts, sessions, channels, and its clock. Posts are in posting.py.

Threads: many. One lock, `World.lock`, is held by whoever reads or changes; events are published while it is held,
so that they go out in the order in which things happened.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.mattermostparts import rules
from tests.fakes.mattermostparts.records import AppError, Channel, Json, Post, Session, Team, User

VERSION = "11.6.0"
DEFAULTS = {
    "MaxPostSize": "16383",
    "TimeBetweenUserTypingUpdatesMilliseconds": "5000",
    "EnableLinkPreviews": "true",
    "EnablePermalinkPreviews": "true",
    "EnableBotAccountCreation": "true",
    "EnableUserAccessTokens": "false",
    "EnableOpenServer": "true",
    "EnableDeveloper": "false",
    "MaximumPayloadSizeBytes": "300000",
    "PostEditTimeLimit": "-1",
    "ExperimentalEnableHardenedMode": "false",
    "RestrictDirectMessage": "any",
    "SiteURL": "",
    "Version": VERSION,
    "BuildNumber": "boxmaker",
}


@dataclass(kw_only=True)
class Event:
    """One event, and who gets it. `personal` adds to its data for one receiver."""

    name: str
    data: Json
    user: str = ""
    channel: str = ""
    team: str = ""
    omit: Collection[str] = ()
    admins: bool | None = None
    personal: Callable[[str], Json] | None = None

    def broadcast(self) -> Json:
        return {
            "omit_users": dict.fromkeys(self.omit, True) or None,
            "user_id": self.user,
            "channel_id": self.channel,
            "team_id": self.team,
            "connection_id": "",
            "omit_connection_id": "",
        }


@dataclass(kw_only=True)
class Typing:
    """That somebody was shown as typing."""

    user: str
    channel: str
    parent: str
    at: int


@dataclass(kw_only=True)
class Notified:
    """Whom a post notified, and with which words all of the channel."""

    post: str
    users: frozenset[str]
    everybody: frozenset[str]


class Clock:
    """The server's clock: this machine's, and what tests added to it."""

    def __init__(self) -> None:
        self._offset = 0

    def now(self) -> int:
        return time.time_ns() // 1_000_000 + self._offset

    def advance(self, milliseconds: int) -> None:
        self._offset += milliseconds


@dataclass
class World:
    """The state. Everything public here expects the lock to be held, except `new_id`."""

    publish: Callable[[Event], None]
    seed: str = "boxmaker"
    clock: Clock = field(default_factory=Clock)
    lock: threading.RLock = field(default_factory=threading.RLock)
    config: dict[str, str] = field(default_factory=lambda: dict(DEFAULTS))
    users: dict[str, User] = field(default_factory=dict)
    names: dict[str, User] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    teams: dict[str, Team] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    named: dict[tuple[str, str], Channel] = field(default_factory=dict)
    posts: dict[str, Post] = field(default_factory=dict)
    in_channel: dict[str, list[Post]] = field(default_factory=dict)
    in_thread: dict[str, list[Post]] = field(default_factory=dict)
    pending: dict[str, tuple[str, int]] = field(default_factory=dict)
    typings: list[Typing] = field(default_factory=list)
    fetches: list[rules.Fetch] = field(default_factory=list)
    notified: list[Notified] = field(default_factory=list)
    broken_rules: set[str] = field(default_factory=set)
    _made: int = 0
    _made_lock: threading.Lock = field(default_factory=threading.Lock)

    def new_id(self) -> str:
        with self._made_lock:
            self._made += 1
            number = self._made
        digest = int.from_bytes(hashlib.sha256(f"{self.seed} {number}".encode()).digest())
        return "".join("ybndrfg8ejkmcpqxot1uwisza345h769"[digest >> shift & 31] for shift in range(0, 130, 5))

    def now(self) -> int:
        return self.clock.now()

    def keeps(self, rule: str) -> bool:
        """Whether a rule holds; tests break some, to show that the checks from outside would see it."""
        return rule not in self.broken_rules

    def on(self, setting: str) -> bool:
        return self.config[setting] == "true"

    # --- accounts and sessions ---

    def add_user(
        self, username: str, *, email: str = "", password: str = "", bot: bool = False, owner: str = "", roles: str = ""
    ) -> User:
        username = username.lower()
        if not rules.USERNAME.fullmatch(username) or username in rules.RESERVED:
            raise AppError("model.user.is_valid.username.app_error", 400)
        if username in self.names:
            raise AppError("app.user.save.username_exists.app_error", 400)
        user = User(
            id=self.new_id(),
            username=username,
            email=email or f"{username}@example.com",
            password=password,
            create_at=self.now(),
            is_bot=bot,
            owner=owner,
            roles=roles or ("system_user" if self.users else "system_admin system_user"),
        )
        self.users[user.id] = self.names[username] = user
        self.publish(Event(name="new_user", data={"user_id": user.id}))
        return user

    def add_session(self, user: str, *, personal: bool = False) -> Session:
        session = Session(token=self.new_id(), user=user, csrf=self.new_id(), personal=personal, token_id=self.new_id())
        self.sessions[session.token] = session
        return session

    def session(self, token: str) -> Session | None:
        """Return what a token stands for now; that of a disabled account rests until it is enabled."""
        session = self.sessions.get(token)
        return session if session is not None and self.users[session.user].delete_at == 0 else None

    def set_active(self, user: User, *, active: bool) -> None:
        user.delete_at = 0 if active else self.now()
        user.update_at = self.now()
        if not active:  # logins end for good; access tokens rest
            gone = [token for token, held in self.sessions.items() if held.user == user.id and not held.personal]
            for token in gone:
                del self.sessions[token]
        self.publish(Event(name="user_updated", data={"user": user.json()}))

    # --- teams and channels ---

    def add_team(self, name: str, *, display_name: str = "", kind: str = "O", creator: str = "") -> Team:
        if any(team.name == name for team in self.teams.values()):
            raise AppError("app.team.save_member.exists.app_error", 400)
        made = self.now()
        team = Team(id=self.new_id(), name=name, display_name=display_name or name, type=kind, create_at=made)
        self.teams[team.id] = team
        if creator:
            team.members.add(creator)
        return team

    def add_channel(
        self,
        kind: str,
        members: Iterable[str],
        *,
        name: str = "",
        display_name: str = "",
        team: str = "",
        creator: str = "",
    ) -> Channel:
        made = self.now()
        number = self.new_id()
        channel = Channel(
            id=number,
            type=kind,
            name=name or f"channel-{number[:6]}",
            display_name=display_name or name,
            team=team,
            creator=creator,
            create_at=made,
            members=dict.fromkeys(members, made),
        )
        self.channels[channel.id] = self.named[kind, channel.name] = channel
        self.in_channel[channel.id] = []
        return channel

    def direct(self, one: str, other: str) -> tuple[Channel, bool]:
        """Return the channel of two people, and whether it was made now."""
        name = "__".join(sorted((one, other)))
        if ("D", name) in self.named:
            return self.named["D", name], False
        channel = self.add_channel("D", {one, other}, name=name, creator=one)
        for member, teammate in ((one, other), (other, one)):
            data = {"creator_id": one, "teammate_id": teammate}
            self.publish(Event(name="direct_added", data=data, channel=channel.id, user=member))
        return channel, True

    def group(self, creator: str, members: Collection[str]) -> tuple[Channel, bool]:
        name = hashlib.sha1("".join(sorted(members)).encode(), usedforsecurity=False).hexdigest()
        if ("G", name) in self.named:
            return self.named["G", name], False
        display = ", ".join(sorted(self.users[member].username for member in members))
        channel = self.add_channel("G", members, name=name, display_name=display, creator=creator)
        data = {"teammate_ids": rules.dump(sorted(members))}
        for member in members:
            self.publish(Event(name="group_added", data=data, channel=channel.id, user=member))
        return channel, True

    def join(self, channel: Channel, user: str, *, by: str = "") -> None:
        channel.members[user] = self.now()
        if channel.team:
            self.teams[channel.team].members.add(user)
        data = {"user_id": user, "team_id": channel.team}
        self.publish(Event(name="user_added", data=data, channel=channel.id))

    def leave(self, channel: Channel, user: str, *, by: str) -> None:
        channel.members.pop(user, None)
        data = {"user_id": user, "remover_id": by}
        self.publish(Event(name="user_removed", data=data, channel=channel.id))
        # The one who was taken out hears it too, and is told the channel in the data.
        personal = {"channel_id": channel.id, "remover_id": by}
        self.publish(Event(name="user_removed", data=personal, user=user))

    def archive(self, channel: Channel) -> None:
        channel.delete_at = channel.update_at = self.now()
        data = {"channel_id": channel.id, "delete_at": channel.delete_at}
        where: dict[str, Any] = {"team": channel.team} if channel.type == "O" else {"channel": channel.id}
        self.publish(Event(name="channel_deleted", data=data, **where))

    def may_read(self, channel: Channel, user: User) -> bool:
        if user.id in channel.members or user.admin:
            return True
        return channel.type == "O" and channel.team != "" and user.id in self.teams[channel.team].members
