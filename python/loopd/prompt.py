"""Records -> the messages of the next request, as bytes. Pure; the inference contract lives here.

Invariant (INV-5): messages are only ever appended, so the bytes of a request are those of the
last request that the server accepted, less the closing "]}", and more. The one exception takes
back messages that the server refused to read at all (TurnEnd.dropped).
"""

import json
from collections.abc import Sequence
from typing import Any

from bxcore.sessionrecords import Assistant, Nudge, Record, ToolCall, ToolResult, TurnEnd, TurnStart, User


def _bytes(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


class Prompt:
    """The conversation so far as the server will be shown it. Not thread-safe: its session guards it."""

    def __init__(self, system: str) -> None:
        self._messages = [_bytes({"role": "system", "content": system})]
        self._waiting: dict[str, str] = {}
        self._turn_first = 1
        self._last_role = "system"

    def add(self, record: Record) -> None:
        """Take one record in; kinds that the model does not read change nothing."""
        match record:
            case User():
                self._waiting[record.key] = record.content
            case TurnStart():
                self._turn_first = len(self._messages)
                self._append("user", content="\n\n".join(self._waiting.pop(key, "") for key in record.keys))
            case Nudge():
                self._append("user", content=record.content)
            case Assistant():
                self._append_assistant(record)
            case ToolResult():
                self._append("tool", tool_call_id=record.tool_call_id, content=record.content)
            case TurnEnd():
                self._end(record)
            case _:
                pass

    @property
    def messages(self) -> Sequence[bytes]:
        """Each message as the bytes that are sent."""
        return self._messages

    @property
    def waiting_bytes(self) -> int:
        """Size of the messages that no turn has taken up yet, in bytes of UTF-8."""
        return sum(len(text.encode()) for text in self._waiting.values())

    def body(self, head: bytes) -> bytes:
        """Return the request: `head` (which ends in `"messages":[`), the messages, `]}`."""
        return head + b",".join(self._messages) + b"]}"

    def _append(self, role: str, **fields: Any) -> None:
        self._messages.append(_bytes({"role": role, **fields}))
        self._last_role = role

    def _append_assistant(self, record: Assistant) -> None:
        # "" and null render alike next to calls, and a bare null without calls is refused by some templates.
        fields: dict[str, Any] = {"content": record.content or ""}
        if record.reasoning_content is not None:
            fields["reasoning_content"] = record.reasoning_content
        if record.tool_calls:
            fields["tool_calls"] = [_call(call) for call in record.tool_calls]
        self._append("assistant", **fields)

    def _end(self, record: TurnEnd) -> None:
        if record.dropped:
            del self._messages[self._turn_first :]
            self._last_role = "assistant"
        elif self._last_role != "assistant":
            # Owner and assistant must alternate (several templates refuse anything else), and the
            # model should know why there is no answer.
            self._append("assistant", content=f"[{record.sentence or 'No answer was given.'}]")


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
