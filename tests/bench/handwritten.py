"""The client that one would write by hand: a list of messages, sent again with every request. Nothing of loopd's.

It is what loopd is compared with: nobody who speaks to this server can have less read again.
"""

import json
from collections.abc import Sequence
from typing import Any

import requests

from loopd.baseline import Baseline
from tests.bench.cachecount import Request
from tests.bench.seed import Message
from tests.bench.sizes import Unmeasurable

STEPS = 24
TIMEOUT_SECONDS = 120


class HandWritten:
    """One conversation on one slot."""

    def __init__(self, url: str, *, slot: int, front: Baseline, messages: Sequence[Message], max_tokens: int) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._fields = {
            "id_slot": slot,
            "cache_prompt": True,
            "temperature": 0,
            "max_tokens": max_tokens,
            "tools": json.loads(front.tools),
        }
        self._messages = list(messages)
        self.requests: list[Request] = []
        """What each request cost."""

    def turn(self, text: str, results: Sequence[str]) -> None:
        """Say `text`, and answer the model's calls with `results` until it calls no more."""
        self._messages.append({"role": "user", "content": text})
        left = list(results)
        for _ in range(STEPS):
            reply = self._ask()
            self._messages.append(reply)
            if not reply.get("tool_calls"):
                return
            for call in reply["tool_calls"]:
                content = left.pop(0) if left else "no result"
                self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        raise Unmeasurable("the model called tools without end")

    def _ask(self) -> Message:
        answer = requests.post(self._url, json={**self._fields, "messages": self._messages}, timeout=TIMEOUT_SECONDS)
        if answer.status_code != 200:
            raise Unmeasurable(f"the model server answered HTTP {answer.status_code}: {answer.text[:200]}")
        said: dict[str, Any] = answer.json()
        timings = said["timings"]
        self.requests.append(
            Request(
                prompt=timings["cache_n"] + timings["prompt_n"],
                cached=timings["cache_n"],
                output=timings["predicted_n"],
            )
        )
        message: Message = said["choices"][0]["message"]
        return message
