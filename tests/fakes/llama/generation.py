"""One completion of the fake server: a scripted reply -> the events that a real server would send.

The order of events, what shares a chunk, and which of them carry timings were copied from captured
streams; the contract suite holds them to the real server's.
"""

import json
import secrets
import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from tests.fakes.llama import text
from tests.fakes.llama.script import Reply
from tests.fakes.llama.slots import Slot, common_prefix

_LETTERS = string.ascii_letters + string.digits

Send = Callable[[bytes], None]
"""Sends one chunk; raises where the client has left."""

Wait = Callable[[float], None]
"""Lets time pass; raises where the client leaves meanwhile."""


class Vanished(Exception):
    """The script breaks the connection here."""


@attrs.frozen
class _Step:
    """One generated token, and what the client is told of it (None: nothing, as inside a tag)."""

    piece: str
    delta: Mapping[str, Any] | None
    reasoning: bool = False


def random_id(prefix: str = "") -> str:
    return prefix + "".join(secrets.choice(_LETTERS) for _ in range(32))


class Generation:
    """Runs in its request's thread; `end_reasoning` may be called from another."""

    def __init__(self, request: Mapping[str, Any], prompt: list[int], slot: Slot, reply: Reply, *, model: str) -> None:
        self.id = random_id("chatcmpl-")
        self._request, self._prompt, self._slot, self._reply, self._model = request, prompt, slot, reply, model
        self._generated = 0
        self._tokens: list[int] = []
        self._cache_n = self._read_n = 0
        self._role_sent = False
        self._stop_thinking = False
        self._finish = "stop"

    @property
    def controllable(self) -> bool:
        return self._request.get("reasoning_control") is True

    def end_reasoning(self) -> None:
        self._stop_thinking = True

    def run(self, *, n_batch: int, n_ctx: int, send: Send, wait: Wait) -> None:
        """Read the prompt, generate, finish. Raises Vanished, or what `send` and `wait` raise."""
        for piece in self._reply.raw:
            send(piece)
        if self._reply.raw:
            return
        self._read_prompt(n_batch=n_batch, send=send, wait=wait)
        try:
            whole = self._generate(n_ctx=n_ctx, send=send, wait=wait)
        finally:
            # The newest token is not in the cache yet: hence "one less than the total" on the next turn.
            self._slot.cached = self._prompt + self._tokens[:-1]
        if whole:
            send(self._ending())
            send(b"data: [DONE]\n\n")

    # -- the prompt ---------------------------------------------------------------------------

    def _read_prompt(self, *, n_batch: int, send: Send, wait: Wait) -> None:
        total = len(self._prompt)
        kept = common_prefix(self._slot.cached, self._prompt) if self._request.get("cache_prompt", True) else 0
        # At least one token is always computed: without it there is nothing to continue from.
        done = self._cache_n = min(kept, total - 1)
        self._slot.cached = self._prompt[:done]
        self._tell_progress(done, send)
        while done < total:
            wait(self._reply.batch_delay)
            done = min(total, done + n_batch)
            self._read_n = done - self._cache_n
            self._slot.cached = self._prompt[:done]
            self._tell_progress(done, send)

    def _tell_progress(self, done: int, send: Send) -> None:
        if self._request.get("return_progress"):
            progress = {"total": len(self._prompt), "cache": self._cache_n, "processed": done, "time_ms": 0}
            send(self._event(_ROLE, timed=self._timed, extra={"prompt_progress": progress}))

    # -- the reply ----------------------------------------------------------------------------

    def _generate(self, *, n_ctx: int, send: Send, wait: Wait) -> bool:
        """Send the tokens; False where the script ended the stream before its end."""
        limit = self._request.get("max_tokens")
        limit = max(1, limit) if type(limit) is int and limit >= 0 else n_ctx
        for step in self._steps():
            if self._ended_by_script(send, wait):
                return False
            wait(self._reply.token_delay)
            self._generated += 1
            self._tokens += text.tokenize(step.piece)
            self._tell(step, send)
            if self._generated >= limit or len(self._prompt) + self._generated >= n_ctx:
                self._finish = "stop" if step.piece == text.END else "length"
                break
        if self._ended_by_script(send, wait):
            return False
        if self._finish == "stop" and self._reply.calls:
            self._finish = "tool_calls"
        return True

    def _ended_by_script(self, send: Send, wait: Wait) -> bool:
        so_far = self._generated
        if self._reply.vanish_after == so_far:
            raise Vanished
        if self._reply.error_after == so_far:
            send(b"data: " + json.dumps({"error": dict(self._reply.error)}).encode() + b"\n\n")
            return True
        if self._reply.silent_after == so_far:
            wait(float("inf"))
        if self._reply.pause_after == so_far:
            self._reply.pause.reached.set()
            while not self._reply.pause.go_on.is_set():
                wait(0.01)  # raises where the client leaves
        return False

    def _tell(self, step: _Step, send: Send) -> None:
        first = b""
        if not self._role_sent:
            self._role_sent = True
            first = self._event(_ROLE, timed=self._timed and step.delta is None)
        event = self._event(step.delta, timed=self._timed) if step.delta is not None else b""
        if first or event:
            send(first + event)

    def _steps(self) -> Iterator[_Step]:
        yield from self._thinking()
        for piece in text.pieces(self._reply.text):
            yield _Step(piece, {"content": piece})
        for index, call in enumerate(self._reply.calls):
            if index or self._reply.text:
                yield _Step("\n", None)
            yield from _call_steps(index, call.name, call.arguments)
        yield _Step(text.END, None)

    def _thinking(self) -> Iterator[_Step]:
        if not self._reply.reasoning:
            return
        yield from (_Step(piece, None) for piece in text.pieces("<think>\n"))
        for piece in text.pieces(self._reply.reasoning):
            yield _Step(piece, {"reasoning_content": piece}, reasoning=True)
            if self._stop_thinking:
                break
        if self._stop_thinking:
            yield _Step("\n", None)
        else:
            yield _Step("\n", {"reasoning_content": "\n"}, reasoning=True)
        yield from (_Step(piece, None) for piece in text.pieces("</think>\n\n"))

    # -- events -------------------------------------------------------------------------------

    @property
    def _timed(self) -> bool:
        return self._request.get("timings_per_token") is True

    def _ending(self) -> bytes:
        options = self._request.get("stream_options") or {}
        with_usage = options.get("include_usage") is True
        end = self._event({}, timed=not with_usage, finish=self._finish)
        if not with_usage:
            return end
        prompt, generated = len(self._prompt), self._generated
        usage = {
            "completion_tokens": generated,
            "prompt_tokens": prompt,
            "total_tokens": prompt + generated,
            "prompt_tokens_details": {"cached_tokens": self._cache_n},
        }
        return end + self._event(None, timed=True, extra={"usage": usage})

    def _event(
        self,
        delta: Mapping[str, Any] | None,
        *,
        timed: bool,
        finish: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> bytes:
        choice = {"finish_reason": finish, "index": 0, "delta": delta}
        event = {
            "choices": [] if delta is None else [choice],
            "created": 1_700_000_000,
            "id": self.id,
            "model": self._model,
            "system_fingerprint": "fake",
            "object": "chat.completion.chunk",
            **(extra or {}),
            **({"timings": self._timings()} if timed else {}),
        }
        return b"data: " + json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"

    def _timings(self) -> dict[str, Any]:
        return {
            "cache_n": self._cache_n,
            "prompt_n": self._read_n,
            "prompt_ms": 1.5,
            "prompt_per_token_ms": 0.5,
            "prompt_per_second": 1e3 / 7,
            "predicted_n": self._generated,
            "predicted_ms": 0.001,
            "predicted_per_token_ms": 0.0,
            "predicted_per_second": 0.0,
        }


_ROLE: Mapping[str, Any] = {"role": "assistant", "content": None}


def _call_steps(index: int, name: str, arguments: str) -> Iterator[_Step]:
    """Nothing is told while the tag and the name are written; the whole name comes with the first of the arguments."""
    before, after = text.call_text(name, "\0").split("\0")
    yield from (_Step(piece, None) for piece in text.pieces(before))
    first: dict[str, Any] = {"index": index, "id": random_id(), "type": "function"}
    for piece in text.pieces(arguments) or [""]:
        function = {"name": name, "arguments": piece} if first else {"arguments": piece}
        yield _Step(piece, {"tool_calls": [{**(first or {"index": index}), "function": function}]})
        first = {}
    yield from (_Step(piece, None) for piece in text.pieces(after))
