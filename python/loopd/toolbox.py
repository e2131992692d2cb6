"""Tool calls: what the model asked for -> a checked call or a refusal -> a labelled result.

The server's grammar turns a call to an undeclared tool into a call to a declared one, so nothing
here trusts that a name or an argument is what the schema says. Pure but for the clock and the
broker, which are handed in.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import attrs

from bxcore import tools
from bxcore.deadline import Clock
from bxcore.ids import CallId, SessionId
from bxcore.sessionrecords import ToolCall
from bxcore.wire.tools import DataClass, ToolDenied, ToolFailed, ToolRequest, ToolResult
from loopd import arguments
from loopd.brokerport import BrokerPort, OnPending
from loopd.cancel import CancelToken


@attrs.frozen(kw_only=True)
class Tool:
    """A tool as the model is told about it. `parameters` is its JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Outcome:
    """What the model will read, and its labels."""

    ok: bool
    content: str
    data_class: DataClass = DataClass.PUBLIC
    untrusted: bool = False
    truncated: bool = False


@attrs.frozen(kw_only=True)
class CheckedCall:
    """A call that may be tried. `name` is the target tool, `core` where it is one of the declared ones."""

    name: str
    arguments: dict[str, Any]
    core: bool

    @property
    def canonical(self) -> str:
        """Equal for calls that mean the same."""
        return arguments.canonical(self.name, self.arguments)


@attrs.frozen(kw_only=True)
class RefusedCall:
    """A call that cannot be tried. `reason` is for the model; `name` is what it asked for."""

    name: str
    reason: str
    canonical: str


