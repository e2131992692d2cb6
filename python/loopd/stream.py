"""A chat completion's byte stream -> deltas -> the assistant's message. Pure.

Reads: the events of loopd.sse. The JSON in them is a third party's: unknown fields are ignored, a
known field of the wrong shape is ServerProtocol. Invariants: `deltas` ends only after [DONE], whatever
ends earlier raises; what one reply says is bounded, so that its record fits a line of the session log,
whole or cut off anywhere. Specified in docs/inference-contract.md.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import attrs

from loopd import modelfaults
from loopd.modelfaults import ServerLost, ServerProtocol
from loopd.sse import EventReader

MAX_CHARS = 1_000_000
"""Of thinking, text and arguments of one reply together: more than a context of 131,072 tokens holds. A character
takes up to six bytes of a line, and the ids and names of all calls half a megabyte: jsonl.MAX_LINE holds it all."""
MAX_CALLS = 256
LONGEST_NAME = 256
LONGEST_ID = 128
"""A longer name or id is cut. No tool has such a name, so the call is refused like any other unknown one."""
MAX_TOKENS = 1_000_000_000
"""In one count: far beyond every context, and sums over a long session stay exact."""
_LONGEST_REASON = 64
_DONE = b"[DONE]"
_T = TypeVar("_T")


# -- what comes out -----------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Progress:
    """Prompt tokens: `cached` of `total` need no reading, `processed` (cached ones included) are done."""

    total: int
    cached: int
    processed: int


@attrs.frozen(kw_only=True)
class Reasoning:
    """More of the model's thinking."""

    text: str


@attrs.frozen(kw_only=True)
class Text:
    """More of the model's answer."""

    text: str


@attrs.frozen(kw_only=True)
class CallStarted:
    """A tool call begins. `id` is empty where the server gave none."""

    index: int
    id: str
    name: str


@attrs.frozen(kw_only=True)
class CallArguments:
    """More of the argument text of call `index`."""

    index: int
    text: str


@attrs.frozen(kw_only=True)
class Counters:
    """The completion's id (what end_reasoning wants) and its tokens so far; prompt = cached + read."""

    id: str
    prompt: int
    cached: int
    predicted: int


@attrs.frozen(kw_only=True)
class Finished:
    """The reply is complete. `reason` is the server's word: stop, length, tool_calls."""

    reason: str
    prompt: int
    cached: int
    predicted: int


Delta = Progress | Reasoning | Text | CallStarted | CallArguments | Counters | Finished


def deltas(untrusted_pieces: Iterable[bytes]) -> Iterator[Delta]:
    """Yield what the reply says, as it says it; the last one is Finished.

    Raises ServerProtocol, ServerLost (no [DONE]) or the fault that an error event means.
    """
    lines, reader = EventReader(), DeltaReader()
    for piece in untrusted_pieces:
        for untrusted_event in lines.feed(piece):
            if untrusted_event == _DONE:
                yield reader.done()
                return
            yield from reader.read(untrusted_event)
    raise ServerLost("the model server's reply ended before it was complete")


# -- events -> deltas ---------------------------------------------------------------------------


