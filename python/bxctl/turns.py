"""One message to loopd and everything until its turn ends, whatever happens on the way.

Threads: a pump reads loopd's events into the inbox and one more sends a cancel; the main thread
alone draws. Ctrl-C is a word in the inbox, not an exception, so that no event is drawn by half.
Invariant: a message is sent again only while loopd has not said that it is on disk, and always
with the same key, so it is said once.
"""

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from types import FrameType

import attrs

from bxcore import client, ids
from bxcore.deadline import Clock, Deadline
from bxcore.errors import BoxmakerError
from bxcore.ids import MessageKey, SessionId
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnded
from bxcore.wire.control import ErrorCode
from bxctl.events import View
from bxctl.loopport import TURN_MS, LoopPort, wait_until_ready

LEAVE_WITHIN_MS = 2_000
"""A second Ctrl-C within this time leaves."""

_TICK_SECONDS = 0.2
_LOSSES = 5
"""Connections that may be lost in a row without an event in between."""
_TRY_AGAIN = (ErrorCode.LAGGED.value, ErrorCode.NOT_READY.value)


class Leave(Exception):
    """The owner wants to be gone, although the turn may not have ended."""


class Key(Enum):
    """What the owner pressed."""

    CTRL_C = "ctrl-c"


@attrs.frozen(kw_only=True)
class Broken:
    """The pump ended early."""

    error: BoxmakerError


@attrs.frozen(kw_only=True)
class CancelAnswer:
    """What became of a cancel."""

    noted: channel.TurnCancelNoted | None
    error: BoxmakerError | None


Inbox = queue.SimpleQueue[object]
"""SimpleQueue, since its put() may be called from a signal handler in the middle of its get()."""


@contextlib.contextmanager
def ctrl_c_into(inbox: Inbox) -> Iterator[None]:
    """While this lasts, Ctrl-C puts a word into `inbox` and interrupts nothing."""

    def press(_number: int, _frame: FrameType | None) -> None:
        inbox.put(Key.CTRL_C)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


Peek = Callable[[], object]
"""Returns what has come since and is dealt with next, None while there is nothing: a question is open until then."""

Ask = Callable[[channel.ApprovalPending, Peek], None]
"""Shows a question to the owner."""


def _nobody_asks(_event: channel.ApprovalPending, _peek: Peek) -> None:
    """Leave the question to another program."""


