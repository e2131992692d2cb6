"""Is the server behind the socket what this loopd needs? Asked at the start, and by `bxctl doctor`.

Reads: the model server. Invariant: the model is asked on the background slot alone, so no
conversation loses its cache; about ten requests in all, within the burst that inferproxy lets through.
A server that is away, silent, busy or loading raises; a server that is there and wrong is a failed check.
"""

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Protocol

import attrs

from bxcore import sanitize
from bxcore.settings.loopd import LoopdSettings
from loopd import modelfaults, serverinfo
from loopd.baseline import Baseline
from loopd.cancel import CancelToken
from loopd.llama import ModelServer
from loopd.modelfaults import ContextFull, ServerProtocol, ServerRefused
from loopd.serverinfo import Props, SlotState
from loopd.stream import Assembler, Completion, Counters, Finished, Progress
from loopd.waits import OnWait

# Thinking counts, and a model may think before it calls; one that calls at once stops long before this.
_GREEDY = '"temperature":0,"max_tokens":1024'

_SLACK_TOKENS = 8
"""A template may end a prompt in what it does not repeat when the reply is replayed: an opening think tag, say."""

_SYSTEM = "Self-test. Answer every question about the time by calling clock."


@attrs.frozen(kw_only=True)
class Check:
    """One check. `runbook` is the entry of docs/runbook.md that mends it where it failed."""

    name: str
    passed: bool
    expected: str
    found: str
    runbook: str


def run(
    server: ModelServer,
    *,
    settings: LoopdSettings,
    baseline: Baseline,
    cancel: CancelToken | None = None,
    on_wait: OnWait = lambda *_: None,
) -> Iterator[Check]:
    """Yield the checks as they are done. Raises ServerAway, ServerSilent, SlotBusy, ModelLoading, Cancelled."""
    cancel = cancel or CancelToken()
    props = server.props(cancel=cancel)
    yield _server(props)
    yield _context(props, settings)
    yield from _guarded("slots", "selftest_slots", lambda: _slots(props, server.slots(cancel=cancel), settings))
    yield _template(props, settings)
    model = _Model(server, settings, baseline, cancel, on_wait)
    yield from _guarded("tool call", "selftest_tools", lambda: _tools(model))
    if model.called is not None:
        yield from _guarded("cache", "selftest_cache", lambda: _cache(model))
    if model.sent_as_configured:
        yield from _guarded(
            "sampling", "selftest_sampling", lambda: _sampling(props, server.slots(cancel=cancel), settings)
        )
    tokenize = functools.partial(server.tokenize, cancel=cancel)
    yield from _guarded("markup", "selftest_markup", lambda: _markup(tokenize, props))
    count = functools.partial(server.count_prompt, cancel=cancel)
    yield from _guarded("baseline", "selftest_baseline", lambda: _baseline(count, settings, baseline))


def _guarded(name: str, runbook: str, check: Callable[[], Check]) -> Iterator[Check]:
    """A server that says no has answered: that is a failed check."""
    try:
        yield check()
    except (ServerRefused, ServerProtocol, ContextFull) as fault:
        yield Check(name=name, passed=False, expected="an answer", found=str(fault), runbook=runbook)


# -- what the server says of itself ---------------------------------------------------------------


def _server(props: Props) -> Check:
    return Check(
        name="server", passed=True, expected="a llama-server", found=f"it serves {props.model}", runbook="server_away"
    )


def _context(props: Props, settings: LoopdSettings) -> Check:
    expected, found = settings.expect.n_ctx, props.n_ctx
    hint = ""
    if found == expected * props.total_slots and props.total_slots > 1:
        hint = "; that is the context of all slots together: is its unified KV cache on?"
    elif found and found * props.total_slots == expected and props.total_slots > 1:
        hint = "; what is configured is the context of all its slots together"
    return Check(
        name="context",
        passed=found == expected,
        expected=f"{expected} tokens in each slot",
        found=f"{found} tokens{hint}",
        runbook="selftest_context",
    )


