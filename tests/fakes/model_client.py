"""loopd's model client pointed at the fake server, and an ear for what it says while it waits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bxcore.deadline import SystemClock
from bxcore.wire.channel import WaitReason
from loopd.cancel import CancelToken
from loopd.llama import ModelServer
from loopd.stream import Assembler, Completion, Delta
from loopd.waits import Waits
from tests.fakes.llama_server import FakeLlama

HELLO = [{"role": "user", "content": "Hello."}]
FIELDS = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_progress": True,
    "timings_per_token": True,
    "reasoning_control": True,
    "id_slot": 0,
}


def client(fake: FakeLlama, *, model: str = "", **waits: int) -> ModelServer:
    assert isinstance(fake.where, Path)
    return ModelServer(fake.where, clock=SystemClock(), waits=Waits(**waits), model=model)


def body(messages: Any = HELLO, **more: Any) -> bytes:
    return json.dumps({**FIELDS, **more, "messages": messages}).encode()


class Told:
    """Takes what on_wait says; may act when it is told something."""

    def __init__(self, act: Callable[[WaitReason], None] = lambda _: None) -> None:
        self.reasons: list[WaitReason] = []
        self.limits: list[int] = []
        self._act = act

    def __call__(self, reason: WaitReason, waited_ms: int, limit_ms: int) -> None:
        assert 0 <= waited_ms <= limit_ms
        self.reasons.append(reason)
        self.limits.append(limit_ms)
        self._act(reason)


def read(
    server: ModelServer, request: bytes | None = None, *, cancel: CancelToken | None = None, told: Told | None = None
) -> list[Delta]:
    return list(server.stream(request or body(), cancel=cancel or CancelToken(), on_wait=told or Told()))


def assembled(found: list[Delta]) -> Completion:
    assembler = Assembler()
    for delta in found:
        assembler.feed(delta)
    return assembler.finish()