class TurnRun:
    """Says one message and follows its turn to the end. Used once, from the main thread."""

    def __init__(
        self,
        port: LoopPort,
        view: View,
        clock: Clock,
        *,
        session: SessionId,
        new: bool,
        wait_ms: int,
        ask: Ask = _nobody_asks,
    ) -> None:
        self._ask = ask
        self._port = port
        self._view = view
        self._clock = clock
        self._session = session
        self._new = new
        self._wait_ms = wait_ms
        self._key: MessageKey = ids.new_message_key()
        self._inbox: Inbox = queue.SimpleQueue()
        self._peeked: object = None
        self._turn: int | None = None
        self._losses = 0
        self._pressed_ms: int | None = None
        self._cancel_wanted = False
        self._canceller: threading.Thread | None = None

    @property
    def accepted(self) -> bool:
        """Whether loopd has the message on disk."""
        return self._turn is not None

    def run(self, text: str) -> TurnEnded:
        """Say `text` and return how its turn ended.

        Raises Leave, client.RemoteFault where loopd refuses, LoopAway where it stays away.
        """
        message = channel.UserMessage(session=self._session, new=self._new, key=self._key, text=text)
        with ctrl_c_into(self._inbox):
            self._pump(message)
            while True:
                item = self._next()
                if isinstance(item, Broken):
                    self._recover(item.error, message)
                elif ended := self._take(item):
                    return ended

    # -- what comes in ---------------------------------------------------------------------------

    def _peek(self) -> object:
        if self._peeked is None:
            with contextlib.suppress(queue.Empty):
                self._peeked = self._inbox.get_nowait()
        return self._peeked

    def _next(self) -> object:
        peeked, self._peeked = self._peeked, None
        if peeked is not None:
            return peeked
        while True:
            try:
                return self._inbox.get(timeout=_TICK_SECONDS)
            except queue.Empty:
                self._view.tick()

    def _take(self, item: object) -> TurnEnded | None:
        match item:
            case Key.CTRL_C:
                self._interrupted()
            case CancelAnswer():
                self._cancel_answered(item)
            case channel.MessageAccepted():
                self._turn = item.turn
                self._view.show(item)
                if self._cancel_wanted:
                    self._cancel()
            case channel.TurnSnapshot():  # no sign yet that this connection will last
                self._view.show(item)
            case TurnEnded():
                self._view.show(item)
                return item
            case channel.ApprovalPending():
                self._losses = 0
                self._view.show(item)
                if not self._cancel_wanted:
                    self._ask(item, self._peek)
            case _:
                self._losses = 0
                self._view.show(item)
        return None

    def _pump(self, message: object) -> None:
        def read() -> None:
            # Whatever ends the events is told: the other thread waits for a word, not for this one.
            end: BoxmakerError = client.PeerUnclear("loopd ended the events before the turn had ended")
            try:
                for event in self._port.ask(message, idle_ms=TURN_MS):
                    self._inbox.put(event)
                    if isinstance(event, TurnEnded):
                        return
            except BoxmakerError as error:
                end = error
            except Exception as fault:  # noqa: BLE001  # the thread's outermost frame
                end = client.PeerUnclear(f"the events could not be read ({type(fault).__name__})")
            self._inbox.put(Broken(error=end))

        threading.Thread(target=read, name="events", daemon=True).start()

    # -- a connection that broke -----------------------------------------------------------------

    def _recover(self, error: BoxmakerError, message: channel.UserMessage) -> None:
        """Ask again for what the broken connection would have brought, or raise `error`."""
        refused = isinstance(error, client.RemoteFault)
        if refused and error.code == ErrorCode.SESSION_EXISTS.value and self._losses and message.new:
            # The first sending made the session and died before it could say so.
            self._new = False
        elif isinstance(error, client.PeerUnclear) or (refused and error.code not in _TRY_AGAIN):
            raise error
        # Silence alone is no loss: a turn may wait long behind others. We look whether loopd is still there.
        lost = not isinstance(error, client.PeerSilent)
        self._losses += lost
        if self._losses > _LOSSES:
            raise error
        if self.accepted and lost:
            self._view.tell(f"the connection to loopd was lost: {error.detail}")
        self._wait()
        if self._turn is None:
            self._pump(attrs.evolve(message, new=self._new))
        else:
            self._pump(channel.TurnFollow(session=self._session, turn=self._turn))

    def _wait(self) -> None:
        deadline = Deadline.after(self._clock, milliseconds=self._wait_ms)
        wait_until_ready(self._port, deadline, tell=self._waiting, pause=self._pause)

    def _waiting(self, reason: str) -> None:
        self._view.wait(f"waiting for loopd: {reason}")

    def _pause(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            item = self._inbox.get(timeout=seconds)
            if item is Key.CTRL_C:
                raise Leave

    # -- Ctrl-C ------------------------------------------------------------------------------------

    def _interrupted(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._pressed_ms is not None and now_ms - self._pressed_ms <= LEAVE_WITHIN_MS:
            if self._canceller is not None:
                self._canceller.join(timeout=LEAVE_WITHIN_MS / 1000)
            raise Leave
        self._pressed_ms = now_ms
        self._view.tell("cancelling (Ctrl-C again leaves)")
        self._view.hush()
        self._cancel()

    def _cancel(self) -> None:
        turn = self._turn
        self._cancel_wanted = turn is None
        if turn is None:
            return

        def ask() -> None:
            try:
                self._inbox.put(CancelAnswer(noted=self._port.cancel(self._session, turn), error=None))
            except BoxmakerError as error:
                self._inbox.put(CancelAnswer(noted=None, error=error))

        self._canceller = threading.Thread(target=ask, name="cancel", daemon=True)
        self._canceller.start()

    def _cancel_answered(self, answer: CancelAnswer) -> None:
        if answer.error is not None:
            self._view.tell(f"could not cancel: {answer.error.detail}")
            self._view.resume()
        elif answer.noted is not None and answer.noted.turn is None:
            self._view.tell("nothing was stopped: your turn was not the one that runs")
            self._view.resume()
