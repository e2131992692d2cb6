"""What gatewayd asks loopd: to take a post, how a turn goes on and ends, to stop one, and how loopd is.

Each request has a connection of its own. Raises bxcore.client's errors, RemoteFault where loopd refuses, and Stopped.
Threads: any number at a time; `stop` ends the waits of all of them, also of those that begin later.
"""

import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import attrs

from bxcore.client import Connection, PeerSilent, PeerUnclear
from bxcore.deadline import Clock, Deadline
from bxcore.envelope import Envelope
from bxcore.ids import SessionId
from bxcore.wire import channel
from gatewayd.entries import Incoming

Answer = TypeVar("Answer")

REPLY_MS = 10_000
"""The longest wait for an answer that needs no model."""
SILENCE_MS = 180_000
"""A turn that says nothing for so long is looked up anew: loopd may be gone without a word."""


class Stopped(Exception):
    """gatewayd is stopping."""


@attrs.frozen(kw_only=True)
class Ended:
    """A turn that is over: its whole text, and the sentence of any ending but an ordinary answer."""

    text: str
    sentence: str | None


class LoopPort:
    """loopd's socket for gatewayd."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._stop_in, self._stop_out = socket.socketpair()

    def stop(self) -> None:
        """End every wait. May be called twice, and not after close."""
        self._stop_in.send(b".")  # never read: every wait sees it

    def close(self) -> None:
        """Give the descriptors back. Only where no thread uses this any more."""
        self._stop_in.close()
        self._stop_out.close()

    def say(self, post: Incoming, *, new: bool) -> channel.MessageAccepted:
        """Say a post; return once it is on loopd's disk. The turn goes on without us."""
        message = channel.UserMessage(session=post.session, new=new, key=post.key, text=post.text)
        return self._one(message, channel.MessageAccepted)

    def cancel(self, session: SessionId, turn: int = 0) -> int | None:
        """Stop a turn (0: whichever runs); return its number, None where it was not running."""
        return self._one(channel.TurnCancel(session=session, turn=turn), channel.TurnCancelNoted).turn

    def status(self) -> channel.LoopStatusReport:
        """Return how loopd is; it answers this before it is ready."""
        return self._one(channel.LoopStatus(), channel.LoopStatusReport)

    def follow(self, session: SessionId, turn: int, *, found: Callable[[], None]) -> Ended:
        """Wait for a turn's end, for as long as it takes. `found` is called when loopd has found the turn."""
        front: list[str] = []
        message = channel.TurnFollow(session=session, turn=turn)
        with Connection(self._path, clock=self._clock) as connection:
            for answer in self._answers(connection, message, silence_ms=SILENCE_MS):
                match answer.msg:
                    case channel.TurnSnapshot():
                        found()
                    case channel.AnswerPart() as part:
                        front.append(part.text)
                    case channel.TurnEnded() as end:
                        return Ended(text="".join((*front, end.text)), sentence=end.sentence)
        raise PeerUnclear("loopd ended the events before the turn had ended")

    def _one(self, message: object, kind: type[Answer]) -> Answer:
        with Connection(self._path, clock=self._clock) as connection:
            for answer in self._answers(connection, message, silence_ms=REPLY_MS):
                if isinstance(answer.msg, kind):
                    return answer.msg
                break
        raise PeerUnclear(f"loopd answered {type(message).__name__} with something else")

    def _answers(self, connection: Connection, message: object, *, silence_ms: int) -> Iterator[Envelope]:
        answers = connection.request(message)
        while True:
            self._wait(connection, silence_ms)
            answer = next(answers, None)
            if answer is None:
                return
            yield answer
            if answer.final:
                return  # or we would wait for more of what is over

    def _wait(self, connection: Connection, silence_ms: int) -> None:
        """Return once loopd says something."""
        waits = select.poll()
        waits.register(connection.fileno(), select.POLLIN)
        waits.register(self._stop_out.fileno(), select.POLLIN)
        deadline = Deadline.after(self._clock, milliseconds=silence_ms)
        ready = [descriptor for descriptor, _ in waits.poll(deadline.remaining_ms())]
        if self._stop_out.fileno() in ready:
            raise Stopped
        if not ready:
            raise PeerSilent(f"loopd said nothing for {silence_ms} ms")
