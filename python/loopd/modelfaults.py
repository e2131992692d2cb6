"""Every way in which a request to the model server can fail, and how the server's words map to them. Pure.

All are UpstreamError: time, or whoever runs the server, can mend them. Messages quote the server
only where it explains a refusal, cut short and on one line.
"""

import re

from bxcore.errors import UpstreamError

_LONGEST_QUOTE = 200
_PASSING = frozenset({429, 502, 503, 504})
"""What a router or gateway says of a server that it cannot reach just now; none has read the request."""


class Cancelled(UpstreamError):
    """The owner stopped the turn; nothing is wrong with the server."""

    code = "cancelled"


class SlotBusy(UpstreamError):
    """Another client held the slot for as long as we may wait."""

    code = "slot_busy"


class ModelLoading(UpstreamError):
    """The server is there but its model is not loaded yet."""

    code = "model_loading"


class ServerSilent(UpstreamError):
    """Connected, but no byte for too long."""

    code = "server_silent"


class ServerAway(UpstreamError):
    """Nobody took the request."""

    code = "server_away"


class ServerLost(ServerAway):
    """The reply ended before it was complete: the connection broke, or the server gave up."""

    code = "server_lost"


class ServerProtocol(UpstreamError):
    """The server said something that is not its protocol."""

    code = "server_protocol"


class ServerRefused(UpstreamError):
    """The server read the request and said no. `status` is its HTTP status."""

    code = "server_refused"

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class RequestRefused(ServerRefused):
    """Refused for what the request holds: it would be refused in the same way for ever."""


class ModelChanged(UpstreamError):
    """The server serves something else than what was tested, and does not pass the tests."""

    code = "model_changed"


class ContextFull(UpstreamError):
    """The conversation does not fit the slot. Sizes in tokens; None where the server did not say."""

    code = "context_full"

    def __init__(self, message: str, *, n_prompt: int | None, n_ctx: int | None) -> None:
        super().__init__(message)
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx


_OF_CONTENT = frozenset({400, 413, 422, 500})
"""500 too: llama-server answers it to arguments and templates that it cannot make sense of."""

_NOT_NOW = frozenset({408, 425, 429, 502, 503, 504})
"""What a server, or something in front of it, says when the same request may well be taken a little later."""


def from_answer(untrusted: object, *, status: int) -> UpstreamError:
    """Return the fault that an HTTP error with this JSON body means."""
    kind, said, error = _error_of(untrusted)
    # Not any 503: a server may use it for other refusals, and only this one is mended by waiting.
    if status == 503 and (kind == "unavailable_error" or "loading" in said.lower()):
        return ModelLoading("the model server is still loading its model")
    if _means_full(kind, said):
        return _context_full(error)
    because = f": {quote(said)}" if said else " without saying why"
    answer = f"the model server answered HTTP {status}{because}"
    if status in _NOT_NOW:
        return ServerAway(answer)
    refusal = RequestRefused if status in _OF_CONTENT else ServerRefused
    return refusal(answer, status=status)


def from_event(untrusted: object) -> UpstreamError:
    """Return the fault that an error event in the middle of a stream means. No refusal: reading had begun."""
    kind, said, error = _error_of(untrusted)
    if _means_full(kind, said):
        return _context_full(error)
    because = f": {quote(said)}" if said else " without saying why"
    return ServerLost(f"the model server gave up in the middle of its reply{because}")


def quote(untrusted_text: str) -> str:
    """Return the server's words fit for a log line: one line, printable, at most 200 characters."""
    shown = re.sub(r"[^\x20-\x7e\u00a1-\u1fff\u2c00-\ud7ff]", "?", untrusted_text)
    return shown if len(shown) <= _LONGEST_QUOTE else shown[:_LONGEST_QUOTE] + "…"


def _error_of(untrusted: object) -> tuple[str, str, dict[str, object]]:
    """Return (type, message, all fields) of `{"error": …}`; empty where something is missing or misshapen."""
    error = untrusted.get("error") if isinstance(untrusted, dict) else None
    if isinstance(error, str):
        return "", error, {}
    if not isinstance(error, dict):
        return "", "", {}
    return _text(error.get("type")), _text(error.get("message")), error


def _means_full(kind: str, said: str) -> bool:
    return kind == "exceed_context_size_error" or said.lower().startswith("context size has been exceeded")


def _context_full(error: dict[str, object]) -> ContextFull:
    n_prompt, n_ctx = _count(error.get("n_prompt_tokens")), _count(error.get("n_ctx"))
    sizes = f": {n_prompt} tokens, {n_ctx} fit" if n_prompt is not None and n_ctx is not None else ""
    return ContextFull(f"the request is too long for the server's context{sizes}", n_prompt=n_prompt, n_ctx=n_ctx)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
