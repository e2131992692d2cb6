"""What the real server refuses in a completion request, in its order and its words."""

import json
from collections.abc import Mapping
from typing import Any

from tests.fakes.llama import text

INVALID = "invalid_request_error"


class Refused(Exception):
    """The request ends here, with an HTTP status and the server's error object."""

    def __init__(self, status: int, message: str, kind: str = INVALID, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.error: Mapping[str, Any] = {"code": status, "message": message, "type": kind, **more}


def parse(untrusted: bytes) -> dict[str, Any]:
    """Return a request that the server would begin to serve. Raises Refused."""
    try:
        request = json.loads(untrusted)
    except ValueError as fault:
        said = f"[json.exception.parse_error.101] parse error at line 1, column 1: {type(fault).__name__}"
        raise Refused(400, said) from None
    if not isinstance(request, dict) or "messages" not in request:
        raise Refused(400, "'messages' is required")
    if not isinstance(request["messages"], list):
        raise Refused(400, "Expected 'messages' to be an array")
    _check_settings(request)
    choice = request.get("tool_choice", "auto")
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        raise Refused(400, f"Invalid tool_choice: {choice}")
    return request


def render(request: dict[str, Any]) -> str:
    """Return the prompt. Raises Refused."""
    generating = request.get("add_generation_prompt", True)
    try:
        return text.render(request["messages"], request.get("tools") or [], add_generation_prompt=generating)
    except text.BadArguments as fault:
        raise Refused(500, str(fault), "server_error") from None
    except text.CannotContinue as fault:
        raise Refused(400, str(fault)) from None


def check_length(tokens: int, n_ctx: int) -> None:
    """Raise Refused where the prompt leaves no room for a reply."""
    if tokens >= n_ctx:
        said = f"request ({tokens} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
        raise Refused(400, said, "exceed_context_size_error", n_prompt_tokens=tokens, n_ctx=n_ctx)


def _check_settings(request: dict[str, Any]) -> None:
    for name in ("temperature", "top_p", "top_k", "max_tokens"):
        value = request.get(name)
        if value is not None and type(value) not in (int, float):
            kind = {str: "string", list: "array", dict: "object", bool: "boolean"}[type(value)]
            raise Refused(400, f"Field '{name}': [json.exception.type_error.302] type must be number, but is {kind}")
    limit = request.get("max_tokens")
    if limit is not None and limit < -1:
        raise Refused(400, f"Field 'max_tokens': Value must be between -1 <= value <= 2147483647, but got {limit}")
