"""What the model server serves: asked through inferproxy's socket, on the way that loopd's requests take.

So the launcher never dials out itself. The answer is the model server's, or of whoever took inferproxy over: untrusted
until parsed. Invariant: an answer takes no more than MOST_BYTES of it and no more time than SECONDS, all in all.
"""

import http.client
import io
import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bxcore import logs
from deploy.local.configs import Served

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_BYTES = 1_048_576
"""Of one answer, its head included. A server with a long chat template says some ten thousand."""
SECONDS = 10.0
_REQUEST = b"GET /props HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: identity\r\n\r\n"
_NAME_CHARACTERS = 200


class Away(Exception):
    """Nobody answered. The text says what happened instead."""


class Loading(Exception):
    """The server is there and not ready yet."""


class NotLlama(Exception):
    """Something answered that is not llama.cpp's server."""


def ask(infer_socket: Path, *, seconds: float = SECONDS) -> Served:
    """Return what the server behind `infer_socket` says of itself. Raises Away, Loading or NotLlama."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            until = time.monotonic() + seconds
            connection.settimeout(seconds)
            connection.connect(str(infer_socket))
            connection.sendall(_REQUEST)
            status, untrusted = _answer(connection, until)
    except (OSError, http.client.HTTPException) as error:
        raise Away(f"no answer ({type(error).__name__})") from error
    except ValueError as error:
        raise NotLlama("its answer to /props is not HTTP") from error
    if status == 503:
        raise Loading
    if status != 200:
        raise NotLlama(f"it answers /props with HTTP {status}")
    return parse(untrusted)


def _answer(connection: socket.socket, until: float) -> tuple[int, bytes]:
    with http.client.HTTPResponse(connection, method="GET") as answer:
        answer.fp.close()
        answer.fp = io.BufferedReader(_Bounded(connection, until))
        answer.begin()
        # Not without a number: then it would make room for whatever length the answer claims to have.
        return answer.status, answer.read(MOST_BYTES)


class _Bounded(io.RawIOBase):
    """What comes from a socket, until a point in time and up to MOST_BYTES. Raises TimeoutError or NotLlama."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._until = until
        self._left = MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if (seconds := self._until - time.monotonic()) <= 0:
            raise TimeoutError
        self._connection.settimeout(seconds)
        count = self._connection.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise NotLlama(f"its answer to /props is longer than {MOST_BYTES} bytes")
        return count


def parse(untrusted: bytes) -> Served:
    """Return what a body of /props says. Raises NotLlama."""
    try:
        props = json.loads(untrusted)
        n_ctx, slots = props["default_generation_settings"]["n_ctx"], props["total_slots"]
        name = props.get("model_alias") or Path(str(props.get("model_path", ""))).name
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NotLlama(f"its /props is not llama.cpp's ({type(error).__name__})") from error
    if type(n_ctx) is not int or type(slots) is not int or n_ctx < 1 or slots < 1:
        raise NotLlama("its /props names no context size or no slots; a router with no model loaded does so")
    return Served(model=logs.escape(str(name)[:_NAME_CHARACTERS]), n_ctx=n_ctx, slots=slots)
