"""What the server's own words mean for a turn."""

from typing import Any

import pytest

from bxcore.errors import UpstreamError
from loopd import modelfaults
from loopd.modelfaults import ContextFull, ModelLoading, RequestRefused, ServerAway, ServerLost, ServerRefused

TOO_LONG = {
    "code": 400,
    "message": "request (7531 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 7_531,
    "n_ctx": 4_096,
}
LOADING = {"code": 503, "message": "Loading model", "type": "unavailable_error"}

ANSWERS: dict[str, tuple[int, Any, type[UpstreamError]]] = {
    "loading": (503, {"error": LOADING}, ModelLoading),
    "loading, said by a router": (503, {"error": "model is loading"}, ModelLoading),
    "another 503": (503, {"error": {"message": "no slot available", "type": "x"}}, ServerAway),
    "too long": (400, {"error": TOO_LONG}, ContextFull),
    "too long, without sizes": (400, {"error": {"type": "exceed_context_size_error"}}, ContextFull),
    "any other request error": (400, {"error": {"message": "no", "type": "invalid_request_error"}}, RequestRefused),
    "a server error": (500, {"error": {"message": "no", "type": "server_error"}}, RequestRefused),
    "a page of a proxy": (502, None, ServerAway),
    "too many requests": (429, {"error": "slow down"}, ServerAway),
    "an error of another shape": (400, {"error": [1]}, RequestRefused),
    "no error at all": (404, {"detail": "x"}, ServerRefused),
    "a list": (500, [1], RequestRefused),
}


@pytest.mark.parametrize(("status", "said", "fault"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_http_error_means(status: int, said: Any, fault: type[UpstreamError]) -> None:
    assert type(modelfaults.from_answer(said, status=status)) is fault


def test_a_context_that_is_full_names_its_sizes() -> None:
    fault = modelfaults.from_answer({"error": TOO_LONG}, status=400)
    assert isinstance(fault, ContextFull)
    assert (fault.n_prompt, fault.n_ctx) == (7_531, 4_096)
    assert "7531 tokens, 4096 fit" in str(fault)


@pytest.mark.parametrize("sizes", [{"n_ctx": "4096"}, {"n_ctx": True}, {"n_ctx": -1}, {}], ids=str)
def test_a_size_that_is_no_size_is_left_out(sizes: dict[str, Any]) -> None:
    fault = modelfaults.from_answer({"error": {"type": "exceed_context_size_error", **sizes}}, status=400)
    assert isinstance(fault, ContextFull)
    assert fault.n_ctx is None


def test_a_refusal_keeps_its_status() -> None:
    fault = modelfaults.from_answer({"error": {"message": "no"}}, status=418)
    assert isinstance(fault, ServerRefused)
    assert fault.status == 418


EVENTS: dict[str, tuple[Any, type[UpstreamError]]] = {
    "both slots overran one cache": ({"error": {"message": "Context size has been exceeded."}}, ContextFull),
    "anything else": ({"error": {"message": "failed to decode"}}, ServerLost),
    "a text": ({"error": "failed to decode"}, ServerLost),
    "nothing readable": ({"error": 7}, ServerLost),
}


@pytest.mark.parametrize(("said", "fault"), EVENTS.values(), ids=EVENTS.keys())
def test_an_error_event_means(said: Any, fault: type[UpstreamError]) -> None:
    assert type(modelfaults.from_event(said)) is fault


def test_the_servers_words_are_quoted_on_one_line_and_cut() -> None:
    said = modelfaults.quote("one\ntwo\x1b[31m \u202e " + "x" * 500)
    assert said.startswith("one?two?[31m ? x")
    assert len(said) == 201


def test_every_fault_has_a_code_of_its_own() -> None:
    faults = [kind for kind in vars(modelfaults).values() if isinstance(kind, type) and issubclass(kind, UpstreamError)]
    alike = (UpstreamError, RequestRefused)  # a refusal of what was asked is shown as any other refusal
    codes = [kind.code for kind in faults if kind not in alike]
    assert len(codes) == len(set(codes)) > 8
