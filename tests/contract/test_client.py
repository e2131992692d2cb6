"""loopd's own client against both servers: what a turn relies on, end to end over the socket."""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bxcore.settings.loopd import Expect, Infer, Listen, LoopdSettings, Sampling
from bxcore.wire.channel import WaitReason
from loopd import baseline, selftest, toolbox
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled, ContextFull, ServerAway, ServerLost, ServerRefused, SlotBusy
from loopd.stream import Assembler, CallStarted, Completion, Delta, Finished, Progress, Reasoning, Text
from tests.contract.peer import STREAM, Json, Peer, UpstreamPeer, fresh
from tests.contract.test_cache import CLOCK, example_of_calls, result
from tests.contract.test_calls_and_thinking import THOUGHTFUL, example_of_thinking
from tests.contract.test_slots import ENDLESS, LONG, begun
from tests.fakes.llama_server import Call, Reply


def body(messages: list[Json], **more: Any) -> bytes:
    return json.dumps({**STREAM, "id_slot": 0, "max_tokens": 60, **more, "messages": messages}).encode()


def stream(peer: Peer, request: bytes, **waits: int) -> Iterator[Delta]:
    return peer.client(**waits).stream(request, cancel=CancelToken(), on_wait=lambda *_: None)


def read(deltas: Iterator[Delta], *, at_text: Callable[[], None]) -> None:
    for delta in deltas:
        if isinstance(delta, Text):
            at_text()


def complete(peer: Peer, request: bytes) -> Completion:
    assembler = Assembler()
    for delta in stream(peer, request):
        assembler.feed(delta)
    return assembler.finish()


def test_a_reply_is_progress_then_text_then_the_end(peer: Peer) -> None:
    peer.prepare(Reply(text="Something short."))
    deltas = list(stream(peer, body(fresh(), max_tokens=5)))
    kinds = [type(delta) for delta in deltas if isinstance(delta, Progress | Text | Finished)]
    assert kinds == sorted(kinds, key=[Progress, Text, Finished].index)
    assert kinds[0] is Progress
    assert kinds[-1] is Finished


def test_the_counts_of_a_reply_add_up(peer: Peer) -> None:
    peer.prepare(Reply(text="Something short to say."), Reply(text="Something else to say."))
    conversation = fresh()
    first = complete(peer, body(conversation, max_tokens=5))
    second = complete(peer, body(conversation, max_tokens=5))
    assert (first.prompt, second.cached) == (second.prompt, first.prompt - 1)
    assert first.predicted == second.predicted == 5
    assert first.reasoning_tokens == 0


def test_a_tool_call_is_assembled(peer: Peer) -> None:
    peer.prepare(Reply(calls=(Call(name="clock"),)))
    reply = complete(peer, body(example_of_calls(), tools=[CLOCK]))
    assert [(call.name, call.arguments) for call in reply.calls] == [("clock", "{}")]
    assert reply.finish == "tool_calls"
    assert reply.content is None


