"""The frozen front of an epoch: system prompt, tool schemas, sampling. Made once, kept beside the log.

A session reads its baseline back from disk, so an edit of the prompt, the tools or the sampling
settings touches only sessions that start later: what a server has cached stays cached (INV-5).
"""

import hashlib
import json
from importlib import resources

import attrs

from bxcore import convert, sanitize, strictjson
from bxcore.errors import BadMessage, StateError
from bxcore.ids import Hash32
from bxcore.settings.loopd import Sampling

FORMAT = 1

_PING_SECONDS = 5
"""The server's own interval is as long as loopd waits for a byte: a slow batch would look like a dead server."""


class BaselineChanged(StateError):
    """The baseline file is not the one that the session was started with."""

    code = "session_damaged"


@attrs.frozen(kw_only=True)
class Baseline:
    """`tools` and `sampling` are JSON texts, sent exactly as stored; `sampling` lacks its braces."""

    format: int
    system: str
    tools: str
    sampling: str

    def to_bytes(self) -> bytes:
        """The content of the baseline file."""
        return strictjson.dumps(convert.unstructure(self)) + b"\n"

    def head(self, *, slot: int, model: str) -> bytes:
        """The request up to and including `"messages":[`. Messages come last, so that requests extend."""
        name = f'"model":{json.dumps(model)},' if model else ""
        return (
            f'{{{name}"id_slot":{slot},"stream":true,"stream_options":{{"include_usage":true}},'
            f'"return_progress":true,"timings_per_token":true,"reasoning_control":true,"cache_prompt":true,'
            f'"sse_ping_interval":{_PING_SECONDS},'
            f'{self.sampling},"tools":{self.tools},"messages":['
        ).encode()


def make(*, sampling: Sampling, tools: str, memory: str = "") -> Baseline:
    """Return the baseline that a session started now would get. `memory` comes from outside."""
    system = resources.files("loopd").joinpath("system.md").read_text(encoding="utf-8").strip()
    if memory:
        system = f"{system}\n\n{sanitize.neutralise(memory)}"
    return Baseline(format=FORMAT, system=system, tools=tools, sampling=_sampling_text(sampling))


def hash_of(content: bytes) -> Hash32:
    """SHA-256 of a baseline file's bytes."""
    return Hash32(hashlib.sha256(content).hexdigest())


def read(content: bytes, *, expected: Hash32) -> Baseline:
    """Return the baseline stored as `content`, or raise BaselineChanged."""
    if hash_of(content) != expected:
        raise BaselineChanged("the baseline file differs from the one this session was started with; restore it")
    try:
        front = convert.structure(strictjson.loads(content.rstrip(b"\n")), Baseline)
    except BadMessage as fault:
        raise BaselineChanged(f"the baseline file cannot be read by this version: {fault.detail}") from fault
    if front.format > FORMAT:
        raise BaselineChanged(f"the baseline file was written by a newer version (format {front.format})")
    return front


def _sampling_text(sampling: Sampling) -> str:
    return (
        f'"temperature":{sampling.temperature:f},"top_p":{sampling.top_p:f},'
        f'"top_k":{sampling.top_k},"max_tokens":{sampling.max_tokens}'
    )
