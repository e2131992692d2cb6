"""What the server keeps: users, sessions, teams, channels, posts; each knows how it looks as JSON.

The fields are those of server 11.6. Times are the server's milliseconds.
"""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


class AppError(Exception):
    """An answer that says no, as the server's own errors do."""

    def __init__(self, error: str, status: int, detail: str = "") -> None:
        super().__init__(error)
        self.id = error
        self.status = status
        self.detail = detail

    def json(self, request_id: str) -> Json:
        return {
            "id": self.id,
            "message": f"({self.id})",  # a translation in the server: nobody may branch on it
            "detailed_error": self.detail,
            "request_id": request_id,
            "status_code": self.status,
        }


@dataclass(kw_only=True)
class User:
    """A person or a bot."""

    id: str
    username: str
    email: str
    password: str
    create_at: int
    roles: str = "system_user"
    is_bot: bool = False
    display_name: str = ""
    description: str = ""
    owner: str = ""
    update_at: int = 0
    delete_at: int = 0

    @property
    def admin(self) -> bool:
        return "system_admin" in self.roles.split()

    def json(self) -> Json:
        said: Json = {
            "id": self.id,
            "create_at": self.create_at,
            "update_at": self.update_at or self.create_at,
            "delete_at": self.delete_at,
            "username": self.username,
            "auth_data": "",
            "auth_service": "",
            "email": self.email,
            "nickname": "",
            "first_name": self.display_name,
            "last_name": "",
            "position": "",
            "roles": self.roles,
            "locale": "en",
            "timezone": {"automaticTimezone": "", "manualTimezone": "", "useAutomaticTimezone": "true"},
            "disable_welcome_email": False,
        }
        if self.is_bot:  # absent where it is false
            said |= {"is_bot": True, "bot_description": self.description}
        return said

    def bot_json(self) -> Json:
        return {
            "user_id": self.id,
            "username": self.username,
            "display_name": self.display_name,
            "description": self.description,
            "owner_id": self.owner,
            "create_at": self.create_at,
            "update_at": self.update_at or self.create_at,
            "delete_at": self.delete_at,
        }


@dataclass(kw_only=True)
class Session:
    """What a token stands for. `personal` is an access token of a user or bot."""

    token: str
    user: str
    csrf: str
    token_id: str = ""
    personal: bool = False


@dataclass(kw_only=True)
class Team:
    """A team; direct and group channels belong to none."""

    id: str
    name: str
    display_name: str
    type: str
    create_at: int
    members: set[str] = field(default_factory=set)

    def json(self) -> Json:
        return {
            "id": self.id,
            "create_at": self.create_at,
            "update_at": self.create_at,
            "delete_at": 0,
            "display_name": self.display_name,
            "name": self.name,
            "description": "",
            "email": "",
            "type": self.type,
            "company_name": "",
            "allowed_domains": "",
            "invite_id": "",
            "allow_open_invite": True,
            "scheme_id": None,
            "group_constrained": None,
        }


@dataclass(kw_only=True)
class Channel:
    """A channel. `members` may hold fewer than two for D, since accounts can be deleted."""

    id: str
    type: str
    name: str
    display_name: str
    team: str
    creator: str
    create_at: int
    members: dict[str, int] = field(default_factory=dict)
    delete_at: int = 0
    update_at: int = 0
    last_post_at: int = 0
    last_root_post_at: int = 0
    messages: int = 0
    root_messages: int = 0

    def json(self) -> Json:
        return {
            "id": self.id,
            "create_at": self.create_at,
            "update_at": self.update_at or self.create_at,
            "delete_at": self.delete_at,
            "team_id": self.team,
            "type": self.type,
            "display_name": self.display_name,
            "name": self.name,
            "header": "",
            "purpose": "",
            "last_post_at": self.last_post_at,
            "total_msg_count": self.messages,
            "extra_update_at": 0,
            "creator_id": self.creator,
            "scheme_id": None,
            "props": None,
            "group_constrained": None,
            "shared": None,
            "total_msg_count_root": self.root_messages,
            "policy_id": None,
            "last_root_post_at": self.last_root_post_at,
        }


@dataclass(kw_only=True)
class Post:
    """A post, or (with `original`) the text that a post had before an edit."""

    id: str
    create_at: int
    update_at: int
    user: str
    channel: str
    root: str = ""
    message: str = ""
    type: str = ""
    props: Json = field(default_factory=dict)
    file_ids: list[str] = field(default_factory=list)
    edit_at: int = 0
    delete_at: int = 0
    original: str = ""
    hashtags: str = ""
    pinned: bool = False
    reactions: list[tuple[str, str, int]] = field(default_factory=list)

    def json(self, *, reply_count: int = 0, last_reply_at: int = 0, pending: str = "") -> Json:
        said: Json = {
            "id": self.id,
            "create_at": self.create_at,
            "update_at": self.update_at,
            "edit_at": self.edit_at,
            "delete_at": self.delete_at,
            "is_pinned": self.pinned,
            "user_id": self.user,
            "channel_id": self.channel,
            "root_id": self.root,
            "original_id": self.original,
            "message": self.message,
            "type": self.type,
            "props": dict(self.props),
            "hashtags": self.hashtags,
            "file_ids": list(self.file_ids),
            "pending_post_id": pending,
            "reply_count": reply_count,
            "last_reply_at": last_reply_at,
            "participants": None,
            "metadata": {},
        }
        if self.reactions:
            said["has_reactions"] = True
        return said