def test_what_was_assembled_is_sent_back_without_loss(peer: Peer) -> None:
    peer.prepare(Reply(calls=(Call(name="clock"),)), Reply(text="Done 3."))
    first = complete(peer, body(example_of_calls(), tools=[CLOCK]))
    call = first.calls[0]
    calls = [{"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}]
    sent_back: list[Json] = [{"role": "assistant", "content": "", "tool_calls": calls}, result(call.id)]
    second = complete(peer, body([*example_of_calls(), *sent_back], tools=[CLOCK], max_tokens=2))
    assert second.cached == first.prompt + first.predicted - 1


def test_reasoning_is_kept_apart_and_counted(peer: Peer) -> None:
    peer.prepare(THOUGHTFUL)
    reply = complete(peer, body(example_of_thinking()))
    assert reply.reasoning
    assert reply.content
    assert 0 < reply.reasoning_tokens < reply.predicted


def test_reasoning_can_be_ended(peer: Peer) -> None:
    peer.prepare(THOUGHTFUL)
    assembler, client, told = Assembler(), peer.client(), False
    request = body(example_of_thinking(), ignore_eos=True)
    for delta in client.stream(request, cancel=CancelToken(), on_wait=lambda *_: None):
        assembler.feed(delta)
        if isinstance(delta, Reasoning) and not told:
            told = client.end_reasoning(assembler.completion_id)
    assert told
    assert assembler.finish().content
    assert client.end_reasoning(assembler.completion_id) is False


def test_cancelling_ends_a_running_reply_and_frees_the_slot(peer: Peer) -> None:
    peer.prepare(LONG)
    cancel = CancelToken()
    deltas = peer.client().stream(body(fresh(), **ENDLESS), cancel=cancel, on_wait=lambda *_: None)
    with pytest.raises(Cancelled):
        read(deltas, at_text=cancel.cancel)
    peer.until(lambda: not peer.busy(0))


def test_leaving_the_stream_frees_the_slot(peer: Peer) -> None:
    peer.prepare(LONG)
    deltas = peer.client().stream(body(fresh(), **ENDLESS), cancel=CancelToken(), on_wait=lambda *_: None)
    next(delta for delta in deltas if isinstance(delta, Text))
    deltas.close()
    peer.until(lambda: not peer.busy(0))


def test_waiting_for_a_busy_slot_is_told_and_can_be_cancelled(peer: Peer) -> None:
    peer.prepare(LONG, Reply(text="Never said."))
    cancel, told = CancelToken(), []

    def on_wait(reason: WaitReason, waited_ms: int, limit_ms: int) -> None:
        told.append((reason, waited_ms > 0, limit_ms))
        cancel.cancel()

    with begun(peer, slot=0), pytest.raises(Cancelled):
        list(peer.client(slot_ms=77_000).stream(body(fresh()), cancel=cancel, on_wait=on_wait))
    assert told == [(WaitReason.SLOT_BUSY, True, 77_000)]
    peer.until(lambda: not peer.busy(0))


def test_a_slot_that_stays_busy_is_given_up(peer: Peer) -> None:
    peer.prepare(LONG, Reply(text="Never said."))
    with begun(peer, slot=0), pytest.raises(SlotBusy):
        list(stream(peer, body(fresh()), slot_ms=600))
    peer.until(lambda: not peer.busy(0))


def test_a_prompt_that_is_too_long_names_its_size(peer: Peer) -> None:
    n_ctx = peer.client().props().n_ctx
    with pytest.raises(ContextFull) as full:
        list(stream(peer, body(fresh("word " * (n_ctx + 200)))))
    assert full.value.n_ctx == n_ctx
    assert (full.value.n_prompt or 0) > n_ctx


def test_a_refused_request_says_why(peer: Peer) -> None:
    with pytest.raises(ServerRefused, match="Invalid tool_choice") as refused:
        list(stream(peer, body(fresh(), tool_choice="maybe")))
    assert refused.value.status == 400


def settings_for(peer: Peer) -> LoopdSettings:
    props = peer.client().props()
    return LoopdSettings(
        state=Path("/nowhere"),
        listen=Listen(owner=Path("/nowhere")),
        infer=Infer(socket=peer.path),
        expect=Expect(n_ctx=props.n_ctx, slots=props.total_slots, template_sha256=props.template_sha256),
        sampling=Sampling(temperature=Decimal("0.55")),
    )


def test_the_self_test_passes(peer: Peer) -> None:
    peer.prepare(Reply(calls=(Call(name="clock"),)), Reply(text="Done 3."))
    settings = settings_for(peer)
    front = baseline.make(sampling=settings.sampling, tools=toolbox.core_schemas())
    checks = list(selftest.run(peer.client(), settings=settings, baseline=front))
    assert [check for check in checks if not check.passed] == []
    assert {check.name for check in checks} >= {"context", "slots", "template", "tool call", "cache", "sampling"}
    assert {check.name for check in checks} >= {"markup", "baseline"}


def test_the_self_test_leaves_the_main_slot_alone(peer: Peer) -> None:
    peer.prepare(Reply(text="Fine."), Reply(calls=(Call(name="clock"),)), Reply(text="Done 3."), Reply(text="Fine."))
    conversation = body(fresh(), max_tokens=2)
    first = complete(peer, conversation)
    settings = settings_for(peer)
    front = baseline.make(sampling=settings.sampling, tools=toolbox.core_schemas())
    assert all(check.passed for check in selftest.run(peer.client(), settings=settings, baseline=front))
    peer.until(lambda: not peer.busy(1))
    assert complete(peer, conversation).cached == first.prompt - 1


def test_the_first_call_delta_names_the_call(peer: Peer) -> None:
    peer.prepare(Reply(calls=(Call(name="clock"),)))
    started = [
        delta for delta in stream(peer, body(example_of_calls(), tools=[CLOCK])) if isinstance(delta, CallStarted)
    ]
    assert [(start.index, start.name) for start in started] == [(0, "clock")]
    assert started[0].id


def test_a_server_that_dies_is_lost_then_away_then_back(peer: Peer, socket_directory: Path) -> None:
    if isinstance(peer, UpstreamPeer):
        pytest.skip("somebody else's server is not killed")
    own = type(peer)(socket_directory / "mortal.sock")
    with own:
        own.prepare(LONG)
        with pytest.raises(ServerLost):
            read(stream(own, body(fresh(), **ENDLESS)), at_text=own.kill)
        with pytest.raises(ServerAway):
            list(stream(own, body(fresh()), connect_ms=300))
        own.start()
        own.prepare(Reply(text="Fine."))
        assert complete(own, body(fresh(), max_tokens=2)).prompt > 0
