"""The model client against a server that misbehaves in every way we know (M6), over a real socket."""

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bxcore.deadline import SystemClock
from bxcore.errors import UpstreamError
from loopd.cancel import CancelToken
from loopd.llama import ModelServer
from loopd.modelfaults import (
    Cancelled,
    ContextFull,
    ModelLoading,
    RequestRefused,
    ServerAway,
    ServerLost,
    ServerProtocol,
    ServerRefused,
    ServerSilent,
)
from loopd.stream import Assembler, Delta, Progress, Reasoning, Text
from loopd.waits import Waits
from tests.fakes.llama_server import Call, FakeLlama, Refusal, Reply
from tests.fakes.model_client import Told, assembled, body, client, read


@pytest.fixture
def fake() -> Iterator[FakeLlama]:
    with tempfile.TemporaryDirectory(prefix="bxm") as name, FakeLlama(Path(name) / "m.sock") as fake:
        yield fake


# -- a reply -----------------------------------------------------------------------------------------


def test_a_reply_comes_whole(fake: FakeLlama) -> None:
    fake.say(Reply(reasoning="Hm.", text="Yes.", calls=(Call(name="clock", arguments='{"a": 1}'),)))
    done = assembled(read(client(fake)))
    assert (done.reasoning, done.content, done.finish) == ("Hm.\n", "Yes.", "tool_calls")
    assert [(call.name, call.arguments) for call in done.calls] == [("clock", '{"a": 1}')]


def test_the_request_is_sent_byte_for_byte_and_once(fake: FakeLlama) -> None:
    fake.say(Reply(text="Yes."))
    request = body().replace(b'"stream": true', b'"stream":    true')
    read(client(fake), request)
    assert fake.completions == [request]


def test_a_long_prompt_shows_its_progress(fake: FakeLlama) -> None:
    fake.say(Reply(text="Yes."))
    long = [{"role": "user", "content": "word " * 700}]
    steps = [delta.processed for delta in read(client(fake), body(long)) if isinstance(delta, Progress)]
    assert steps[0] == 0
    assert steps == sorted(set(steps))
    assert len(steps) > 3


def test_leaving_the_stream_closes_the_connection(fake: FakeLlama) -> None:
    fake.say(Reply(text="word " * 500, token_delay=0.01), Reply(text="Next."))
    deltas = client(fake).stream(body(), cancel=CancelToken(), on_wait=Told())
    next(delta for delta in deltas if isinstance(delta, Text))
    deltas.close()
    assert assembled(read(client(fake))).content == "Next."


# -- faults of one request (M6) --------------------------------------------------------------------------

SILENT_MS = 150

