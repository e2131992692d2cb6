"""What the server says of itself: the answers of /props, /slots, /tokenize, /apply-template -> types. Pure.

The JSON is a third party's: unknown fields are ignored, a field that we need and that is missing or of
another type is ServerProtocol.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import attrs

from bxcore import sanitize
from bxcore.ids import MAX_SAFE_INTEGER
from loopd.modelfaults import ServerProtocol

_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
_LONGEST_NAME = 200
_MOST = 1_000_000_000
"""Slots, or tokens of a context."""


@attrs.frozen(kw_only=True)
class Props:
    """What is served. `model` is its alias or file name, `defaults` its sampling, for the eye.

    `template_tags`: the markers that stand in its chat template, special tokens among them.
    """

    template_sha256: str
    template_tags: tuple[str, ...]
    n_ctx: int
    total_slots: int
    model: str
    defaults: str


@attrs.frozen(kw_only=True)
class SlotState:
    """One slot. `sampling` is that of its newest request; empty where the server shows none."""

    id: int
    n_ctx: int
    busy: bool
    sampling: Mapping[str, float]


def loads(untrusted: bytes) -> object:
    """Return what JSON says, or None where it is none: an error may come as a page of a proxy's own."""
    try:
        value: object = json.loads(untrusted.decode())
    except (ValueError, RecursionError):
        return None
    return value


def props(untrusted: Mapping[str, Any]) -> Props:
    """Read the answer of /props."""
    defaults = _table(untrusted, "default_generation_settings")
    # The served text, not the file's: the server drops a trailing newline.
    template = _string(untrusted, "chat_template")
    return Props(
        template_sha256=hashlib.sha256(template.encode("utf-8", "replace")).hexdigest(),
        template_tags=sanitize.tags_in_template(template),
        n_ctx=_count(defaults, "n_ctx"),
        total_slots=_count(untrusted, "total_slots"),
        model=_name(untrusted.get("model_alias") or PurePath(str(untrusted.get("model_path") or "unknown")).name),
        defaults=shown(_sampling(defaults)),
    )


def slots(untrusted: object) -> tuple[SlotState, ...]:
    """Read the answer of /slots."""
    if not isinstance(untrusted, list):
        raise ServerProtocol("the server's /slots is not a list")
    return tuple(_slot(item) for item in untrusted)


def tokens(untrusted: Mapping[str, Any]) -> tuple[int, ...]:
    """Read the answer of /tokenize."""
    found = untrusted.get("tokens")
    if not isinstance(found, list) or any(type(token) is not int for token in found):
        raise ServerProtocol("the answer to /tokenize holds no list of tokens")
    return tuple(found)


def prompt(untrusted: Mapping[str, Any]) -> str:
    """Read the answer of /apply-template."""
    return _string(untrusted, "prompt")


def shown(sampling: Mapping[str, float]) -> str:
    """Return sampling settings in words, for the eye."""
    return ", ".join(f"{name} {value:.4g}" for name, value in sampling.items()) or "not shown"


def _name(untrusted: object) -> str:
    return str(untrusted).encode("utf-8", "replace").decode()[:_LONGEST_NAME]


def _slot(untrusted: object) -> SlotState:
    if not isinstance(untrusted, dict):
        raise ServerProtocol("the server's /slots holds something else than slots")
    return SlotState(
        id=_count(untrusted, "id"),
        n_ctx=_count(untrusted, "n_ctx"),
        busy=untrusted.get("is_processing") is True,
        sampling=_sampling(untrusted),
    )


def _sampling(untrusted: Mapping[str, Any]) -> Mapping[str, float]:
    params = untrusted.get("params")
    known = params if isinstance(params, dict) else {}
    return {name: float(known[name]) for name in _SAMPLING if _is_finite(known.get(name))}


def _is_finite(value: object) -> bool:
    """Say whether a float can hold it: json reads NaN, and whole numbers of any length."""
    if type(value) is int:
        return abs(value) <= MAX_SAFE_INTEGER
    return type(value) is float and math.isfinite(value)


def _table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name)
    if not isinstance(value, dict):
        raise ServerProtocol(f"the server's {name} is not an object")
    return value


def _string(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    if not isinstance(value, str):
        raise ServerProtocol(f"the server's {name} is not a text")
    return value


def _count(table: Mapping[str, Any], name: str) -> int:
    value = table.get(name)
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ServerProtocol(f"the server's {name} is not a count")
    return value
