"""A request as the handlers see it, their answers, and the table that both meet in."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from tests.fakes.mattermostparts.records import AppError, Json, Session, User

PER_PAGE = 60
PER_PAGE_MOST = 200


@dataclass(kw_only=True)
class Answer:
    """What goes back: JSON, or text where it is said."""

    status: int = HTTPStatus.OK
    json: Any = None
    text: str | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)

    def body(self) -> bytes:
        if self.text is not None:
            return self.text.encode()
        return json.dumps(self.json, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@dataclass(kw_only=True)
class Call:
    """One request. `who` and `session` are None where nobody is logged in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    request_id: str
    who: User | None = None
    session: Session | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def user(self) -> User:
        assert self.who is not None, "the table says which calls need a session"
        return self.who

    @property
    def named_user(self) -> str:
        """The user id of the path, `me` resolved."""
        return self.user.id if self.names["user"] == "me" else self.names["user"]

    def object(self) -> Json:
        """Return the body as an object. Raises AppError."""
        untrusted = self._json()
        if not isinstance(untrusted, dict):
            raise AppError("api.context.invalid_body_param.app_error", 400)
        return untrusted

    def strings(self) -> list[str]:
        """Return the body as a list of text. Raises AppError."""
        untrusted = self._json()
        if not isinstance(untrusted, list) or not all(isinstance(entry, str) for entry in untrusted):
            raise AppError("api.payload.parse.error", 400)
        return untrusted

    def _json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise AppError("api.context.invalid_body_param.app_error", 400) from None

    def paging(self) -> tuple[int, int]:
        """Return page and per_page: wrong ones are the default, and too large a one is cut in silence."""
        page = _whole(self.query.get("page", ""), 0)
        per_page = _whole(self.query.get("per_page", ""), PER_PAGE)
        return page, min(per_page, PER_PAGE_MOST)

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in ("1", "t", "T", "true", "TRUE", "True")


def _whole(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() else default


Handler = Callable[[Call], Answer]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the request table."""

    method: str
    path: re.Pattern[str]
    handle: Handler
    public: bool = False
    """Needs no session."""


def row(request: str, handle: Handler, *, public: bool = False) -> Row:
    """Return a line for `METHOD /path/{name}`; a name stands for one part of the path."""
    method, _, path = request.partition(" ")
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)
    return Row(method=method, path=re.compile(pattern), handle=handle, public=public)
