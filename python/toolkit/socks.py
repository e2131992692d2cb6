"""SOCKS5 (RFC 1928) as the egress proxy and its one client speak it: no login, CONNECT, host names only. Pure.

A name is judged as bytes before anything is compared with it: whatever is no plain host name (a NUL, a space, a
percent sign, any byte of 0x80 and above) never reaches the comparison or the resolver.
"""

from collections.abc import Callable
from enum import IntEnum

from bxcore import hosts

VERSION = 5
NO_LOGIN = 0
CONNECT = 1
V4, NAME, V6 = 1, 3, 4
_ADDRESS_BYTES = {V4: 4, V6: 16}

Read = Callable[[int], bytes]
"""Gives exactly so many bytes, or raises."""


class Reply(IntEnum):
    """The second byte of an answer. From 0x80 on they are ours; the standard leaves them free."""

    DONE = 0
    FAILED = 1
    NOT_ALLOWED = 2
    UNREACHABLE = 4
    BAD_COMMAND = 7
    BAD_ADDRESS = 8
    NOT_PUBLIC = 0x80
    NO_NAME = 0x81


class SocksFault(Exception):
    """The peer said what it must not. `reply` is what it is told, None where the stream makes no sense."""

    def __init__(self, message: str, reply: Reply | None = None) -> None:
        super().__init__(message)
        self.reply = reply


class AddressAsked(SocksFault):
    """The peer asked for an address instead of a name."""


class NoName(SocksFault):
    """The peer's name is no host name."""


def read_greeting(read: Read) -> bytes:
    """Read the client's greeting; return the answer to it. Raises SocksFault."""
    version, count = read(2)
    if version != VERSION or count == 0:
        raise SocksFault("not a SOCKS5 greeting")
    if NO_LOGIN not in read(count):
        raise SocksFault("the client wants to log in")
    return bytes([VERSION, NO_LOGIN])


def read_request(read: Read) -> tuple[str, int]:
    """Read one request; return the host in lower case and the port. Raises SocksFault."""
    version, command, reserved, kind = read(4)
    if version != VERSION or reserved != 0:
        raise SocksFault("not a SOCKS5 request")
    if kind in _ADDRESS_BYTES:
        read(_ADDRESS_BYTES[kind] + 2)
        raise AddressAsked("an address instead of a name", Reply.BAD_ADDRESS)
    if kind != NAME:
        raise SocksFault("unknown kind of address", Reply.BAD_ADDRESS)
    untrusted_name, untrusted_port = read(read(1)[0]), read(2)
    if command != CONNECT:
        raise SocksFault("only CONNECT is spoken", Reply.BAD_COMMAND)
    port = int.from_bytes(untrusted_port)
    if port == 0:
        raise SocksFault("port 0", Reply.NOT_ALLOWED)
    return _host(untrusted_name), port


def _host(untrusted_name: bytes) -> str:
    try:
        return hosts.host(untrusted_name.decode("ascii"))
    except ValueError:  # BadHost and UnicodeDecodeError are both
        raise NoName("not a host name", Reply.NO_NAME) from None


def answer(reply: Reply) -> bytes:
    """Return the answer to a request. The bound address is nobody's business: always zeros."""
    return bytes([VERSION, reply, 0, V4, 0, 0, 0, 0, 0, 0])


def greeting() -> bytes:
    return bytes([VERSION, 1, NO_LOGIN])


def request(host: str, port: int) -> bytes:
    name = host.encode("ascii")
    return bytes([VERSION, CONNECT, 0, NAME, len(name)]) + name + port.to_bytes(2)


def read_method(read: Read) -> None:
    """Read the proxy's answer to our greeting. Raises SocksFault."""
    if read(2) != bytes([VERSION, NO_LOGIN]):
        raise SocksFault("the proxy wants a login")


def read_answer(read: Read) -> int:
    """Read the proxy's answer to our request; return its reply byte. Raises SocksFault."""
    version, reply, reserved, kind = read(4)
    if version != VERSION or reserved != 0 or kind not in _ADDRESS_BYTES:
        raise SocksFault("not an answer of our proxy")
    read(_ADDRESS_BYTES[kind] + 2)
    return int(reply)
