"""The channel of a Loop on a real socket, and what a client needs to speak with it."""

import threading
from pathlib import Path
from typing import Any

import pytest

from bxcore import listener
from bxcore.client import Connection, RemoteFault
from bxcore.deadline import SystemClock
from bxcore.ids import MessageKey, SessionId
from bxcore.server import Door, Server
from bxcore.wire import channel as wire
from bxcore.wire.kinds import KIND_OF
from loopd import channel as channel_module
from loopd.channel import Channel
from loopd.reports import Reports
from loopd.selftest import Check
from loopd.watch import ServerWatch
from tests.fakes.loop import PATIENCE_SECONDS, Loop
from tests.fakes.scripted_model import Script, answer

S = SessionId("s")
IDLE_MS = PATIENCE_SECONDS * 1000


class Served:
    """The channel of a Loop on a real socket."""

    def __init__(
        self, directory: Path, loop: Loop, *, ready: bool = True, max_connections: int = 200, gateway: bool = False
    ) -> None:
        self.loop, self.path = loop, directory / "loop.sock"
        self.checks: list[Check] = []
        self.watch = ServerWatch(
            server=loop.model,
            settings=loop.parts.settings,
            clock=loop.clock,
            test=lambda _cancel, _on_wait: list(self.checks),
        )
        if ready:
            self.watch.start(on_ready=lambda: None, on_failure=lambda: None).join(PATIENCE_SECONDS)
            assert self.watch.ready
        channel = Channel(loop.parts, sessions=loop.sessions, reports=Reports(loop.store), watch=self.watch)
        self.listening = listener.open_socket(self.path)
        door = Door(
            listening=self.listening,
            name="loop-owner",
            handlers=channel.gateway_handlers() if gateway else channel.handlers(),
            max_connections=max_connections,
            reserved=channel_module.RESERVED,
            reserved_connections=channel_module.RESERVED_CONNECTIONS,
        )
        self.server = Server([door], clock=SystemClock(), drain_seconds=2)
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def close(self) -> None:
        self.server.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        self.listening.close()
        self.loop.close()

    def dial(self) -> Connection:
        return Connection(self.path, clock=SystemClock())

    def ask(self, message: object) -> list[Any]:
        """Ask on a connection of its own; return the messages. Raises RemoteFault."""
        with self.dial() as connection:
            answers = list(connection.request(message, idle_ms=IDLE_MS))
        assert [frame.final for frame in answers] == [*[False] * (len(answers) - 1), True]
        return [frame.msg for frame in answers]

    def say(self, text: str, *, key: str = "k1", new: bool = True, session: str = "s") -> list[Any]:
        return self.ask(said(text, key=key, new=new, session=session))

    def refused(self, message: object) -> RemoteFault:
        with pytest.raises(RemoteFault) as refused:
            self.ask(message)
        return refused.value


def said(text: str, *, key: str = "k1", new: bool = True, session: str = "s") -> wire.UserMessage:
    return wire.UserMessage(session=SessionId(session), new=new, key=MessageKey(key), text=text)


def kinds(messages: list[Any]) -> list[str]:
    return [KIND_OF[type(message)] for message in messages]


class Hold:
    """An answer that stands still in its middle until it is let go."""

    def __init__(self, text: str = "Hello") -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        script = list(answer(text))
        self.script: Script = [*script[:3], self._hold, *script[3:]]

    def _hold(self) -> None:
        self.reached.set()
        assert self.go.wait(PATIENCE_SECONDS)

    def wait(self) -> None:
        assert self.reached.wait(PATIENCE_SECONDS)
