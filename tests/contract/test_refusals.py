"""How the server says no before a stream begins: HTTP status, type and words, never an event."""

from typing import Any

import pytest

from tests.contract.peer import STREAM, Peer, assistant, fresh, user

INVALID = "invalid_request_error"


def with_call(arguments: str) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "c1", "content": "noon"}
    return [user("What time is it?"), assistant("", tool_calls=[call]), result]


REFUSED: dict[str, tuple[Any, int, str, str]] = {
    "no messages": ({"stream": True}, 400, INVALID, "'messages' is required"),
    "messages are no list": ({"messages": 3}, 400, INVALID, "Expected 'messages' to be an array"),
    "temperature is a text": (
        {"messages": fresh(), "temperature": "hot"},
        400,
        INVALID,
        "Field 'temperature': [json.exception.type_error.302] type must be number, but is string",
    ),
    "a negative limit": (
        {"messages": fresh(), "max_tokens": -5},
        400,
        INVALID,
        "Field 'max_tokens': Value must be between -1 <= value <= 2147483647, but got -5",
    ),
    "no JSON": (b'{"a', 400, INVALID, "[json.exception.parse_error.101] parse error"),
    "another tool choice": (
        {"messages": fresh(), "tools": [], "tool_choice": "maybe"},
        400,
        INVALID,
        "Invalid tool_choice: maybe",
    ),
    "calls at the end": ({"messages": with_call("{}")[:2]}, 400, INVALID, "Cannot continue an assistant message"),
    # The client is at fault, but the server says 500: a broken call in the history wedges a session
    # for ever, unless it is never stored (statement 27 of our list of neighbours' faults).
    "a stored call that was cut off": (
        {"messages": with_call('{"a":')},
        500,
        "server_error",
        "Failed to parse tool call arguments as JSON",
    ),
    "a stored call with no arguments": (
        {"messages": with_call("")},
        500,
        "server_error",
        "Failed to parse tool call arguments as JSON",
    ),
}


@pytest.mark.parametrize(("sent", "status", "kind", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_the_server_refuses(peer: Peer, sent: Any, status: int, kind: str, words: str) -> None:
    body = sent if isinstance(sent, bytes) else {**STREAM, **sent} if "messages" in sent else sent
    got, answer = peer.ask("POST", "/v1/chat/completions", body)
    assert (got, answer["error"]["code"], answer["error"]["type"]) == (status, status, kind)
    assert answer["error"]["message"].startswith(words)


def test_a_prompt_that_does_not_fit_is_refused_with_its_size(peer: Peer) -> None:
    n_ctx = peer.client().props().n_ctx
    status, answer = peer.ask("POST", "/v1/chat/completions", {**STREAM, "messages": fresh("word " * (n_ctx + 200))})
    error = answer["error"]
    assert (status, error["type"], error["n_ctx"]) == (400, "exceed_context_size_error", n_ctx)
    assert error["n_prompt_tokens"] > n_ctx


def test_an_unknown_path_is_not_found(peer: Peer) -> None:
    status, answer = peer.ask("GET", "/no/such/path")
    assert (status, answer["error"]["type"]) == (404, "not_found_error")


CONTROL: dict[str, tuple[dict[str, str], int, str]] = {
    "a completion that does not run": ({"id": "chatcmpl-no", "action": "reasoning_end"}, 200, "no active completion"),
    "another action": ({"id": "chatcmpl-no", "action": "reasoning_begin"}, 400, "unknown control action"),
    "no id": ({"action": "reasoning_end"}, 400, "missing completion id"),
}


@pytest.mark.parametrize(("order", "status", "words"), CONTROL.values(), ids=CONTROL.keys())
def test_a_control_order_is_refused(peer: Peer, order: dict[str, str], status: int, words: str) -> None:
    got, answer = peer.ask("POST", "/v1/chat/completions/control", order)
    assert got == status
    assert answer.get("success", False) is False
    assert (answer.get("message") or answer["error"]["message"]).startswith(words)
