"""What the model server serves: asked through inferproxy's socket, on the way that loopd's requests take.

So the launcher never dials out itself. The answer is the model server's, hence untrusted until parsed.
"""

import http.client
import json
import socket
from pathlib import Path

from bxcore import logs
from deploy.local.configs import Served

_SECONDS = 10.0


class Away(Exception):
    """Nobody answered. The text says what happened instead."""


class Loading(Exception):
    """The server is there and not ready yet."""


class NotLlama(Exception):
    """Something answered that is not llama.cpp's server."""


def ask(infer_socket: Path) -> Served:
    """Return what the server behind `infer_socket` says of itself. Raises Away, Loading or NotLlama."""
    connection = http.client.HTTPConnection("localhost", timeout=_SECONDS)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(_SECONDS)
        connection.sock.connect(str(infer_socket))
        connection.request("GET", "/props")
        answer = connection.getresponse()
        untrusted = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Away(f"no answer ({type(error).__name__})") from error
    finally:
        connection.close()
    if answer.status == 503:
        raise Loading
    if answer.status != 200:
        raise NotLlama(f"it answers /props with HTTP {answer.status}")
    return parse(untrusted)


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
    return Served(model=logs.escape(str(name)), n_ctx=n_ctx, slots=slots)