class DeltaReader:
    """Turns the events of one completion into deltas."""

    def __init__(self) -> None:
        self._calls: set[int] = set()
        self._reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._timings: dict[str, Any] | None = None
        self._id = ""
        self._told: tuple[str, int, int, int] | None = None
        self._room = MAX_CHARS

    def read(self, untrusted_event: bytes) -> list[Delta]:
        """Return what one event says. Text comes before the counters of the same event."""
        event = _parse(untrusted_event)
        if event.get("error") is not None:
            raise modelfaults.from_event(event)
        out: list[Delta] = []
        progress = _field(event, "prompt_progress", dict)
        if progress is not None:
            out.append(_progress(progress))
        choices = _field(event, "choices", list)
        if choices:
            self._read_choice(choices, out)
        self._read_counters(event, out)
        return out

    def done(self) -> Finished:
        """Return the end of the reply, or raise ServerProtocol where the server never said how it ended."""
        if self._reason is None:
            raise ServerProtocol("the model server's reply has no finish_reason")
        prompt, cached, predicted = self._totals()
        return Finished(reason=self._reason, prompt=prompt, cached=cached, predicted=predicted)

    def _read_choice(self, choices: list[Any], out: list[Delta]) -> None:
        choice = choices[0]
        if type(choice) is not dict or len(choices) > 1:
            raise ServerProtocol("the field choices holds something else than one choice")
        reason = _field(choice, "finish_reason", str)
        if reason is not None:
            self._reason = _clean(reason)[:_LONGEST_REASON]
        delta = _field(choice, "delta", dict)
        if not delta:
            return
        thought = _field(delta, "reasoning_content", str)
        if thought:
            out.append(Reasoning(text=self._bounded(thought)))
        text = _field(delta, "content", str)
        if text:
            out.append(Text(text=self._bounded(text)))
        calls = _field(delta, "tool_calls", list)
        if calls:
            for call in calls:
                self._read_call(call, out)

    def _read_call(self, call: object, out: list[Delta]) -> None:
        if type(call) is not dict:
            raise ServerProtocol("the field tool_calls holds something else than calls")
        index = _number(call, "index")
        function = _field(call, "function", dict) or {}
        if index not in self._calls:
            name = _field(function, "name", str)
            if name is None or index >= MAX_CALLS:
                raise ServerProtocol("a tool call begins without a name, or there are too many")
            self._calls.add(index)
            identity = _field(call, "id", str) or ""
            out.append(CallStarted(index=index, id=_clean(identity)[:LONGEST_ID], name=_clean(name)[:LONGEST_NAME]))
        text = _field(function, "arguments", str)
        if text:
            out.append(CallArguments(index=index, text=self._bounded(text)))

    def _bounded(self, text: str) -> str:
        self._room -= len(text)
        if self._room < 0:
            raise ServerProtocol(f"the reply is longer than {MAX_CHARS} characters")
        return _clean(text)

    def _read_counters(self, event: dict[str, Any], out: list[Delta]) -> None:
        identity = _field(event, "id", str)
        if identity:
            self._id = identity[:LONGEST_ID]
        usage = _field(event, "usage", dict)
        if usage is not None:
            self._usage = usage
        timings = _field(event, "timings", dict)
        if timings is not None:
            self._timings = timings
        told = (self._id, *(_timed(self._timings) if self._timings else (0, 0, 0)))
        if told != self._told and self._id:
            self._told = told
            out.append(Counters(id=told[0], prompt=told[1], cached=told[2], predicted=told[3]))

    def _totals(self) -> tuple[int, int, int]:
        if self._timings is not None:
            return _timed(self._timings)
        if self._usage is not None:
            details = _field(self._usage, "prompt_tokens_details", dict) or {}
            cached = _number(details, "cached_tokens") if "cached_tokens" in details else 0
            prompt = _number(self._usage, "prompt_tokens")
            return prompt, _part(cached, prompt), _number(self._usage, "completion_tokens")
        raise ServerProtocol("the model server's reply has neither timings nor usage")


def _timed(timings: dict[str, Any]) -> tuple[int, int, int]:
    cached = _number(timings, "cache_n")
    return cached + _number(timings, "prompt_n"), cached, _number(timings, "predicted_n")


def _progress(untrusted: dict[str, Any]) -> Progress:
    total = _number(untrusted, "total")
    return Progress(
        total=total, cached=_part(_number(untrusted, "cache"), total), processed=_number(untrusted, "processed")
    )


