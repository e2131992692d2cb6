"""A question that comes up in the middle of a turn: shown in `bxctl chat`, and answered by typing its number.

The block comes from brokerd by number, never from loopd's event. What was typed before the block was
on the screen answers nothing. Ctrl-C, an expiry, or an answer given elsewhere takes the question away.
"""

import contextlib
import os
import select
import sys
import termios
from collections.abc import Callable, Iterator
from enum import Enum

import attrs

from bxcore.client import RemoteFault
from bxcore.errors import BoxmakerError
from bxcore.wire import admin
from bxcore.wire.channel import ApprovalPending
from bxctl import approvals, chat_terminal, render
from bxctl.adminport import AdminPort
from bxctl.render import Ink, Screen
from bxctl.sockets import Home

_LOOK_SECONDS = 0.2
_LONGEST_LINE = 4_096

StillOpen = Callable[[], bool]
"""Says whether nothing has come from loopd since the question: the next event means that it is over."""


class Said(Enum):
    """What a typed line means."""

    YES = "yes"
    NO = "no"
    LATER = "later"
    UNCLEAR = "unclear"


@attrs.frozen(kw_only=True)
class Heard:
    """A typed line, read. `reason` is what stood behind a no."""

    said: Said
    reason: str | None = None


def read(line: str, approval: int) -> Heard:
    """Return what `line` answers to question `approval`: its number and nothing else is a yes."""
    words = line.strip()
    if words == str(approval):
        return Heard(said=Said.YES)
    if not words:
        return Heard(said=Said.LATER)
    first, _, rest = words.partition(" ")
    if first.lower() in ("n", "no", "deny", "/deny"):
        reason = rest.strip().removeprefix(str(approval)).strip() if first.lower().endswith("deny") else rest.strip()
        return Heard(said=Said.NO, reason=reason or None)
    return Heard(said=Said.UNCLEAR)


class Questioner:
    """Asks on a terminal."""

    def __init__(self, port: AdminPort, screen: Screen, home: Home) -> None:
        self._port = port
        self._screen = screen
        self._home = home

    def ask(self, event: ApprovalPending, still_open: StillOpen) -> None:
        """Show the question, and answer it if the owner does. Never raises: a chat goes on without an answer."""
        try:
            block, shown = self._port.block(event.approval)
        except BoxmakerError as error:
            if still_open():
                self._complain(f"question {event.approval} cannot be shown: {error}")
            return
        approvals.show_block(self._screen, block)
        self._screen.say(
            f"Type {event.approval} to approve, n and a reason to refuse; Enter alone leaves it open "
            f"({self._home.command(f'approve {event.approval}')} answers later).",
            Ink.DIM,
        )
        self._settle(event.approval, shown, still_open)

    def _settle(self, approval: int, shown: admin.ApprovalShown, still_open: StillOpen) -> None:
        descriptor = sys.stdin.fileno()
        with _lines(descriptor):
            while True:
                self._screen.write(f"{approval}? ")
                line = _typed(descriptor, still_open)
                if line is None:
                    self._screen.line("(the question is over)", Ink.DIM)
                    return
                self._screen.fresh_line()
                heard = read(line, approval)
                if heard.said is Said.UNCLEAR:
                    self._complain(f"that answers nothing; {approval} approves, n refuses, Enter leaves it open")
                    continue
                if heard.said is Said.LATER:
                    self._screen.line("It stays open.", Ink.DIM)
                    return
                self._answer(shown, heard)
                return

    def _answer(self, shown: admin.ApprovalShown, heard: Heard) -> None:
        try:
            outcome = self._port.answer(shown, approve=heard.said is Said.YES, reason=heard.reason)
        except RemoteFault as fault:
            self._complain(str(fault))
        except BoxmakerError as error:
            self._complain(f"brokerd may not have heard the answer: {error}")
        else:
            approvals.say_outcome(self._screen, outcome)

    def _complain(self, words: str) -> None:
        self._screen.say(f"! {render.safe_line(words)}", Ink.WARN, hang=2)


@contextlib.contextmanager
def _lines(descriptor: int) -> Iterator[None]:
    """Let the owner type a line and see it, while a turn otherwise holds the keys."""
    before = termios.tcgetattr(descriptor)
    typing = termios.tcgetattr(descriptor)
    typing[3] |= termios.ECHO | termios.ICANON
    try:
        # FLUSH: a line that was typed before the question was shown must not answer it.
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, typing)
        yield
    finally:
        with contextlib.suppress(termios.error):  # a terminal that has gone away has no modes
            chat_terminal.forget_keys(descriptor)
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _typed(descriptor: int, still_open: StillOpen) -> str | None:
    """Return the next line; None once the question is over or the terminal has no more."""
    while still_open():
        if select.select([descriptor], [], [], _LOOK_SECONDS)[0]:
            untrusted = os.read(descriptor, _LONGEST_LINE)
            return untrusted.decode("utf-8", "replace") if untrusted else None
    return None
