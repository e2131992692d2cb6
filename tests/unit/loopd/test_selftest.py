"""The start-up checks against a fake server that is wrong in one thing at a time."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from bxcore.deadline import SystemClock
from bxcore.errors import UpstreamError
from bxcore.settings.loopd import Expect, Infer, Listen, LoopdSettings, Sampling, Slots
from loopd import baseline, selftest
from loopd.baseline import Baseline
from loopd.cancel import CancelToken
from loopd.llama import ModelServer
from loopd.modelfaults import Cancelled, ModelLoading, ServerAway, ServerSilent, SlotBusy
from loopd.selftest import Check
from loopd.waits import Waits
from tests.fakes.llama_server import Call, FakeLlama, Refusal, Reply

CLOCK_CALL = Reply(calls=(Call(name="clock"),))
DONE = Reply(text="Done 3.")
TOOLS = (
    '[{"type":"function","function":{"name":"clock","description":"Tell the time.",'
    '"parameters":{"type":"object","properties":{}}}}]'
)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def fake() -> Iterator[FakeLlama]:
    with tempfile.TemporaryDirectory(prefix="bxm") as name, FakeLlama(Path(name) / "m.sock") as fake:
        fake.say(CLOCK_CALL, DONE)
        yield fake


def settings(fake: FakeLlama) -> LoopdSettings:
    assert isinstance(fake.where, Path)
    return LoopdSettings(
        state=Path("/nowhere"),
        listen=Listen(owner=Path("/nowhere")),
        infer=Infer(socket=fake.where),
        expect=Expect(n_ctx=fake.n_ctx),
        sampling=Sampling(temperature=Decimal("0.55")),
    )


def front(chosen: LoopdSettings) -> Baseline:
    return baseline.make(sampling=chosen.sampling, tools=TOOLS)


def run(fake: FakeLlama, chosen: LoopdSettings | None = None, **waits: int) -> dict[str, Check]:
    chosen = chosen or settings(fake)
    server = ModelServer(chosen.infer.socket, clock=SystemClock(), waits=Waits(**waits), model=chosen.infer.model)
    return {check.name: check for check in selftest.run(server, settings=chosen, baseline=front(chosen))}


def failed(checks: Mapping[str, Check]) -> dict[str, Check]:
    return {name: check for name, check in checks.items() if not check.passed}


def test_a_server_as_expected_passes_every_check(fake: FakeLlama) -> None:
    checks = run(fake)
    assert failed(checks) == {}
    assert list(checks) == [
        "server",
        "context",
        "slots",
        "template",
        "tool call",
        "cache",
        "sampling",
        "markup",
        "baseline",
    ]


def test_only_the_background_slot_is_used(fake: FakeLlama) -> None:
    run(fake)
    assert [json.loads(body)["id_slot"] for body in fake.completions] == [1, 1]
    assert fake.slots.all[0].task is None


def test_tags_are_shown_in_two_requests_and_all_checks_need_few(fake: FakeLlama) -> None:
    run(fake)
    paths = [request.path for request in fake.requests]
    assert paths.count("/tokenize") == 2 + 1  # the tags, and the baseline
    assert len(paths) <= 10


def test_the_second_request_is_what_a_turn_would_send(fake: FakeLlama) -> None:
    run(fake)
    first, second = (json.loads(body) for body in fake.completions)
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert [message["role"] for message in second["messages"][len(first["messages"]) :]] == ["assistant", "tool"]
    assert (first["temperature"], second["temperature"]) == (0, 0.55)
    assert second["tools"] == first["tools"] == json.loads(TOOLS)


def test_reasoning_before_the_call_is_sent_back(fake: FakeLlama) -> None:
    fake.say(Reply(reasoning="They want the time.", calls=(Call(name="clock"),)), DONE)
    assert failed(run(fake)) == {}
    assert json.loads(fake.completions[1])["messages"][-2]["reasoning_content"] == "They want the time.\n"


# -- one thing wrong ------------------------------------------------------------------------------


def smaller_context(fake: FakeLlama) -> None:
    fake.n_ctx = 4_096


def unified(fake: FakeLlama) -> None:
    fake.n_ctx *= 2


def other_template(fake: FakeLlama) -> None:
    fake.template = "another"


def forgets(fake: FakeLlama) -> None:
    """Its cache is gone after every request, as with a unified cache and pinned slots."""

    def forget(_: Any) -> None:
        for slot in fake.slots.all:
            slot.cached = []

    fake.on_request = forget


WRONG: dict[str, tuple[Callable[[FakeLlama], object], str, str, str]] = {
    "a smaller context": (smaller_context, "context", "selftest_context", "4096 tokens"),
    "one context for all slots": (unified, "context", "selftest_context", "unified KV cache"),
    "another template": (other_template, "template", "selftest_template", ""),
    "text instead of a call": (lambda fake: fake.say(DONE), "tool call", "selftest_tools", "7 characters of text"),
    "a call of something else": (
        lambda fake: fake.say(Reply(calls=(Call(name="find_tool", arguments='{"query": "x"}'),))),
        "tool call",
        "selftest_tools",
        'find_tool {"query":"x"}',
    ),
    "arguments that are not JSON": (
        lambda fake: fake.say(Reply(calls=(Call(name="clock", arguments="{"),))),
        "tool call",
        "selftest_tools",
        "not JSON",
    ),
    "two calls": (
        lambda fake: fake.say(Reply(calls=(Call(name="clock"), Call(name="clock")))),
        "tool call",
        "selftest_tools",
        "clock {}, clock {}",
    ),
    "calls are refused": (
        lambda fake: fake.say(Refusal(status=500, message="template does not support tools")),
        "tool call",
        "selftest_tools",
        "does not support tools",
    ),
    "nothing stays cached": (forgets, "cache", "selftest_cache", "0 of"),
    "the replay is refused": (
        lambda fake: fake.say(CLOCK_CALL, Refusal(status=500, message="cannot render")),
        "cache",
        "selftest_cache",
        "cannot render",
    ),
}


@pytest.mark.parametrize(("spoil", "name", "runbook", "found"), WRONG.values(), ids=WRONG.keys())
def test_a_server_that_is_wrong_fails_one_check(
    fake: FakeLlama, spoil: Callable[[FakeLlama], object], name: str, runbook: str, found: str
) -> None:
    chosen = settings(fake)
    props = ModelServer(chosen.infer.socket, clock=SystemClock(), waits=Waits()).props()
    chosen = attrs.evolve(chosen, expect=attrs.evolve(chosen.expect, template_sha256=props.template_sha256))
    spoil(fake)
    wrong = failed(run(fake, chosen))
    assert list(wrong) == [name]
    assert wrong[name].runbook == runbook
    assert found in wrong[name].found
    assert wrong[name].expected


def test_the_whole_context_configured_as_one_slots_is_explained(fake: FakeLlama) -> None:
    chosen = settings(fake)
    wrong = failed(run(fake, attrs.evolve(chosen, expect=Expect(n_ctx=fake.n_ctx * 2))))
    assert "all its slots together" in wrong["context"].found


def test_other_slots_than_expected_fail(fake: FakeLlama) -> None:
    chosen = settings(fake)
    three = attrs.evolve(chosen, expect=attrs.evolve(chosen.expect, slots=3))
    assert list(failed(run(fake, three))) == ["slots"]
    fake.say(CLOCK_CALL, DONE)
    beyond = attrs.evolve(chosen, slots=Slots(main=0, background=2))
    assert "slots" in failed(run(fake, beyond))


def test_a_server_that_samples_otherwise_fails(fake: FakeLlama) -> None:
    fake.forced = {"temperature": 1.0}
    wrong = failed(run(fake))
    assert list(wrong) == ["sampling"]
    assert "temperature 0.55" in wrong["sampling"].expected
    assert "temperature 1" in wrong["sampling"].found


def test_a_baseline_over_budget_fails(fake: FakeLlama) -> None:
    chosen = settings(fake)
    tight = attrs.evolve(chosen, expect=attrs.evolve(chosen.expect, baseline_tokens=50))
    wrong = failed(run(fake, tight))
    assert list(wrong) == ["baseline"]
    assert "at most 50 tokens" in wrong["baseline"].expected


def test_a_tag_that_stays_a_special_token_is_named(fake: FakeLlama) -> None:
    """A tokenizer whose special token survives the space: the template that names it gives it away."""
    fake.template += " <|weird|>"
    fake.special = "< ?\\|weird\\|>"
    wrong = failed(run(fake))
    assert list(wrong) == ["markup"]
    assert "weird" in wrong["markup"].found
    assert [request.path for request in fake.requests].count("/tokenize") < 30


# -- a server that is not there to be tested ----------------------------------------------------------

ABSENT: dict[str, tuple[Callable[[FakeLlama], object], type[UpstreamError]]] = {
    "away": (lambda fake: fake.kill(), ServerAway),
    "loading": (lambda fake: setattr(fake, "loading", True), ModelLoading),
    "frozen": (lambda fake: setattr(fake, "frozen", True), ServerSilent),
    "silent in the middle": (lambda fake: fake.say(Reply(text="a", silent_after=0)), ServerSilent),
    "broken in the middle": (lambda fake: fake.say(Reply(text="a", vanish_after=0)), ServerAway),
}


@pytest.mark.parametrize(("spoil", "fault"), ABSENT.values(), ids=ABSENT.keys())
def test_a_server_that_cannot_be_asked_is_no_failed_check(
    fake: FakeLlama, spoil: Callable[[FakeLlama], object], fault: type[UpstreamError]
) -> None:
    chosen = settings(fake)
    spoil(fake)
    with pytest.raises(fault):
        run(fake, chosen, liveness_ms=100, connect_ms=100)


def test_a_busy_background_slot_is_waited_for(fake: FakeLlama) -> None:
    with fake.busy(1), pytest.raises(SlotBusy):
        run(fake, slot_ms=400)


def test_the_self_test_can_be_cancelled(fake: FakeLlama) -> None:
    chosen, cancel = settings(fake), CancelToken()
    server = ModelServer(chosen.infer.socket, clock=SystemClock(), waits=Waits())
    checks = selftest.run(server, settings=chosen, baseline=front(chosen), cancel=cancel)
    assert next(checks).name == "server"
    cancel.cancel()
    with pytest.raises(Cancelled):
        list(checks)


def test_every_check_names_an_entry_of_the_runbook(fake: FakeLlama) -> None:
    page = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    assert [check.runbook for check in run(fake).values() if f"\n## {check.runbook}\n" not in page] == []