def _slots(props: Props, slots: tuple[SlotState, ...], settings: LoopdSettings) -> Check:
    main, background = settings.slots.main, settings.slots.background
    known = {slot.id for slot in slots}
    passed = props.total_slots == settings.expect.slots and {main, background} <= known
    return Check(
        name="slots",
        passed=passed,
        expected=f"{settings.expect.slots} slots, {main} (conversations) and {background} (background) among them",
        found=f"{props.total_slots} slots, numbered {modelfaults.quote(', '.join(map(str, sorted(known))))}",
        runbook="selftest_slots",
    )


def _template(props: Props, settings: LoopdSettings) -> Check:
    expected = settings.expect.template_sha256
    return Check(
        name="template",
        passed=expected in ("", props.template_sha256),
        expected=expected or "any chat template",
        found=props.template_sha256,
        runbook="selftest_template",
    )


# -- what the model does ----------------------------------------------------------------------------


class _Model:
    """The worked example, and the model's part in it. One thread."""

    def __init__(
        self, server: ModelServer, settings: LoopdSettings, baseline: Baseline, cancel: CancelToken, on_wait: OnWait
    ) -> None:
        self._server, self._cancel, self._on_wait = server, cancel, on_wait
        slot, name = settings.slots.background, settings.infer.model
        self._greedy = attrs.evolve(baseline, sampling=_GREEDY).head(slot=slot, model=name)
        self._as_configured = baseline.head(slot=slot, model=name)
        self.called: Completion | None = None
        self.sent_as_configured = False

    def call_clock(self) -> Completion:
        """Show the model two rounds of calling clock, ask for a third; return its whole reply."""
        assembler = Assembler()
        for delta in self._server.stream(_body(self._greedy, _EXAMPLE), cancel=self._cancel, on_wait=self._on_wait):
            assembler.feed(delta)
        return assembler.finish()

    def next_counts(self, called: Completion) -> Progress | Counters | Finished:
        """Send the reply back with a result, as a turn would; return the first counts of the prompt, and leave."""
        messages = [*_EXAMPLE, _as_received(called), *(_result(call.id, 3) for call in called.calls)]
        body = _body(self._as_configured, messages)
        with closing(self._server.stream(body, cancel=self._cancel, on_wait=self._on_wait)) as deltas:
            for delta in deltas:
                self.sent_as_configured = True
                if isinstance(delta, Progress | Finished) or (isinstance(delta, Counters) and delta.predicted):
                    return delta
        raise ServerProtocol("a reply without an end")  # stream() ends in Finished or raises


def _tools(model: _Model) -> Check:
    reply = model.call_clock()
    calls = [(call.name, _compact(call.arguments)) for call in reply.calls]
    passed = calls == [("clock", "{}")]
    if passed:
        model.called = reply
    shown = ", ".join(f"{name} {arguments}" for name, arguments in calls)
    return Check(
        name="tool call",
        passed=passed,
        expected="one call, clock {}",
        found=modelfaults.quote(shown)
        or f"no call but {len(reply.content or '')} characters of text, ended by {modelfaults.quote(reply.finish)}",
        runbook="selftest_tools",
    )


def _cache(model: _Model) -> Check:
    first = model.called
    assert first is not None
    second = model.next_counts(first)
    total = second.total if isinstance(second, Progress) else second.prompt
    return Check(
        name="cache",
        passed=second.cached >= first.prompt - _SLACK_TOKENS,
        expected=f"the {first.prompt} tokens of the request before are not read again",
        found=f"{second.cached} of {total} tokens came from the cache",
        runbook="selftest_cache",
    )


