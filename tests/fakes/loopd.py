"""A loopd that says what a test wrote, over the real socket, with the real frames.

Threads: a server's own, below a thread of ours. `asked` holds every request in the order of arrival;
`wait` blocks until one has come. Nothing here knows a turn: a script answers each message type.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bxcore import listener
from bxcore.deadline import SystemClock
from bxcore.ids import CallId, MessageKey, SessionId
from bxcore.server import Door, Request, Server
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnded, TurnEnding
from bxcore.wire.control import ErrorCode, WireFault

T = TypeVar("T")
Script = Callable[[Request], None]
PATIENCE_SECONDS = 30


class FakeLoopd:
    """Serves `<home>/run/loop-owner/loop.sock` while the `with` block lasts."""

    def __init__(self, home: Path, scripts: Mapping[Any, Script]) -> None:
        self.home = home
        self.asked: list[object] = []
        self._changed = threading.Condition()
        self._scripts: dict[type, Script] = {
            channel.LoopStatus: lambda request: request.answer(ready(), final=True),
            **scripts,
        }
        folder = home / "run" / "loop-owner"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o2750)
        self._listening = listener.open_socket(folder / "loop.sock")
        door = Door(
            listening=self._listening,
            name="loop-owner",
            handlers=dict.fromkeys(self._scripts, self._serve),
        )
        self._server = Server([door], clock=SystemClock(), drain_seconds=0)
        self._thread = threading.Thread(target=self._server.serve, name="fake-loopd")

    def __enter__(self) -> "FakeLoopd":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._thread.join()
        self._listening.close()

    def _serve(self, request: Request) -> None:
        with self._changed:
            self.asked.append(request.message)
            self._changed.notify_all()
        self._scripts[type(request.message)](request)

    def of(self, kind: type[T]) -> list[T]:
        """Return the requests of one type so far."""
        with self._changed:
            return [message for message in self.asked if isinstance(message, kind)]

    def wait(self, kind: type[T], count: int = 1) -> T:
        """Return the `count`-th request of a type, waiting for it to come."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self._of(kind)) >= count, PATIENCE_SECONDS)
            assert came, f"no {kind.__name__} number {count} came; asked: {self.asked}"
            return self._of(kind)[count - 1]

    def _of(self, kind: type[T]) -> list[T]:
        return [message for message in self.asked if isinstance(message, kind)]


# -- scripts ---------------------------------------------------------------------------------------


def replies(*events: object) -> Script:
    """Answer every time with these messages, the last one final."""

    def script(request: Request) -> None:
        send(request, events)

    return script


def send(request: Request, events: Iterable[object]) -> None:
    """Send messages, the last one final."""
    *before, last = events
    for event in before:
        request.answer(event, final=False)
    request.answer(last, final=True)


def refuses(code: ErrorCode, detail: str) -> Script:
    return replies(WireFault(code=code, detail=detail))


def answers(*events: object, turn: int = 1) -> Script:
    """Accept a message, then send these events of its turn, the last one final."""

    def script(request: Request) -> None:
        request.answer(accepted(request, turn=turn), final=False)
        send(request, events)

    return script


# -- messages with the fields that a test seldom cares about ---------------------------------------


def ready(waiting_for: str | None = None) -> channel.LoopStatusReport:
    return channel.LoopStatusReport(
        ready=waiting_for is None,
        waiting_for=waiting_for,
        running_turns=0,
        open_sessions=0,
        model="tiny",
        n_ctx=8_192,
        main_slot=0,
        background_slot=1,
    )


def accepted(request: Request, *, turn: int = 1, queued: bool = False) -> channel.MessageAccepted:
    message = request.message
    assert isinstance(message, channel.UserMessage)
    return channel.MessageAccepted(session=message.session, key=message.key, turn=turn, queued=queued, duplicate=False)


def started(*keys: str, turn: int = 1) -> channel.TurnStarted:
    return channel.TurnStarted(turn=turn, keys=tuple(MessageKey(key) for key in keys))


def text(words: str, *, step: int = 1, turn: int = 1) -> channel.TextDelta:
    return channel.TextDelta(turn=turn, step=step, text=words)


def thought(words: str, *, step: int = 1, turn: int = 1) -> channel.ReasoningDelta:
    return channel.ReasoningDelta(turn=turn, step=step, text=words)


def progress(processed: int, *, total: int = 1_000, cached: int = 0, step: int = 1) -> channel.PromptProgress:
    return channel.PromptProgress(turn=1, step=step, total=total, cached=cached, processed=processed)


def called(name: str, arguments: str, *, call: int = 1) -> channel.ToolCalled:
    return channel.ToolCalled(turn=1, call=CallId(call), name=name, arguments=arguments)


def returned(name: str, content: str, *, call: int = 1, ok: bool = True) -> channel.ToolReturned:
    return channel.ToolReturned(turn=1, call=CallId(call), name=name, ok=ok, content=content, truncated=False)


def notice(code: str, words: str) -> channel.TurnNotice:
    return channel.TurnNotice(turn=1, code=code, text=words)


def ended(
    words: str, *, ending: TurnEnding = TurnEnding.ANSWERED, sentence: str | None = None, turn: int = 1
) -> TurnEnded:
    return TurnEnded(
        turn=turn,
        ending=ending,
        text=words,
        sentence=sentence,
        steps=1,
        prompt=120,
        cached=100,
        read=20,
        output=7,
        elapsed_ms=1_234,
    )


def record(line: int, text_of_line: str, *, more: bool = False) -> channel.SessionRecord:
    return channel.SessionRecord(epoch=1, line=line, text=text_of_line, more=more)


def session(name: str) -> SessionId:
    return SessionId(name)
