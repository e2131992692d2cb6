"""The server name that a TLS client asks for, out of its first bytes (RFC 8446, RFC 6066). Pure.

Read by the egress proxy alone, which refuses a name other than the granted one. It decrypts nothing, and it
cannot see the Host header behind the encryption: on a host shared by many, that stays the client's word.
"""

MOST = 16_384
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


class NotYet(Exception):
    """More bytes are needed to tell."""


class NoHello(Exception):
    """It begins like TLS, and is no ClientHello that we can read."""


class _Reader:
    """A cursor over bytes. `end` is raised where they are over."""

    def __init__(self, data: bytes, end: type[Exception]) -> None:
        self._data, self._at, self._end = data, 0, end

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise self._end
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def block(self, size: int) -> bytes:
        """Return what stands behind its own length of `size` bytes."""
        return self.take(self.number(size))

    @property
    def over(self) -> bool:
        return self._at == len(self._data)


def is_tls(start: bytes) -> bool:
    """Whether a stream that begins with `start` (one byte or more) is TLS."""
    return start[:1] == bytes([_HANDSHAKE])


def server_name(start: bytes) -> bytes | None:
    """Return the one name asked for, None where none is. Raises NotYet or NoHello."""
    extensions = _Reader(_extensions(_hello(start)), NoHello)
    found: bytes | None = None
    while not extensions.over:
        kind, body = extensions.number(2), extensions.block(2)
        if kind == _SERVER_NAME:
            if found is not None:
                raise NoHello
            found = _only_name(body)
    return found


def _hello(start: bytes) -> bytes:
    """Return the body of the ClientHello, which may lie in several records."""
    records, message = _Reader(start, NotYet), b""
    while True:
        if records.number(1) != _HANDSHAKE or records.number(1) != 3:
            raise NoHello
        records.take(1)
        size = records.number(2)
        if not 0 < size <= MOST:
            raise NoHello
        message += records.take(size)
        if message[0] != _CLIENT_HELLO:
            raise NoHello
        if len(message) >= 4:
            length = int.from_bytes(message[1:4])
            if length > MOST:
                raise NoHello
            if len(message) >= 4 + length:
                return message[4 : 4 + length]


def _extensions(hello: bytes) -> bytes:
    reader = _Reader(hello, NoHello)
    reader.take(2 + 32)
    reader.block(1)
    reader.block(2)
    reader.block(1)
    return b"" if reader.over else reader.block(2)


def _only_name(body: bytes) -> bytes:
    names = _Reader(_Reader(body, NoHello).block(2), NoHello)
    kind, name = names.number(1), names.block(2)
    if kind != _HOST_NAME or not names.over:
        raise NoHello
    return name
