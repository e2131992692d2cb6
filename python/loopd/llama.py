"""The model server, as loopd sees it: one streamed completion, and the few questions asked beside it.

Reads and writes: the Unix socket of inferproxy. Invariant: nothing here asks the model anything but
what `stream` was given, and a stream that was left or cancelled has its connection closed
at once, which frees the slot. Threads: stateless, so any number. Specified in docs/inference-contract.md.
"""

import json
import select
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bxcore.deadline import Clock, Deadline
from bxcore.errors import UpstreamError
from bxcore.wire.channel import WaitReason
from loopd import modelfaults, serverinfo, sse, stream
from loopd.cancel import CancelToken
from loopd.modelfaults import (
    ModelLoading,
    ServerAway,
    ServerProtocol,
    ServerSilent,
)
from loopd.serverinfo import Props, SlotState
from loopd.stream import Delta
from loopd.unixhttp import Guard, HttpExchange, Timer
from loopd.waits import Liveness, Look, OnWait, Patience, Queue, Until, Waits

_MAX_ANSWER = 8 * 1024 * 1024
"""Bytes of one JSON answer; the tokens of a full context as JSON make one MB or two."""

_LOOK_MS = 1_000
_ORDER_MS = 2_000
_LOADING_LOOK_MS = 500
_AWAY_RETRY_MS = 250


class _HeadersCame(Exception):
    """The request left the queue while we looked at the slots."""


