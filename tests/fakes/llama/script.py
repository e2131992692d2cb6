"""What a test tells the fake llama-server to say."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Call:
    """A tool call, its arguments as the model wrote them, valid or not."""

    name: str
    arguments: str = "{}"


@attrs.frozen(kw_only=True, eq=False)
class Pause:
    """A place in a reply: the server tells that it is there, and stays until it may go on."""

    reached: threading.Event = attrs.Factory(threading.Event)
    go_on: threading.Event = attrs.Factory(threading.Event)


@attrs.frozen(kw_only=True)
class Reply:
    """One completion. Delays in seconds: for each token, for each batch of the prompt.

    After so many generated tokens: `error_after` sends `error` in the stream and ends it,
    `vanish_after` breaks the connection, `silent_after` sends nothing more (0: before the first),
    `pause_after` stays at `pause` until the test lets it go on.
    `raw`, where it is given, is sent instead of any event, piece by piece.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    token_delay: float = 0.0
    batch_delay: float = 0.0
    error_after: int | None = None
    error: Mapping[str, Any] = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
    vanish_after: int | None = None
    silent_after: int | None = None
    pause_after: int | None = None
    pause: Pause = attrs.Factory(Pause)
    raw: tuple[bytes, ...] = ()


@attrs.frozen(kw_only=True)
class Refusal:
    """An error before the stream. `body` replaces the server's own shape of it."""

    status: int = 500
    message: str = "refused by the script"
    type: str = "server_error"
    body: bytes | None = None


@attrs.frozen(kw_only=True)
class Vanish:
    """The connection breaks instead of an answer."""


Answer = Reply | Refusal | Vanish
Script = Iterable[Answer] | Callable[[list[dict[str, Any]]], Answer]
