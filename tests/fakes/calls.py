"""Calls and grants for tests, with the parts that a test seldom cares about filled in."""

from brokerd.call import Call
from bxcore import hosts, tools
from bxcore.grants import Grant, GrantSet, Mode
from bxcore.hosts import HostRule
from bxcore.ids import CallId, Hash32, SessionId
from bxcore.strictjson import JsonValue, dumps
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass, ToolRequest

NOBODY = Hash32("0" * 64)


def arguments(tool: str, *, path: str | None = "/data/a", url: str | None = None, **more: str | int) -> str:
    """Return arguments of `tool` as JSON text, with what it needs beside its path or address."""
    places: dict[str, dict[str, JsonValue]] = {
        "read_file": {"path": path},
        "list_directory": {"path": path},
        "search_files": {"path": path, "query": "x"},
        "write_file": {"path": path, "content": "x"},
        "edit_file": {"path": path, "old_text": "x", "new_text": "y"},
        "shell": {"directory": path, "command": "true"},
        "http_fetch": {"url": url or "https://example.org/"},
    }
    return dumps({**places[tool], **more}).decode()


def request(tool: str, text: str, *, session: str = "s", number: int = 1) -> ToolRequest:
    return ToolRequest(session=SessionId(session), call=CallId(number), tool=tool, arguments=text)


def call(
    tool: str = "read_file",
    *,
    path: str | None = "/data/a",
    url: str | None = None,
    session: str = "s",
    number: int = 1,
    text: str | None = None,
) -> Call:
    """Return a call of `tool`, on a path that counts as resolved; `text` stands for the whole of its arguments."""
    text = arguments(tool, path=path, url=url) if text is None else text
    parsed = tools.parse(tool, text)
    fetched = tools.asked_url(parsed)
    return Call(
        request=request(tool, text, session=session, number=number),
        kind=tools.TOOLS[tool],
        arguments=parsed,
        canonical=tools.canonical(parsed),
        path=tools.asked_path(parsed),
        target=None if fetched is None else hosts.target(fetched),
    )


def grant(
    grant_id: str = "g",
    mode: Mode = Mode.AUTO,
    tool: str = "read_file",
    *,
    paths: tuple[str, ...] = ("/data",),
    hosts: tuple[HostRule, ...] = (),
    max_taint: DataClass = DataClass.SECRET,
    result_class: DataClass = DataClass.PRIVATE,
    untrusted: bool = True,
    expires: int | None = None,
    digest: Hash32 = NOBODY,
) -> Grant:
    return Grant(
        id=grant_id,
        tool=tool,
        mode=mode,
        max_taint=max_taint,
        result_class=result_class,
        untrusted=untrusted,
        expires=None if expires is None else Timestamp(expires),
        paths=() if hosts else paths,
        hosts=hosts,
        hash=digest,
    )


def grant_set(*grants: Grant) -> GrantSet:
    return GrantSet(grants=grants)
