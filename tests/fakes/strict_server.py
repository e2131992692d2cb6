"""What a strict server and a strict template refuse in a request. Pure; for requests that loopd made.

The rules of llama.cpp (arguments are parsed again, out-of-range numbers are an error) together with those
of the templates that insist on their order of roles.
"""

import json
import math
from typing import Any


def complaints(body: bytes) -> list[str]:
    """Return what is wrong with a request; empty where any server would take it."""
    request = json.loads(body.decode(), object_pairs_hook=_no_duplicates)
    messages = request["messages"]
    found = [] if messages[0]["role"] == "system" else ["no system prompt first"]
    open_calls: list[str] = []
    before = "assistant"  # the owner speaks first
    for place, message in enumerate(messages[1:], 1):
        role = message["role"]
        if role == "tool":
            found += _answered(message, open_calls, place)
            continue
        if open_calls:
            found.append(f"message {place}: {len(open_calls)} calls before it have no result")
        if role == "user" and before == "user":
            found.append(f"message {place}: the owner spoke twice")
        if role == "assistant" and before == "assistant" and messages[place - 1]["role"] != "tool":
            found.append(f"message {place}: the assistant spoke twice")
        if not isinstance(message["content"], str):
            found.append(f"message {place}: content is no text")
        calls = message.get("tool_calls", [])
        found += [f"message {place}: {fault}" for call in calls for fault in _call_faults(call)]
        open_calls = [call["id"] for call in calls]
        before = role
    if open_calls:
        found.append(f"{len(open_calls)} calls have no result")
    return found


def _answered(message: dict[str, Any], open_calls: list[str], place: int) -> list[str]:
    if message["tool_call_id"] not in open_calls:
        return [f"message {place}: a result for no open call"]
    open_calls.remove(message["tool_call_id"])
    return []


def _call_faults(call: dict[str, Any]) -> list[str]:
    try:
        value = json.loads(call["function"]["arguments"], parse_int=_number, parse_float=_number, parse_constant=_no)
    except ValueError as fault:
        return [f"arguments that a server cannot parse: {fault}"]
    if not isinstance(value, dict):
        return ["arguments that are no object"]
    return [] if call["id"] and call["function"]["name"] else ["a call without id or name"]


def _number(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError("number overflow")
    return value


def _no(text: str) -> float:
    raise ValueError(text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a repeated key")
    return dict(pairs)
