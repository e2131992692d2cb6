"""The fake model's template and tokenizer.

The template is deploy/local/chatml-tools.jinja in Python; the contract suite compares the two. The
tokenizer is a toy, but like a real one it never joins across a message's end, so that a prompt
that begins with another has tokens that begin with the other's.
"""

import json
import re
import zlib
from typing import Any

SPECIAL = r"<\|[^|<>\s]{1,40}\|>|</?(?:think|tool_call|tool_response)>|\[/?INST\]"
END = "<|im_end|>"
_PIECES = r"[^\S\n]?\w+|\n|."


class BadArguments(Exception):
    """A stored call holds arguments that are not JSON."""


class CannotContinue(Exception):
    """The conversation ends in a message that the model cannot go on writing."""


def pieces(text: str, *, special: str = SPECIAL) -> list[str]:
    return re.findall(f"{special}|{_PIECES}" if special else _PIECES, text)


def tokenize(text: str, *, special: str = SPECIAL) -> list[int]:
    """Return the tokens; where `special` is empty, none is one for a tag."""
    return [zlib.crc32(piece.encode("utf-8", "surrogatepass")) for piece in pieces(text, special=special)]


def render(messages: list[dict[str, Any]], tools: list[Any], *, add_generation_prompt: bool = True) -> str:
    """Return the prompt. Raises BadArguments, CannotContinue."""
    first = messages[0] if messages else {}
    opening = (first.get("content") or "") if first.get("role") == "system" else ""
    out = [_opening(opening, tools)]
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            out.append(_assistant(message))
        elif message["role"] != "system" or index > 0:
            out.append(_block(message["role"], message.get("content") or ""))
    if messages and messages[-1]["role"] == "assistant":
        out[-1] = _continued(messages[-1])
    elif add_generation_prompt:
        out.append("<|im_start|>assistant\n")
    return "".join(out)


def call_text(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def _opening(text: str, tools: list[Any]) -> str:
    if not tools:
        return _block("system", text) if text else ""
    listed = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
    return _block(
        "system",
        (f"{text}\n\n" if text else "")
        + "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        + f"You are provided with function signatures within <tools></tools> XML tags:\n<tools>{listed}\n</tools>\n\n"
        + "For each function call, return a json object with function name and arguments "
        + "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
        + '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
    )


def _assistant(message: dict[str, Any]) -> str:
    text = message.get("content") or ""
    parts = (
        [f"<think>\n{message['reasoning_content'].strip(chr(10))}\n</think>\n\n"]
        if message.get("reasoning_content")
        else []
    )
    parts.append(text)
    for index, call in enumerate(message.get("tool_calls") or []):
        parts.append("\n" if text or index else "")
        parts.append(call_text(call["function"]["name"], _rendered_again(call["function"]["arguments"])))
    return _block("assistant", "".join(parts))


def _continued(message: dict[str, Any]) -> str:
    """The server takes an assistant message at the end for the beginning of the reply, and closes its thinking."""
    if message.get("tool_calls"):
        raise CannotContinue("Cannot continue an assistant message that contains tool calls.")
    thought = f"<think>\n{message.get('reasoning_content') or ''}\n</think>\n\n"
    return f"<|im_start|>assistant\n{thought}{message.get('content') or ''}"


def _rendered_again(arguments: Any) -> str:
    """The server parses the stored text and the template writes it anew: spacing is lost, order is kept."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as fault:
            raise BadArguments(f"Failed to parse tool call arguments as JSON: {fault}") from None
    return json.dumps(arguments, ensure_ascii=False)


def _block(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}{END}\n"
