"""inferproxy.toml as one frozen type, for `bxctl config check` alone.

inferproxy reads the file itself, with the standard library only; this second description exists
because bxctl may not import a role. tests/unit/bxcore/test_settings_inferproxy.py holds the two equal.
"""

from pathlib import Path
from urllib.parse import urlsplit

import attrs

_UPSTREAM_FORM = 'expected "http://host:port" or "unix:/absolute/path"'


def _within(low: int, high: int) -> "attrs._ValidatorType[int]":
    def check(_: object, __: "attrs.Attribute[int]", value: int) -> None:
        if not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")

    return check


def _an_address(_: object, __: "attrs.Attribute[str]", value: str) -> None:
    if value.startswith("unix:/") and "\0" not in value:
        return
    try:
        url = urlsplit(value)
        host = url.hostname or ""
        # getaddrinfo's own encoding: UnicodeError, which is a ValueError, for what it would refuse.
        usable = host.encode("idna") and " " not in host and url.port != 0
    except ValueError:
        raise ValueError(_UPSTREAM_FORM) from None
    if url.scheme == "https":
        raise ValueError(f"{_UPSTREAM_FORM}; https cannot be forwarded unread")
    more_than_an_address = url.path.strip("/") or url.query or url.fragment or "@" in url.netloc
    # The text too: urlsplit drops line breaks and tabs silently.
    if url.scheme != "http" or not usable or not value.isprintable() or more_than_an_address:
        raise ValueError(_UPSTREAM_FORM)


@attrs.frozen(kw_only=True)
class InferproxySettings:
    """The whole file."""

    listen: Path
    upstream: str = attrs.field(validator=_an_address)
    max_connections: int = attrs.field(default=32, validator=_within(1, 128))
    accept_burst: int = attrs.field(default=32, validator=_within(1, 10_000))
    accept_per_second: int = attrs.field(default=16, validator=_within(1, 10_000))
    idle_ms: int = attrs.field(default=900_000, validator=_within(1_000, 86_400_000))
    connect_ms: int = attrs.field(default=5_000, validator=_within(10, 60_000))
