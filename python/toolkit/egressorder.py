"""What the egress proxy is told, what it may dial, and what it records. Pure: resolving is handed in."""

from enum import Enum
from pathlib import PurePosixPath

import attrs

from bxcore import hosts, strictjson
from bxcore.addresses import is_public
from bxcore.errors import WireError
from bxcore.strictjson import JsonValue
from bxcore.timestamp import DAY_MS
from toolkit.dialling import Resolve
from toolkit.socks import Reply

_MOST_BYTES = 2**53 - 1
_KEYS = {"host", "port", "socket", "total_bytes", "deadline_ms"}


class Verdict(Enum):
    """What was decided about one connection, or how it ended early."""

    DIALLED = "dialled"
    MALFORMED = "malformed"
    NO_NAME = "no_name"
    ADDRESS = "address"
    NOT_GRANTED = "not_granted"
    NO_ADDRESS = "no_address"
    NOT_PUBLIC = "not_public"
    UNREACHABLE = "unreachable"
    OTHER_NAME = "other_name"
    BYTE_LIMIT = "byte_limit"
    TOO_MANY = "too_many"


@attrs.frozen(kw_only=True)
class Order:
    """What brokerd tells the proxy: the one granted host and port, where to listen, and the call's limits."""

    host: str
    port: int
    socket: PurePosixPath
    total_bytes: int
    deadline_ms: int


@attrs.frozen(kw_only=True)
class Dialled:
    """One connection: host and port as asked (None where there was no proper name), what came of it, bytes passed."""

    host: str | None
    port: int | None
    verdict: Verdict
    address: str | None
    passed_bytes: int

    def line(self) -> bytes:
        """Return the record as one line of JSON."""
        fields: dict[str, JsonValue] = {
            "host": self.host,
            "port": self.port,
            "verdict": self.verdict.value,
            "address": self.address,
            "bytes": self.passed_bytes,
        }
        return strictjson.dumps(fields) + b"\n"


class BadOrder(ValueError):
    """Stdin does not hold what brokerd writes."""


class Refused(Exception):
    """A connection that goes no further; what it is told, and what is recorded."""

    def __init__(self, verdict: Verdict, reply: Reply | None) -> None:
        super().__init__(verdict.value)
        self.verdict, self.reply = verdict, reply


def parse_order(line: bytes) -> Order:
    """Return the order in one line of JSON. Raises BadOrder."""
    try:
        value = strictjson.loads(line)
    except WireError as error:
        raise BadOrder(error.detail) from None
    if not isinstance(value, dict) or set(value) != _KEYS:
        raise BadOrder("expected host, port, socket, total_bytes and deadline_ms")
    host, path = value["host"], value["socket"]
    if not isinstance(host, str) or not isinstance(path, str) or not path.startswith("/"):
        raise BadOrder("host and socket are texts, socket an absolute path")
    try:
        canonical = hosts.host(host) == host
    except hosts.BadHost:
        canonical = False
    if not canonical:
        raise BadOrder("host is not a host name in lower case")
    return Order(
        host=host,
        port=_whole(value["port"], 65_535),
        socket=PurePosixPath(path),
        total_bytes=_whole(value["total_bytes"], _MOST_BYTES),
        deadline_ms=_whole(value["deadline_ms"], DAY_MS),
    )


def _whole(value: object, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise BadOrder(f"expected a number of 1 to {most}")
    return value


def judge(order: Order, host: str, port: int, resolve: Resolve) -> tuple[str, ...]:
    """Return the addresses that may be dialled for what the client asked. Raises Refused."""
    if host != order.host or port != order.port:
        raise Refused(Verdict.NOT_GRANTED, Reply.NOT_ALLOWED)
    try:
        addresses = resolve(host, port)
    except (OSError, UnicodeError):
        addresses = ()
    if not addresses:
        raise Refused(Verdict.NO_ADDRESS, Reply.UNREACHABLE)
    # One bad answer spoils all: which one a later program would use is not ours to guess.
    if not all(is_public(address) for address in addresses):
        raise Refused(Verdict.NOT_PUBLIC, Reply.NOT_PUBLIC)
    return addresses
