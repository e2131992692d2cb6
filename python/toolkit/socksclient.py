"""The way out of a tool's container: a connected socket to one host, through the proxy on a Unix socket.

There is no other way: the container has no network, and no name is looked up in it.
"""

import socket

from bxcore.hosts import Target
from toolkit import socks
from toolkit.order import ToolError
from toolkit.socks import Reply, SocksFault

_WORDS = {
    Reply.NOT_ALLOWED: "the egress proxy refused: this host and port are not what was granted",
    Reply.NOT_PUBLIC: "the egress proxy refused: the name leads to an address that is not on the public internet",
    Reply.NO_NAME: "the egress proxy refused: that is no host name",
    Reply.BAD_ADDRESS: "the egress proxy refused: host names only, no addresses",
    Reply.UNREACHABLE: "the host has no address, or cannot be reached",
}


def connect(proxy: str, target: Target, seconds: float) -> socket.socket:
    """Return a connection to `target`. Raises ToolError where the proxy refuses, OSError where it is away."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(proxy)
        _ask(connection, target)
    except BaseException:
        connection.close()
        raise
    return connection


def _ask(connection: socket.socket, target: Target) -> None:
    def read(count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = connection.recv(count - len(found))
            if not piece:
                raise ConnectionError("the egress proxy ended the connection")
            found += piece
        return found

    try:
        connection.sendall(socks.greeting())
        socks.read_method(read)
        connection.sendall(socks.request(target.host, target.port))
        reply = socks.read_answer(read)
    except SocksFault as fault:
        raise ConnectionError(str(fault)) from None
    if reply != Reply.DONE:
        raise ToolError(_WORDS.get(Reply(reply), "the egress proxy refused") if reply in set(Reply) else "refused")
