"""What the server says of itself, in the right shape and in wrong ones."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from loopd import serverinfo
from loopd.modelfaults import ServerProtocol
from loopd.serverinfo import SlotState

PROPS: dict[str, Any] = {
    "default_generation_settings": {
        "params": {"temperature": 0.800000011920929, "top_p": 0.95, "top_k": 40, "samplers": ["top_k"]},
        "n_ctx": 4_096,
    },
    "total_slots": 2,
    "model_alias": "small",
    "model_path": "/models/small.gguf",
    "chat_template": "{{ '<|im_start|>' }}",
    "is_sleeping": False,
}


def without(name: str, **more: Any) -> dict[str, Any]:
    return {key: value for key, value in PROPS.items() if key != name} | more


def test_properties_are_read() -> None:
    props = serverinfo.props(PROPS)
    assert (props.n_ctx, props.total_slots, props.model) == (4_096, 2, "small")
    assert props.template_tags == ("<|im_start|>",)
    assert props.defaults == "temperature 0.8, top_p 0.95, top_k 40"


def test_the_hash_is_that_of_the_template_as_served() -> None:
    served = "{{ '<|im_start|>' }}"
    assert serverinfo.props(PROPS).template_sha256 == hashlib.sha256(served.encode()).hexdigest()


def test_a_model_without_an_alias_is_called_after_its_file() -> None:
    assert serverinfo.props(without("model_alias", model_alias=None)).model == "small.gguf"
    assert serverinfo.props({**without("model_alias"), "model_path": ""}).model == "unknown"


def test_defaults_that_are_not_shown_say_so() -> None:
    assert serverinfo.props({**PROPS, "default_generation_settings": {"n_ctx": 1}}).defaults == "not shown"


def test_slots_are_read_used_or_not() -> None:
    used = {"id": 1, "n_ctx": 8, "is_processing": True, "params": {"temperature": 0.5, "seed": 1}, "next_token": [{}]}
    assert serverinfo.slots([{"id": 0, "n_ctx": 8, "is_processing": False}, used]) == (
        SlotState(id=0, n_ctx=8, busy=False, sampling={}),
        SlotState(id=1, n_ctx=8, busy=True, sampling={"temperature": 0.5}),
    )


@pytest.mark.parametrize(
    "odd", [10**400, -(10**400), float("nan"), float("inf"), True, "1"], ids=lambda odd: str(odd)[:5]
)
def test_a_setting_that_is_no_number_is_not_shown(odd: object) -> None:
    params = {"temperature": odd, "top_k": 40}
    props = serverinfo.props({**PROPS, "default_generation_settings": {"params": params, "n_ctx": 1}})
    assert props.defaults == "top_k 40"
    (slot,) = serverinfo.slots([{"id": 0, "n_ctx": 8, "params": params}])
    assert slot.sampling == {"top_k": 40}


MISSHAPEN: dict[str, tuple[Callable[[Any], object], Any]] = {
    "no settings": (serverinfo.props, without("default_generation_settings")),
    "settings are a list": (serverinfo.props, {**PROPS, "default_generation_settings": []}),
    "no context": (serverinfo.props, {**PROPS, "default_generation_settings": {}}),
    "half a slot": (serverinfo.props, {**PROPS, "total_slots": 1.5}),
    "fewer than no slots": (serverinfo.props, {**PROPS, "total_slots": -1}),
    "more slots than there can be": (serverinfo.props, {**PROPS, "total_slots": 10**300}),
    "true slots": (serverinfo.props, {**PROPS, "total_slots": True}),
    "no template": (serverinfo.props, without("chat_template")),
    "a template that is no text": (serverinfo.props, {**PROPS, "chat_template": ["a"]}),
    "slots are an object": (serverinfo.slots, {"0": {}}),
    "slots that are not JSON": (serverinfo.slots, None),
    "a slot that is a number": (serverinfo.slots, [7]),
    "a slot without a number": (serverinfo.slots, [{"n_ctx": 8}]),
    "a slot numbered in words": (serverinfo.slots, [{"id": "0", "n_ctx": 8}]),
    "no tokens": (serverinfo.tokens, {}),
    "tokens are a text": (serverinfo.tokens, {"tokens": "12"}),
    "tokens with their pieces": (serverinfo.tokens, {"tokens": [{"id": 1, "piece": "a"}]}),
    "a true token": (serverinfo.tokens, {"tokens": [True]}),
    "no prompt": (serverinfo.prompt, {"prompt": None}),
}


@pytest.mark.parametrize(("read", "untrusted"), MISSHAPEN.values(), ids=MISSHAPEN.keys())
def test_a_misshapen_answer_is_the_servers_fault(read: Callable[[Any], object], untrusted: Any) -> None:
    with pytest.raises(ServerProtocol):
        read(untrusted)


def test_half_a_surrogate_in_a_template_is_hashed_like_anything_else() -> None:
    assert len(serverinfo.props({**PROPS, "chat_template": "\ud800"}).template_sha256) == 64


@pytest.mark.parametrize("raw", [b"", b"<html>", b'{"a":', b"\xff", b"[" * 100_000], ids=lambda raw: repr(raw[:6]))
def test_what_is_no_json_is_nothing(raw: bytes) -> None:
    assert serverinfo.loads(raw) is None