def _object(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


CORE = (
    Tool(name="clock", description="Tell the current date and time.", parameters=_object({})),
    Tool(
        name="find_tool",
        description="Search for further tools. Returns the name, purpose and parameters of each that fits.",
        parameters=_object({"query": {"type": "string", "description": "A few words on what the tool should do."}}),
    ),
    Tool(
        name="call_tool",
        description="Call a tool that find_tool returned.",
        parameters=_object(
            {
                "name": {"type": "string", "description": "The tool's name, as find_tool returned it."},
                "arguments": {"type": "object", "description": "The tool's arguments, as its parameters say."},
            }
        ),
    ),
)

ECHO = Tool(
    name="echo",
    description="Return a text unchanged. For trying out whether tool calls work.",
    parameters=_object({"text": {"type": "string", "description": "The text to return."}}),
)


def core_schemas() -> str:
    """The `tools` array as JSON text. Every byte of it is part of the prompt: keep it stable."""
    functions = [{"type": "function", "function": attrs.asdict(tool)} for tool in CORE]
    return json.dumps(functions, ensure_ascii=False, separators=(",", ":"))


def remote() -> tuple[Tool, ...]:
    """The tools that brokerd decides about, as the model is told of them."""
    return tuple(
        Tool(name=kind.name, description=kind.description, parameters=tools.schema(kind.name))
        for kind in tools.TOOLS.values()
    )


class Toolbox:
    """The tools of this loopd: the core ones, and those that find_tool can find."""

    def __init__(self, *, clock: Clock, broker: BrokerPort, zone: ZoneInfo, found: tuple[Tool, ...] = (ECHO,)) -> None:
        self._clock, self._broker, self._zone = clock, broker, zone
        self._core = {tool.name: tool for tool in CORE}
        self._found = {tool.name: tool for tool in found}
        self._local: dict[str, Callable[[dict[str, Any]], Outcome]] = {
            "clock": self._tell_time,
            "find_tool": self._find,
            "echo": lambda given: Outcome(ok=True, content=str(given["text"]), data_class=DataClass.PRIVATE),
        }

    def check(self, call: ToolCall) -> CheckedCall | RefusedCall:
        """Return the call with its target and arguments checked, or why it cannot be tried."""
        same = f"{call.name}\n{call.arguments if call.broken is None else call.broken}"
        try:
            given = self._read(call)
            # Not the form of a checked call: a call that is corrected must not count as one more of the same.
            same = f"refused {arguments.canonical(call.name, given)}"
            return self._target(call.name, given)
        except arguments.BadArguments as fault:
            return RefusedCall(name=call.name, reason=f"not run: {fault}", canonical=same)

    def run(
        self, call: CheckedCall, *, session: SessionId, number: CallId, cancel: CancelToken, on_pending: OnPending
    ) -> Outcome:
        """Carry out a checked call. Raises Cancelled, or UpstreamError where the broker cannot be asked."""
        local = self._local.get(call.name)
        if local is not None:
            return local(call.arguments)
        text = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))
        request = ToolRequest(session=session, call=number, tool=call.name, arguments=text)
        match self._broker.run(request, cancel=cancel, on_pending=on_pending):
            case ToolResult() as result:
                return Outcome(
                    ok=True,
                    content=result.content,
                    data_class=result.data_class,
                    untrusted=result.untrusted,
                    truncated=result.truncated,
                )
            case ToolFailed() as failed:
                return Outcome(ok=False, content=f"the tool failed: {failed.message}")
            case ToolDenied() as denied:
                why = f" ({denied.detail})" if denied.detail else ""
                return Outcome(ok=False, content=f"denied: {denied.reason.value}{why}")

    def _read(self, call: ToolCall) -> dict[str, Any]:
        if call.broken is not None:
            arguments.parse(call.broken)  # raises with the reason
            raise arguments.BadArguments("the call was cut off before its arguments were complete")
        return arguments.parse(call.arguments)

    def _target(self, name: str, given: dict[str, Any]) -> CheckedCall:
        tool = self._core.get(name)
        if tool is None:
            raise arguments.BadArguments(self._unknown(name))
        _fits(tool, given)
        if name != "call_tool":
            return CheckedCall(name=name, arguments=given, core=True)
        target = self._found.get(given["name"])
        if target is None:
            raise arguments.BadArguments(self._unknown(given["name"]))
        _fits(target, given["arguments"])
        return CheckedCall(name=target.name, arguments=given["arguments"], core=False)

    def _unknown(self, name: str) -> str:
        if name in self._found:
            return "that tool is not called directly; use call_tool with its name"
        if name in self._core:
            return "that tool is called directly, not through call_tool"
        known = [*self._core, *self._found]
        alike = [good for good in known if good.lower() == name.strip().lower()]
        hint = (
            f"; names are exact, and there is one named {alike[0]}"
            if alike
            else "; find_tool finds the tools there are"
        )
        return f"there is no tool of that name{hint}"

    def _tell_time(self, _: dict[str, Any]) -> Outcome:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC)
        here = now.astimezone(self._zone)
        local = "" if self._zone.key == "UTC" else f"; {here:%A, %Y-%m-%d %H:%M:%S} in {self._zone.key}"
        return Outcome(ok=True, content=f"{now:%A, %Y-%m-%d %H:%M:%S} UTC{local}")

    def _find(self, given: dict[str, Any]) -> Outcome:
        words = set(given["query"].lower().replace("_", " ").split())
        scored = [(_score(tool, words), tool) for tool in self._found.values()]
        hits = [tool for score, tool in sorted(scored, key=lambda pair: (-pair[0], pair[1].name)) if score]
        if not hits:
            names = ", ".join(sorted(self._found)) or "none"
            return Outcome(ok=True, content=f"No tool fits these words. Tools that exist: {names}.")
        found = [attrs.asdict(tool) for tool in hits[:5]]
        return Outcome(ok=True, content=json.dumps(found, ensure_ascii=False, separators=(",", ":")))


def _score(tool: Tool, words: set[str]) -> int:
    name = set(tool.name.lower().split("_"))
    text = set(tool.description.lower().replace(".", " ").replace(",", " ").split())
    return 3 * len(words & name) + len(words & text)


_TYPES: Mapping[str, type] = {"string": str, "object": dict, "boolean": bool, "array": list}


def _fits(tool: Tool, given: dict[str, Any]) -> None:
    """Check names and types of the top level; the tool itself checks the rest."""
    properties = tool.parameters["properties"]
    extra = sorted(set(given) - set(properties))
    missing = [name for name in tool.parameters["required"] if name not in given]
    if extra or missing:
        wanted = ", ".join(properties) or "none"
        raise arguments.BadArguments(
            f"{tool.name} takes these arguments: {wanted}; {len(missing)} missing, {len(extra)} unknown"
        )
    for name, schema in properties.items():
        wanted_type = _TYPES.get(str(schema.get("type")))
        if name in given and wanted_type is not None and type(given[name]) is not wanted_type:
            raise arguments.BadArguments(f"{tool.name}: the argument {name} must be of type {schema['type']}")