FAULTS: dict[str, tuple[Any, type[UpstreamError]]] = {
    "cut off in the middle": (Reply(text="one two three", vanish_after=2), ServerLost),
    "cut off before the first token": (Reply(text="one two three", vanish_after=0), ServerLost),
    "an error in the middle, context full": (Reply(text="one two three", error_after=2), ContextFull),
    "an error in the middle, any other": (
        Reply(text="one two", error_after=1, error={"code": 500, "message": "failed to decode"}),
        ServerLost,
    ),
    "silent in the middle": (Reply(text="one two three", silent_after=2), ServerSilent),
    "silent from the first byte on": (Reply(text="one", silent_after=0), ServerSilent),
    "no end": (Reply(raw=(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',)), ServerLost),
    "nothing at all": (Reply(raw=(b": nothing\n\n",)), ServerLost),
    "not JSON": (Reply(raw=(b"data: <html>\n\n",)), ServerProtocol),
    "the wrong shape": (Reply(raw=(b'data: {"choices":7}\n\n',)), ServerProtocol),
    "an end without a reason": (Reply(raw=(b"data: [DONE]\n\n",)), ServerProtocol),
    "refused": (Refusal(status=400, message="no", type="invalid_request_error"), RequestRefused),
    "refused with a page": (Refusal(status=403, body=b"<html>Forbidden</html>"), ServerRefused),
    "refused with nothing": (Refusal(status=500, body=b""), RequestRefused),
    "refused with JSON of another shape": (Refusal(status=500, body=b'["no"]'), RequestRefused),
    "refused with deep JSON": (Refusal(status=500, body=b"[" * 100_000), RequestRefused),
    "200 but no stream": (Refusal(status=200, body=b'{"choices":[]}'), ServerProtocol),
    "a redirect": (Refusal(status=307, body=b"{}"), ServerRefused),
    "a tool's name without end": (Reply(calls=(Call(name="x" * 9_000_000),)), ServerProtocol),
    "text without end": (
        Reply(raw=(b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % (b"x" * 100_000),) * 11),
        ServerProtocol,
    ),
}


@pytest.mark.parametrize(("answer", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_m6_a_request_fails_with_its_own_fault_and_the_next_one_succeeds(
    fake: FakeLlama, answer: Any, fault: type[UpstreamError]
) -> None:
    fake.say(answer, Reply(text="Yes."))
    server = client(fake, liveness_ms=SILENT_MS, connect_ms=100)
    with pytest.raises(UpstreamError) as raised:
        read(server)
    assert type(raised.value) is fault
    assert assembled(read(server)).content == "Yes."


def test_pings_alone_are_life_enough(fake: FakeLlama) -> None:
    fake.say(Reply(text="Slow.", batch_delay=0.3))
    reply = assembled(read(client(fake, liveness_ms=SILENT_MS), body(sse_ping_interval=0.05)))
    assert reply.content == "Slow."


def test_what_came_before_the_fault_was_handed_on(fake: FakeLlama) -> None:
    fake.say(Reply(text="one two three", vanish_after=2))
    deltas = client(fake).stream(body(), cancel=CancelToken(), on_wait=Told())
    assert next(delta for delta in deltas if isinstance(delta, Text)) == Text(text="one")
    with pytest.raises(ServerLost):
        list(deltas)


def test_a_refusal_names_status_and_reason_but_not_at_length(fake: FakeLlama) -> None:
    fake.say(Refusal(status=400, message="because " * 200, type="invalid_request_error"))
    with pytest.raises(ServerRefused, match="HTTP 400: because because") as refused:
        read(client(fake))
    assert len(str(refused.value)) < 300


def test_a_context_overflow_names_its_sizes(fake: FakeLlama) -> None:
    fake.n_ctx = 64
    with pytest.raises(ContextFull) as full:
        read(client(fake), body([{"role": "user", "content": "word " * 100}]))
    assert full.value.n_ctx == 64
    assert (full.value.n_prompt or 0) >= 100


# -- cancelling a running reply --------------------------------------------------------------------------


def test_cancelling_wins_over_bytes_that_are_there(fake: FakeLlama) -> None:
    fake.say(Reply(text="word " * 500))
    cancel = CancelToken()
    deltas = client(fake).stream(body(), cancel=cancel, on_wait=Told())
    next(deltas)
    cancel.cancel()
    seen: list[Delta] = []
    with pytest.raises(Cancelled):
        seen.extend(deltas)
    # What one read had already brought in may still be handed on; no further read is made.
    assert len(seen) < 500


def test_a_token_that_was_cancelled_before_sends_nothing(fake: FakeLlama) -> None:
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        read(client(fake), cancel=cancel)
    assert fake.completions == []


def test_the_thinking_of_a_running_reply_can_be_ended(fake: FakeLlama) -> None:
    fake.say(Reply(reasoning="one two three four five six", text="Seven.", token_delay=0.01))
    server, assembler = client(fake), Assembler()
    for delta in server.stream(body(), cancel=CancelToken(), on_wait=Told()):
        assembler.feed(delta)
        if isinstance(delta, Reasoning) and delta.text == " two":
            assert server.end_reasoning(assembler.completion_id)
    done = assembler.finish()
    assert (done.reasoning or "").startswith("one two")
    assert "six" not in (done.reasoning or "")
    assert done.content == "Seven."


def test_a_reply_that_is_over_takes_no_order(fake: FakeLlama) -> None:
    assert client(fake).end_reasoning("chatcmpl-none") is False


# -- the questions beside it --------------------------------------------------------------------------------


def test_props_and_slots_are_read(fake: FakeLlama) -> None:
    props = client(fake).props()
    assert (props.n_ctx, props.total_slots, props.model) == (fake.n_ctx, 2, "fake")
    assert "<|im_end|>" in props.template_tags
    assert len(props.template_sha256) == 64
    assert props.defaults.startswith("temperature 0.8, top_p 0.95, top_k 40")
    with fake.busy(1):
        assert [(slot.id, slot.busy, dict(slot.sampling)) for slot in client(fake).slots()] == [
            (0, False, {}),
            (1, True, {}),
        ]


def test_a_prompt_is_counted_without_asking_the_model(fake: FakeLlama) -> None:
    fake.say(Reply(text="Yes."))
    counted = client(fake).count_prompt(body())
    assert fake.completions == []
    assert counted == assembled(read(client(fake))).prompt


QUESTIONS: dict[str, Callable[[ModelServer], object]] = {
    "props": lambda server: server.props(),
    "slots": lambda server: server.slots(),
    "tokenize": lambda server: server.tokenize("a", parse_special=True),
    "count_prompt": lambda server: server.count_prompt(body()),
    "end_reasoning": lambda server: server.end_reasoning("chatcmpl-x"),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_question_fails_with_the_servers_state(fake: FakeLlama, ask: Callable[[ModelServer], object]) -> None:
    fake.loading = True
    with pytest.raises(ModelLoading):
        ask(client(fake))
    fake.loading, fake.frozen = False, True
    with pytest.raises(ServerSilent):
        ask(client(fake, liveness_ms=100))
    fake.kill()
    with pytest.raises(ServerAway):
        ask(client(fake))


CANCELLABLE: dict[str, tuple[str, Callable[[ModelServer, CancelToken], object]]] = {
    "end_reasoning": ("/v1/chat/completions/control", lambda server, cancel: server.end_reasoning("x", cancel=cancel)),
    "props": ("/props", lambda server, cancel: server.props(cancel=cancel)),
    "slots": ("/slots", lambda server, cancel: server.slots(cancel=cancel)),
    "tokenize": ("/tokenize", lambda server, cancel: server.tokenize("a", parse_special=True, cancel=cancel)),
    "count_prompt": ("/apply-template", lambda server, cancel: server.count_prompt(body(), cancel=cancel)),
    "the second half of count_prompt": ("/tokenize", lambda server, cancel: server.count_prompt(body(), cancel=cancel)),
}


@pytest.mark.parametrize(("path", "ask"), CANCELLABLE.values(), ids=CANCELLABLE.keys())
def test_a_question_that_hangs_can_be_cancelled(
    fake: FakeLlama, path: str, ask: Callable[[ModelServer, CancelToken], object]
) -> None:
    cancel = CancelToken()
    fake.frozen_paths.add(path)
    fake.on_request = lambda request: cancel.cancel() if request.path == path else None
    with pytest.raises(Cancelled):
        ask(client(fake), cancel)


@pytest.mark.parametrize(
    "raw", [b"<html>", b'{"tokens": [1,', b"null", b"7", b"[" * 100_000], ids=lambda raw: repr(raw[:6])
)
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_an_answer_that_is_none_is_the_servers_fault(ask: Callable[[ModelServer], object], raw: bytes) -> None:
    with serving(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(raw), raw)) as path:
        server = ModelServer(path, clock=SystemClock(), waits=Waits())
        with pytest.raises(ServerProtocol):
            ask(server)


def test_headers_that_are_cut_off_are_no_answer() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nContent-Le") as path, pytest.raises(ServerProtocol):
        ModelServer(path, clock=SystemClock(), waits=Waits()).props()


class serving:  # noqa: N801 - reads as the verb that it is
    """Answers every connection with the same bytes, then closes it."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._directory = tempfile.TemporaryDirectory(prefix="bxm")
        self._listener = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Path:
        path = Path(self._directory.name) / "m.sock"
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._thread.start()
        return path

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._thread.join()
        self._listener.close()
        self._directory.cleanup()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with closing(connection):
                connection.recv(65_536)
                connection.sendall(self._raw)