def _parse(untrusted_event: bytes) -> dict[str, Any]:
    try:
        # Decoded here, because json decodes bytes with "surrogatepass", which lets broken UTF-8 in.
        event = json.loads(untrusted_event.decode())
    except (ValueError, RecursionError) as fault:
        raise ServerProtocol(f"the model server sent an event that is not JSON ({type(fault).__name__})") from None
    if type(event) is not dict:
        raise ServerProtocol("the model server sent an event that is not an object")
    return event


def _field(table: dict[str, Any], name: str, kind: type[_T]) -> _T | None:
    """Return a field of exactly that type; None where it is absent or null."""
    value = table.get(name)
    if value is None or type(value) is kind:
        return value
    raise ServerProtocol(f"the field {name} is of type {type(value).__name__}, expected {kind.__name__}")


def _number(table: dict[str, Any], name: str) -> int:
    value = table.get(name)
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    raise ServerProtocol(f"the field {name} is no count of tokens")


def _part(cached: int, prompt: int) -> int:
    if cached > prompt:
        raise ServerProtocol("the model server counts more cached tokens than the prompt has")
    return cached


def _clean(text: str) -> str:
    """Refuse lone surrogates: they could be neither stored nor sent again."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ServerProtocol("the model server sent text that is not Unicode") from None
    return text


# -- deltas -> the assistant's message -------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ReceivedCall:
    """A tool call as it arrived; the arguments are text that nobody has checked."""

    id: str
    name: str
    arguments: str


@attrs.frozen(kw_only=True)
class Completion:
    """An assistant message as received. `finish` is empty while it is not complete."""

    content: str | None
    reasoning: str | None
    calls: tuple[ReceivedCall, ...]
    finish: str
    prompt: int
    cached: int
    predicted: int
    reasoning_tokens: int


@attrs.frozen(kw_only=True)
class Cap:
    """The model reached its thinking cap: after how many tokens, and whether the server took the order."""

    tokens: int
    ended: bool


class Assembler:
    """Puts a completion together. Cheap to feed; `partial` costs the whole text. One thread."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, tuple[CallStarted, list[str]]] = {}
        self._counters = Counters(id="", prompt=0, cached=0, predicted=0)
        self._finished: Finished | None = None
        self._counted_thinking = 0

    @property
    def completion_id(self) -> str:
        """What end_reasoning needs; empty until the first event."""
        return self._counters.id

    @property
    def reasoning_tokens(self) -> int:
        """Tokens thought so far: the server's count of all tokens before the answer began.

        A server that sends no counters has its reasoning deltas counted instead.
        """
        return max(self._counted_thinking, len(self._reasoning)) if self._reasoning else 0

    def feed(self, delta: Delta) -> None:
        """Take the next delta in."""
        match delta:
            case Text():
                self._content.append(delta.text)
            case Reasoning():
                self._reasoning.append(delta.text)
            case CallStarted():
                self._calls[delta.index] = (delta, [])
            case CallArguments():
                self._calls[delta.index][1].append(delta.text)
            case Counters():
                self._counters = delta
                if self._reasoning and not self._content and not self._calls:
                    self._counted_thinking = delta.predicted
            case Finished():
                self._finished = delta
            case Progress():
                pass

    def partial(self) -> Completion:
        """Return what has come so far; a call may lack the end of its arguments."""
        last = self._finished or self._counters
        return Completion(
            content="".join(self._content) if self._content else None,
            reasoning="".join(self._reasoning) if self._reasoning else None,
            calls=tuple(
                ReceivedCall(id=start.id, name=start.name, arguments="".join(parts))
                for _, (start, parts) in sorted(self._calls.items())
            ),
            finish=self._finished.reason if self._finished else "",
            prompt=last.prompt,
            cached=last.cached,
            predicted=last.predicted,
            reasoning_tokens=self.reasoning_tokens,
        )

    def finish(self) -> Completion:
        """Return the complete message, or raise ServerLost where the reply never ended."""
        if self._finished is None:
            raise ServerLost("the model server's reply ended before it was complete")
        return self.partial()
