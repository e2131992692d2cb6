"""A llama-server that says what a test tells it to, and otherwise behaves like the real one.

Slots queue, prompts are cached token by token, long prompts are read in batches, errors have the
server's own shapes. tests/contract runs the same questions against this and against the real
server: where they differ, this one is wrong. Threads: one a connection; `requests` grows under no
lock, since list.append needs none.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.fakes.llama import checks, text
from tests.fakes.llama.checks import Refused
from tests.fakes.llama.generation import Generation, Vanished
from tests.fakes.llama.http import Exchange, Listener
from tests.fakes.llama.script import Answer, Call, Pause, Refusal, Reply, Script, Vanish
from tests.fakes.llama.slots import Slot, Slots

__all__ = ["Call", "FakeLlama", "Pause", "Recorded", "Refusal", "Reply", "Vanish"]


PING_SECONDS = 30.0


@attrs.frozen
class Recorded:
    """A request as it came in; `target` is its path with its query."""

    target: str
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class FakeLlama:
    """Use as a context manager. `script` is a list of replies in order, or a function of the messages.

    A completion that the script has no reply for is answered HTTP 500, so that the test notices.
    `loading` and `template` may be set at any time; `frozen`, or a path among `frozen_paths`, makes the
    server take requests and say nothing. `on_request` hears of each request before it is served. `forced`
    are settings that it uses whatever the request says; `special` is what it takes for special tokens.
    """

    def __init__(
        self,
        where: Path | tuple[str, int] = ("127.0.0.1", 0),
        script: Script = (),
        *,
        slots: int = 2,
        n_ctx: int = 8_192,
        n_batch: int = 256,
        model: str = "fake",
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.where, self._script = where, script if callable(script) else iter(script)
        self.slot_count, self.n_ctx, self.n_batch, self.model = slots, n_ctx, n_batch, model
        self.defaults = dict(defaults or {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "max_tokens": -1})
        self.template = "{{- '<|im_start|>' + role + '\\n' + text + '<|im_end|>' }} <tool_call> <think>"
        self.loading = False
        self.frozen = False
        self.frozen_paths: set[str] = set()
        self.forced: dict[str, Any] = {}
        self.special = text.SPECIAL
        self.on_request: Callable[[Recorded], object] = lambda _: None
        self.requests: list[Recorded] = []
        self._script_lock = threading.Lock()
        self._running: dict[str, Generation] = {}
        self._listener: Listener | None = None
        self.slots = Slots(slots)

    # -- for tests ------------------------------------------------------------------------------

    def __enter__(self) -> "FakeLlama":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Listen, with nothing cached."""
        self.slots = Slots(self.slot_count)
        if isinstance(self.where, Path):
            self.where.unlink(missing_ok=True)
        self._listener = Listener(self.where, self._route)
        if not isinstance(self.where, Path):
            address = self._listener.address
            self.where = (str(address[0]), int(address[1]))  # the same again after a restart

    def kill(self) -> None:
        """Break every connection and listen no more."""
        if self._listener is not None:
            self.slots.close()
            self._listener.close()
            self._listener = None

    @property
    def listening(self) -> bool:
        return self._listener is not None

    @property
    def url(self) -> str:
        assert not isinstance(self.where, Path)
        return f"http://{self.where[0]}:{self.where[1]}"

    @property
    def completions(self) -> list[bytes]:
        """The body of every completion request, in order of arrival."""
        return [request.body for request in self.requests if request.path == "/v1/chat/completions"]

    def say(self, *answers: Answer) -> None:
        """Go on with another list of replies."""
        with self._script_lock:
            self._script = iter(answers)

    @contextmanager
    def busy(self, slot: int) -> Iterator[Slot]:
        """Another client is served on the slot."""
        with self.slots.held(slot, []) as held:
            yield held

    # -- routes ---------------------------------------------------------------------------------

    def _route(self, exchange: Exchange) -> None:
        request = Recorded(exchange.path, exchange.body)
        path = request.path
        self.requests.append(request)
        self.on_request(request)
        if self.frozen or path in self.frozen_paths:
            exchange.wait(float("inf"))
        routes = {
            ("GET", "/health"): self._health,
            ("GET", "/props"): self._props,
            ("GET", "/slots"): self._slots,
            ("GET", "/v1/models"): self._models,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/apply-template"): self._apply_template,
            ("POST", "/v1/chat/completions"): self._complete,
            ("POST", "/v1/chat/completions/control"): self._control,
        }
        try:
            if self.loading:
                raise Refused(503, "Loading model", "unavailable_error")
            routes.get((exchange.command, path), _unknown)(exchange)
        except Refused as refused:
            exchange.answer({"error": dict(refused.error)}, status=refused.status)

    def _health(self, exchange: Exchange) -> None:
        exchange.answer({"status": "ok"})

    def _props(self, exchange: Exchange) -> None:
        exchange.answer(
            {
                "default_generation_settings": {"params": self.defaults, "n_ctx": self.n_ctx},
                "total_slots": self.slot_count,
                "model_alias": self.model,
                "model_path": f"/models/{self.model}.gguf",
                "chat_template": self.template,
                "build_info": "fake",
                "is_sleeping": False,
            }
        )

    def _slots(self, exchange: Exchange) -> None:
        shown = []
        for slot in self.slots.all:
            basis = {"id": slot.id, "n_ctx": self.n_ctx, "speculative": False, "is_processing": slot.busy}
            shown.append(basis if slot.task is None else {**basis, **slot.task})
        exchange.answer(shown)

    def _models(self, exchange: Exchange) -> None:
        exchange.answer({"object": "list", "data": [{"id": self.model, "meta": {"n_ctx": self.n_ctx}}]})

    def _tokenize(self, exchange: Exchange) -> None:
        asked = json.loads(exchange.body)
        parse_special = asked.get("parse_special", True)
        tokens = text.tokenize(asked["content"], special=self.special if parse_special else "")
        exchange.answer({"tokens": tokens})

    def _apply_template(self, exchange: Exchange) -> None:
        exchange.answer({"prompt": checks.render(checks.parse(exchange.body))})

    def _control(self, exchange: Exchange) -> None:
        asked = json.loads(exchange.body)
        if "id" not in asked:
            raise Refused(400, "missing completion id")
        if asked.get("action") != "reasoning_end":
            raise Refused(400, "unknown control action")
        running = self._running.get(asked["id"])
        if running is not None and running.controllable:
            running.end_reasoning()
            exchange.answer({"success": True})
            return
        said = (
            "no active completion for this id"
            if running is None
            else "reasoning control not enabled for this completion"
        )
        exchange.answer({"success": False, "message": said})

    # -- a completion ---------------------------------------------------------------------------

    def _complete(self, exchange: Exchange) -> None:
        request = checks.parse(exchange.body)
        tokens = text.tokenize(checks.render(request))
        checks.check_length(len(tokens), self.n_ctx)
        if request.get("stream") is not True:
            raise Refused(501, "the fake only streams", "fake")
        match self._next_answer(request["messages"]):
            case Vanish():
                exchange.vanish()
            case Refusal(body=None) as said:
                raise Refused(said.status, said.message, said.type)
            case Refusal() as said:
                exchange.answer_raw(said.body or b"", status=said.status)
            case Reply() as reply:
                self._stream(exchange, request, tokens, reply)

    def _stream(self, exchange: Exchange, request: dict[str, Any], tokens: list[int], reply: Reply) -> None:
        with self.slots.held(request.get("id_slot"), tokens) as slot:
            used = {name: request.get(name, default) for name, default in self.defaults.items()} | self.forced
            slot.task = {"id_task": 1, "n_prompt_tokens": len(tokens), "params": used}
            generation = Generation(request, tokens, slot, reply, model=self.model)
            self._running[generation.id] = generation
            exchange.begin_stream()
            try:
                wait = _pinging(exchange, request.get("sse_ping_interval", PING_SECONDS))
                generation.run(n_batch=self.n_batch, n_ctx=self.n_ctx, send=exchange.send, wait=wait)
                exchange.end_stream()
            except Vanished:
                exchange.vanish()
            finally:
                del self._running[generation.id]

    def _next_answer(self, messages: list[dict[str, Any]]) -> Answer:
        with self._script_lock:
            if callable(self._script):
                return self._script(messages)
            return next(self._script, Refusal(message="the fake's script has no reply left"))


def _pinging(exchange: Exchange, interval: float) -> Callable[[float], None]:
    """Let time pass in a stream: a comment goes out after each stretch of silence."""

    def wait(seconds: float) -> None:
        while seconds > interval > 0:
            exchange.wait(interval)
            exchange.send(b":\n\n")
            seconds -= interval
        exchange.wait(seconds)

    return wait


def _unknown(_: Exchange) -> None:
    raise Refused(404, "File Not Found", "not_found_error")