def _sampling(props: Props, slots: tuple[SlotState, ...], settings: LoopdSettings) -> Check:
    """Compare the settings of the request before, which was sent as configured, with what the server made of them."""
    sent = settings.sampling
    wanted = {
        "temperature": float(sent.temperature),
        "top_p": float(sent.top_p),
        "top_k": float(sent.top_k),
        "max_tokens": float(sent.max_tokens),
    }
    used = next((slot.sampling for slot in slots if slot.id == settings.slots.background), {})
    # The server computes in 32-bit floats; a setting that it does not show was accepted, at least.
    differing = [name for name, value in used.items() if abs(value - wanted[name]) > 1e-6 * max(1.0, wanted[name])]
    return Check(
        name="sampling",
        passed=not differing,
        expected=serverinfo.shown(wanted),
        found=f"{serverinfo.shown(used) if used else 'accepted'} (its own defaults: {props.defaults})",
        runbook="selftest_sampling",
    )


# -- what the tokenizer says ------------------------------------------------------------------------


class _Tokenize(Protocol):
    def __call__(self, text: str, *, parse_special: bool) -> tuple[int, ...]: ...


def _markup(tokenize: _Tokenize, props: Props) -> Check:
    own = props.template_tags
    tags = (*sanitize.samples(), *own)
    forged = "" if _harmless(tokenize, tags, own) else _first_forged(tokenize, tags, own)
    return Check(
        name="markup",
        passed=not forged,
        expected=f"no special token in any of {len(tags)} neutralised tags",
        found=f"{sanitize.neutralise(forged, own)[:80]!r} still is one" if forged else f"{len(tags)} tags are harmless",
        runbook="selftest_markup",
    )


def _harmless(tokenize: _Tokenize, tags: tuple[str, ...], own: tuple[str, ...]) -> bool:
    """All in two requests: text without special tokens has the same tokens, whether they are looked for or not."""
    text = "\n".join(sanitize.neutralise(tag, own) for tag in tags)
    return tokenize(text, parse_special=True) == tokenize(text, parse_special=False)


def _first_forged(tokenize: _Tokenize, tags: tuple[str, ...], own: tuple[str, ...]) -> str:
    """Find it by halves: one request a tag would be more than inferproxy lets through."""
    while len(tags) > 1:
        half = tags[: len(tags) // 2]
        tags = tags[len(half) :] if _harmless(tokenize, half, own) else half
    return tags[0]


def _baseline(count: Callable[[bytes], int], settings: LoopdSettings, baseline: Baseline) -> Check:
    # With a question, since some templates refuse a conversation that holds none.
    messages = [{"role": "system", "content": baseline.system}, {"role": "user", "content": "?"}]
    head = baseline.head(slot=settings.slots.background, model=settings.infer.model)
    tokens = count(_body(head, messages))
    return Check(
        name="baseline",
        passed=tokens <= settings.expect.baseline_tokens,
        expected=f"at most {settings.expect.baseline_tokens} tokens before the first word",
        found=f"{tokens} tokens",
        runbook="selftest_baseline",
    )


# -- the worked example -----------------------------------------------------------------------------


def _result(call_id: str, minute: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": f"2026-01-01T00:{minute:02}:00Z"}


def _round(number: int) -> list[dict[str, Any]]:
    call = {"id": f"call{number}", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    return [
        {"role": "user", "content": "Call clock."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        _result(f"call{number}", number),
        {"role": "assistant", "content": f"Done {number}."},
    ]


_EXAMPLE: list[dict[str, Any]] = [
    {"role": "system", "content": _SYSTEM},
    *_round(1),
    *_round(2),
    {"role": "user", "content": "Call clock."},
]


def _as_received(reply: Completion) -> dict[str, Any]:
    thought = {"reasoning_content": reply.reasoning} if reply.reasoning is not None else {}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    return {"role": "assistant", "content": reply.content or "", **thought, "tool_calls": calls}


def _body(head: bytes, messages: list[dict[str, Any]]) -> bytes:
    return head + json.dumps(messages, separators=(",", ":")).encode().removeprefix(b"[") + b"}"


def _compact(untrusted_arguments: str) -> str:
    try:
        return json.dumps(json.loads(untrusted_arguments), separators=(",", ":"))
    except (ValueError, RecursionError):
        return "with arguments that are not JSON"
