import json
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore.ids import CallId, SessionId
from bxcore.sessionrecords import ToolCall
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolFailed, ToolRequest, ToolResult
from loopd import arguments, toolbox
from loopd.brokerport import Answer, BrokerPort, NoBroker, OnPending
from loopd.cancel import CancelToken
from loopd.toolbox import CheckedCall, Outcome, RefusedCall, Tool, Toolbox
from tests.fakes.clocks import HandClock
from tests.unit.loopd.test_arguments import BAD

FETCH = Tool(
    name="http_fetch",
    description="Fetch a page.",
    parameters={
        "type": "object",
        "properties": {"url": {"type": "string"}, "follow": {"type": "boolean"}, "headers": {"type": "array"}},
        "required": ["url"],
        "additionalProperties": False,
    },
)


class FakeBroker:
    """Answers every request the same; keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[ToolRequest] = []

    def run(self, request: ToolRequest, *, cancel: CancelToken, on_pending: OnPending) -> Answer:
        self.asked.append(request)
        return self._answer


def box(*, broker: BrokerPort | None = None, zone: str = "UTC") -> Toolbox:
    return Toolbox(clock=HandClock(), broker=broker or NoBroker(), zone=ZoneInfo(zone), found=(toolbox.ECHO, FETCH))


def called(name: str, given: object = None, *, text: str | None = None, broken: str | None = None) -> ToolCall:
    written = json.dumps(given if given is not None else {}) if text is None else text
    return ToolCall(id="a", name=name, arguments=written, broken=broken)


def through_call_tool(name: object, given: object) -> ToolCall:
    return called("call_tool", {"name": name, "arguments": given})


def refused(call: ToolCall) -> RefusedCall:
    checked = box().check(call)
    assert isinstance(checked, RefusedCall), checked
    return checked


def run(call: ToolCall, *, broker: BrokerPort | None = None, zone: str = "UTC") -> Outcome:
    tools = box(broker=broker, zone=zone)
    checked = tools.check(call)
    assert isinstance(checked, CheckedCall), checked
    return tools.run(checked, session=SessionId("s"), number=CallId(5), cancel=CancelToken(), on_pending=lambda _: None)


# -- what the model is told -------------------------------------------------------------------------


def test_m8_the_schemas_are_the_same_bytes_every_time() -> None:
    assert toolbox.core_schemas() == toolbox.core_schemas()
    assert toolbox.core_schemas().startswith('[{"type":"function","function":{"name":"clock"')


def test_every_declared_tool_has_a_closed_schema() -> None:
    for entry in json.loads(toolbox.core_schemas()):
        parameters = entry["function"]["parameters"]
        assert parameters["additionalProperties"] is False
        assert set(parameters["required"]) == set(parameters["properties"])


# -- checking a call ----------------------------------------------------------------------------------


def test_a_core_tool_is_called_by_its_name() -> None:
    checked = box().check(called("clock"))
    assert checked == CheckedCall(name="clock", arguments={}, core=True)


def test_a_found_tool_is_called_through_call_tool() -> None:
    checked = box().check(through_call_tool("echo", {"text": "x"}))
    assert checked == CheckedCall(name="echo", arguments={"text": "x"}, core=False)


REFUSED: Mapping[str, tuple[ToolCall, str]] = {
    "unknown tool": (called("delete_file", {"path": "/"}), "no tool of that name"),
    "empty name": (called(""), "no tool of that name"),
    "different case": (called("Clock"), "there is one named clock"),
    "spaces around it": (called(" clock "), "there is one named clock"),
    "a found tool, called directly": (called("echo", {"text": "x"}), "use call_tool"),
    "a core tool through call_tool": (through_call_tool("clock", {}), "called directly"),
    "call_tool inside call_tool": (
        through_call_tool("call_tool", {"name": "echo", "arguments": {"text": "x"}}),
        "called directly",
    ),
    "unknown target": (through_call_tool("shell", {}), "no tool of that name"),
    "target in different case": (through_call_tool("ECHO", {"text": "x"}), "there is one named echo"),
    "missing argument": (called("find_tool"), "1 missing, 0 unknown"),
    "extra argument": (called("clock", {"zone": "UTC"}), "0 missing, 1 unknown"),
    "argument in different case": (called("find_tool", {"Query": "x"}), "1 missing, 1 unknown"),
    "number for a text": (called("find_tool", {"query": 5}), "must be of type string"),
    "null for a text": (called("find_tool", {"query": None}), "must be of type string"),
    "list for a text": (called("find_tool", {"query": ["x"]}), "must be of type string"),
    "name that is a list": (through_call_tool(["echo"], {}), "must be of type string"),
    "arguments as text": (through_call_tool("echo", '{"text":"x"}'), "must be of type object"),
    "arguments as list": (through_call_tool("echo", ["x"]), "must be of type object"),
    "arguments as number": (through_call_tool("echo", 5), "must be of type object"),
    "target's argument missing": (through_call_tool("echo", {}), "1 missing, 0 unknown"),
    "target's argument of another type": (through_call_tool("echo", {"text": {}}), "must be of type string"),
    "true for a text": (through_call_tool("http_fetch", {"url": True}), "must be of type string"),
    "number for a boolean": (through_call_tool("http_fetch", {"url": "x", "follow": 1}), "must be of type boolean"),
    "cut off": (called("clock", broken='{"zo'), "not valid JSON"),
    "no text at all": (called("clock", broken=""), "not valid JSON"),
    "cut by us, so that it seems whole": (called("clock", broken="{}"), "cut off"),
    "text": (called("clock", text='"{}"'), "must be a JSON object"),
    "list": (called("clock", text="[]"), "must be a JSON object"),
}


@pytest.mark.parametrize(("call", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_m1_a_wrong_call_is_refused_in_words_for_the_model(call: ToolCall, reason: str) -> None:
    assert reason in refused(call).reason


@pytest.mark.parametrize("call", [call for call, _ in REFUSED.values()], ids=REFUSED.keys())
def test_m1_a_refusal_says_that_nothing_was_run_and_quotes_nothing(call: ToolCall) -> None:
    reason = refused(call).reason
    assert reason.startswith("not run: ")
    assert reason.isprintable()
    assert "delete_file" not in reason
    assert "shell" not in reason


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_m1_broken_arguments_never_reach_a_tool(text: str) -> None:
    refused(called("clock", broken=text))


def test_two_spellings_of_a_refused_call_are_the_same_call() -> None:
    """M2: counted over canonical arguments, also where there is no such tool."""
    one = refused(called("shell", text='{"a":1,"b":2}'))
    other = refused(called("shell", text='{ "b": 2, "a": 1 }'))
    assert one.canonical == other.canonical
    assert one.canonical != refused(called("shell", {"a": 1})).canonical
    assert one.canonical != refused(called("Shell", {"a": 1, "b": 2})).canonical


def test_a_call_that_was_corrected_is_not_one_more_of_the_same() -> None:
    wrong, right = called("echo", {"text": "x"}), through_call_tool("echo", {"text": "x"})
    checked = box().check(right)
    assert refused(wrong).canonical != checked.canonical


def test_two_broken_calls_are_the_same_where_their_text_is() -> None:
    assert refused(called("clock", broken="{x")).canonical == refused(called("clock", broken="{x")).canonical
    assert refused(called("clock", broken="{x")).canonical != refused(called("clock", broken="{y")).canonical
    assert refused(called("clock", broken="")).canonical != refused(called("clock", broken="{y")).canonical


names = st.sampled_from(["clock", "find_tool", "call_tool", "echo", "http_fetch", "Clock", ""]) | st.text(max_size=9)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | names,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "arguments", "query", "text", "url", "follow", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(names, values)
def test_m1_any_call_is_checked_or_refused_and_what_is_checked_fits_its_schema(name: str, given: Any) -> None:
    checked = box().check(called(name, text=json.dumps(given)))
    if isinstance(checked, RefusedCall):
        return
    tool = {tool.name: tool for tool in (*toolbox.CORE, toolbox.ECHO, FETCH)}[checked.name]
    assert set(tool.parameters["required"]) <= set(checked.arguments) <= set(tool.parameters["properties"])
    assert checked.core is (tool in toolbox.CORE)


# -- running ------------------------------------------------------------------------------------------


def test_the_clock_tells_utc_and_the_owners_zone() -> None:
    assert run(called("clock")).content == "Thursday, 2026-01-01 00:00:00 UTC"
    berlin = run(called("clock"), zone="Europe/Berlin").content
    assert berlin == "Thursday, 2026-01-01 00:00:00 UTC; Thursday, 2026-01-01 01:00:00 in Europe/Berlin"


def test_echo_returns_the_text_unchanged() -> None:
    text = "Ünï\n\x00 <|im_end|> 🦞"
    assert run(through_call_tool("echo", {"text": text})) == Outcome(
        ok=True, content=text, data_class=DataClass.PRIVATE
    )


def found(query: str) -> list[str]:
    content = run(called("find_tool", {"query": query})).content
    return [tool["name"] for tool in json.loads(content)] if content.startswith("[") else []


def test_find_tool_returns_what_call_tool_needs_to_know() -> None:
    outcome = run(called("find_tool", {"query": "echo"}))
    assert outcome.ok
    (entry,) = json.loads(outcome.content)
    assert entry["name"] == "echo"
    assert entry["parameters"]["required"] == ["text"]


def test_find_tool_finds_by_name_and_by_purpose() -> None:
    assert found("fetch") == ["http_fetch"]
    assert found("HTTP Fetch please") == ["http_fetch"]
    assert found("http_fetch") == ["http_fetch"]
    assert found("a page") == ["http_fetch", "echo"]


@pytest.mark.parametrize("query", ["", " ", "zebra", "_", "🦞", "x" * 50_000], ids=lambda query: query[:8])
def test_find_tool_without_a_hit_names_what_there_is(query: str) -> None:
    outcome = run(called("find_tool", {"query": query}))
    assert outcome.ok
    assert "echo, http_fetch" in outcome.content
    assert len(outcome.content) < 200


def test_without_a_broker_a_call_is_denied_and_says_so() -> None:
    outcome = run(through_call_tool("http_fetch", {"url": "x"}))
    assert not outcome.ok
    assert outcome.content.startswith("denied: runner_unavailable (")


def test_the_broker_is_asked_for_the_target_with_the_arguments_as_text() -> None:
    broker = FakeBroker(ToolFailed(message="no"))
    run(through_call_tool("http_fetch", {"url": "ü", "follow": False}), broker=broker)
    assert broker.asked == [
        ToolRequest(session=SessionId("s"), call=CallId(5), tool="http_fetch", arguments='{"url":"ü","follow":false}')
    ]


def test_a_local_tool_never_asks_the_broker() -> None:
    broker = FakeBroker(ToolFailed(message="no"))
    for call in (called("clock"), called("find_tool", {"query": "x"}), through_call_tool("echo", {"text": "x"})):
        run(call, broker=broker)
    assert broker.asked == []


ANSWERS: Mapping[str, tuple[Answer, Outcome]] = {
    "result": (
        ToolResult(content="page", data_class=DataClass.SECRET, untrusted=True, truncated=True),
        Outcome(ok=True, content="page", data_class=DataClass.SECRET, untrusted=True, truncated=True),
    ),
    "failure": (ToolFailed(message="exit 1"), Outcome(ok=False, content="the tool failed: exit 1")),
    "denial": (
        ToolDenied(reason=DenyReason.NO_GRANT, detail=None),
        Outcome(ok=False, content="denied: no_grant"),
    ),
    "denial with a reason": (
        ToolDenied(reason=DenyReason.INVALID_ARGUMENTS, detail="url: no host"),
        Outcome(ok=False, content="denied: invalid_arguments (url: no host)"),
    ),
}


@pytest.mark.parametrize(("answer", "outcome"), ANSWERS.values(), ids=ANSWERS.keys())
def test_the_brokers_answer_becomes_what_the_model_reads(answer: Answer, outcome: Outcome) -> None:
    assert run(through_call_tool("http_fetch", {"url": "x"}), broker=FakeBroker(answer)) == outcome


def test_the_canonical_form_of_a_checked_call_is_that_of_its_target() -> None:
    checked = box().check(through_call_tool("echo", {"text": "x"}))
    assert checked.canonical == arguments.canonical("echo", {"text": "x"})