class ModelServer:
    """Speaks to one llama-server through a Unix socket. `model` names the model where a router serves several."""

    def __init__(self, socket_path: Path, *, clock: Clock, waits: Waits, model: str = "") -> None:
        self._path, self._clock, self._waits, self._model = socket_path, clock, waits, model

    def stream(self, body: bytes, *, cancel: CancelToken, on_wait: OnWait) -> Generator[Delta, None, None]:
        """Send the completion request `body` and yield its deltas, Finished last.

        Closing the iterator gives the request up. Raises the errors of loopd.modelfaults; each is final.
        """
        with cancel.waking() as wake:
            call = _Call(body, cancel=cancel, wake=wake, on_wait=on_wait)
            with closing(self._accepted(call)) as exchange:
                alive = Liveness(self._clock, limit_ms=self._waits.liveness_ms, stall_ms=self._waits.stall_ms)
                exchange.guard.timer = alive
                if exchange.content_type != "text/event-stream":
                    raise ServerProtocol(
                        f"the model server answered {exchange.content_type or 'nothing'}, not a stream"
                    )
                for delta in stream.deltas(exchange.pieces()):
                    alive.moved()
                    yield delta

    # The orders and questions below raise ModelLoading while the server is not ready, and Cancelled.

    def end_reasoning(self, completion_id: str, *, cancel: CancelToken | None = None) -> bool:
        """Tell a running completion to stop thinking; say whether the server took the order."""
        order = self._naming_model({"id": completion_id, "action": "reasoning_end"})
        # The reply streams on meanwhile and is read by the same thread: a late answer is none.
        answer = self._ask("POST", "/v1/chat/completions/control", order, cancel=cancel, limit_ms=_ORDER_MS)
        return _object(answer).get("success") is True

    def props(self, *, cancel: CancelToken | None = None) -> Props:
        """Return what the server serves."""
        return serverinfo.props(_object(self._ask("GET", self._of_model("/props"), cancel=cancel)))

    def slots(self, *, cancel: CancelToken | None = None) -> tuple[SlotState, ...]:
        """Return the state of each slot. Not more often than every 2 s: see docs/inference-contract.md."""
        return serverinfo.slots(self._ask("GET", self._of_model("/slots"), cancel=cancel))

    def tokenize(self, text: str, *, parse_special: bool, cancel: CancelToken | None = None) -> tuple[int, ...]:
        """Return the model's tokens of `text`, without the ones that begin every prompt."""
        return self._tokens({"content": text, "add_special": False, "parse_special": parse_special}, cancel)

    def count_prompt(self, body: bytes, *, cancel: CancelToken | None = None) -> int:
        """Return how many tokens the prompt of a completion request has. The model is not asked."""
        prompt = serverinfo.prompt(_object(self._ask("POST", "/apply-template", body, cancel=cancel)))
        return len(self._tokens({"content": prompt, "add_special": True, "parse_special": True}, cancel))

    # -- one completion: through the queue ------------------------------------------------------

    def _accepted(self, call: "_Call") -> HttpExchange:
        """Return the exchange once a slot has taken the request. Waits for a loading model, retries briefly."""
        loading = Patience(self._clock, limit_ms=self._waits.load_ms)
        away = Patience(self._clock, limit_ms=self._waits.connect_ms)
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                return self._send(call)
            except ModelLoading as fault:
                self._until_loaded(call, loading, fault)
            except ServerAway as fault:
                # Lost after it had waited for long: the server broke with our request in its hands,
                # and may break again. Nobody is helped by sending it a second time.
                if self._clock.monotonic_ms() - began_ms > self._waits.connect_ms:
                    raise
                with away.spent(fault) as left_ms:
                    call.on_wait(WaitReason.SERVER_AWAY, away.spent_ms, self._waits.connect_ms)
                    call.pause(min(_AWAY_RETRY_MS, left_ms))

    def _send(self, call: "_Call") -> HttpExchange:
        def look() -> Look:
            return self._look(call, guard.waiting_on)

        queue = Queue(self._clock, self._waits, look=look, on_wait=call.on_wait)
        guard = Guard(queue, call.interrupts, most_bytes=sse.MAX_STREAM)
        exchange = HttpExchange(self._path, method="POST", target="/v1/chat/completions", body=call.body, guard=guard)
        if exchange.status == 200:
            return exchange
        with closing(exchange):
            exchange.guard.timer = self._until(self._waits.liveness_ms)
            raise modelfaults.from_answer(serverinfo.loads(exchange.read(limit=_MAX_ANSWER)), status=exchange.status)

    def _until_loaded(self, call: "_Call", patience: Patience, loading: UpstreamError) -> None:
        """Poll /health until it no longer says that the model is loading."""
        while True:
            with patience.spent(loading) as left_ms:
                call.on_wait(WaitReason.MODEL_LOADING, patience.spent_ms, self._waits.load_ms)
                call.pause(min(_LOADING_LOOK_MS, left_ms))
                try:
                    _object(self._json("GET", "/health", None, self._guard(_LOOK_MS, call.interrupts)))
                    return
                except UpstreamError as fault:
                    call.cancel.check()
                    # Also where nobody answers: a server that restarts is away for a moment, and the
                    # patience bounds this as well.
                    loading = fault

    def _look(self, call: "_Call", fd: int) -> Look:
        """Ask /slots about the slot that `call` waits for; leave off as soon as `fd` has something to read."""
        guard = self._guard(_LOOK_MS, {**call.interrupts, fd: _headers_came})
        try:
            slots = serverinfo.slots(self._json("GET", self._of_model("/slots"), None, guard))
        except _HeadersCame:
            return Look.UNKNOWN
        except ModelLoading:
            return Look.LOADING
        except UpstreamError:
            call.cancel.check()
            return Look.UNKNOWN
        mine = [slot.busy for slot in slots if slot.id == call.slot] or [slot.busy for slot in slots]
        return Look.BUSY if all(mine) else Look.FREE

    # -- questions beside it ----------------------------------------------------------------------

    def _ask(
        self, method: str, target: str, body: bytes | None = None, *, cancel: CancelToken | None, limit_ms: int = 0
    ) -> object:
        token, limit_ms = cancel or CancelToken(), limit_ms or self._waits.liveness_ms
        with token.waking() as wake:
            return self._json(method, target, body, self._guard(limit_ms, {wake: token.check}))

    def _json(self, method: str, target: str, body: bytes | None, guard: Guard) -> object:
        """Return the JSON that answers, or raise: ServerAway, ServerSilent, ServerRefused and the like."""
        with closing(HttpExchange(self._path, method=method, target=target, body=body, guard=guard)) as exchange:
            untrusted = serverinfo.loads(exchange.read(limit=_MAX_ANSWER))
            if exchange.status != 200:
                raise modelfaults.from_answer(untrusted, status=exchange.status)
            return untrusted

    def _tokens(self, question: Mapping[str, object], cancel: CancelToken | None) -> tuple[int, ...]:
        return serverinfo.tokens(_object(self._ask("POST", "/tokenize", self._naming_model(question), cancel=cancel)))

    def _guard(self, milliseconds: int, interrupts: Mapping[int, Callable[[], None]]) -> Guard:
        return Guard(self._until(milliseconds), interrupts, most_bytes=_MAX_ANSWER)

    def _until(self, milliseconds: int) -> Timer:
        fault = ServerSilent(f"the model server did not answer within {milliseconds} ms")
        return Until(Deadline.after(self._clock, milliseconds=milliseconds), fault)

    # A router answers for itself unless it is told which of its models is meant.

    def _naming_model(self, question: Mapping[str, object]) -> bytes:
        named = {"model": self._model, **question} if self._model else question
        return json.dumps(named).encode()

    def _of_model(self, target: str) -> str:
        return f"{target}?model={quote(self._model, safe='')}" if self._model else target


class _Call:
    """One completion request on its way: what every wait for it needs."""

    def __init__(self, body: bytes, *, cancel: CancelToken, wake: int, on_wait: OnWait) -> None:
        self.body, self.cancel, self.wake, self.on_wait = body, cancel, wake, on_wait
        self._slot: tuple[int | None] | None = None

    @property
    def slot(self) -> int | None:
        """The slot that the request is pinned to. Read out of the body only when somebody has to wait."""
        if self._slot is None:
            body = serverinfo.loads(self.body)
            slot = body.get("id_slot") if isinstance(body, dict) else None
            self._slot = (slot if type(slot) is int else None,)
        return self._slot[0]

    @property
    def interrupts(self) -> Mapping[int, Callable[[], None]]:
        """What makes a wait for this call end: cancelling it."""
        return {self.wake: self.cancel.check}

    def pause(self, milliseconds: int) -> None:
        """Sleep; raises Cancelled."""
        poll = select.poll()  # not select(): descriptors may lie beyond 1023
        poll.register(self.wake, select.POLLIN)
        poll.poll(milliseconds)
        self.cancel.check()


def _object(untrusted: object) -> dict[str, Any]:
    if not isinstance(untrusted, dict):
        raise ServerProtocol("the model server's answer is not an object")
    return untrusted


def _headers_came() -> None:
    raise _HeadersCame
