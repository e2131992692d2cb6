"""Names to addresses, and addresses to sockets: what the egress proxy does to the world. Decides nothing.

The only module of the tools that opens a socket to the internet; it runs in the proxy's container, never in a tool's.
"""

import socket
from collections.abc import Callable

Resolve = Callable[[str, int], tuple[str, ...]]
"""All addresses of a name, as text. Raises OSError where it has none, or where nobody answers."""

Dial = Callable[[str, int, float], socket.socket]
"""A connection to an address and port, within so many seconds. Raises OSError."""


class OwnAddress(OSError):
    """The address belongs to this machine."""


_LOOPBACK = ("127.0.0.1", "::1")


def resolve(host: str, port: int) -> tuple[str, ...]:
    """Ask the system's resolver, once. The final dot keeps search domains out; bytes keep IDNA out."""
    if host == "localhost" or host.endswith(".localhost"):
        return _LOOPBACK  # RFC 6761: what it always means, and no name server is to be asked
    found = socket.getaddrinfo(f"{host}.".encode("ascii"), port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def dial(address: str, port: int, seconds: float) -> socket.socket:
    """Connect to `address`, which is no name, unless it is one of this machine's own."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if _is_own(family, address, port):
        raise OwnAddress("an address of this machine")
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect((address, port))
    except OSError:
        connection.close()
        raise
    return connection


def _is_own(family: int, address: str, port: int) -> bool:
    """Whether the kernel would reach `address` from itself. Connecting a datagram socket sends nothing."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))
        return bool(probe.getsockname()[0] == address)
