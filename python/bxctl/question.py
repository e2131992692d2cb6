"""A question that comes up in the middle of a turn: shown in `bxctl chat`, and answered by typing its number.

The block comes from brokerd by number, never from loopd's event. What was typed before the block was
on the screen answers nothing, and what is typed while the question is open is never a message. Ctrl-C,
an expiry, or an answer given elsewhere takes the question away.
"""

import contextlib
import os
import select
import sys
import termios
from collections.abc import Iterator
from enum import Enum

import attrs

from bxcore.client import RemoteFault
from bxcore.errors import BoxmakerError
from bxcore.wire import admin
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.channel import ApprovalPending, ToolReturned
from bxcore.wire.tools import DenyReason
from bxctl import approvals, chat_terminal, render
from bxctl.adminport import AdminPort
from bxctl.render import Ink, Screen
from bxctl.sockets import Home
from bxctl.turns import Broken, Key, Peek

_LOOK_SECONDS = 0.2
_LONGEST_LINE = 4_096
_STAYS = "It stays open, and the turn waits: {0} approves, n refuses, Ctrl-C stops the turn."


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


def over(approval: int, event: object) -> str:
    """Return what ended question `approval`, which nobody answered here: the first thing that came after it."""
    if event is Key.CTRL_C:
        return f"Question {approval} is withdrawn: you stop the turn, and nothing was approved here."
    if isinstance(event, Broken):
        return f"The connection to loopd was lost while question {approval} was open."
    if not isinstance(event, ToolReturned):
        return f"Question {approval} is over: the turn went on."
    if event.ok:
        return f"Question {approval} was answered elsewhere: approved, and the call ran."
    reason = render.denial(event.content)[0]
    if reason == DenyReason.APPROVAL_REFUSED.value:
        return f"Question {approval} was answered elsewhere: refused."
    if reason == DenyReason.APPROVAL_EXPIRED.value:
        return f"Question {approval} has expired: nobody answered in time."
    return f"Question {approval} is over: the call was not carried out."


class Questioner:
    """Asks on a terminal."""

    def __init__(self, port: AdminPort, screen: Screen, home: Home) -> None:
        self._port = port
        self._screen = screen
        self._home = home

    def ask(self, event: ApprovalPending, peek: Peek) -> None:
        """Show the question, and answer it if the owner does. Never raises: a chat goes on without an answer."""
        try:
            block, shown = self._port.block(event.approval)
        except BoxmakerError as error:
            if peek() is None:
                self._complain(f"question {event.approval} cannot be shown: {error}")
                self._screen.say("The turn waits for an answer from elsewhere; Ctrl-C stops it.", Ink.DIM)
            return
        approvals.show_block(self._screen, block)
        self._screen.line(approvals.gist(shown.summary.tool, block, self._screen), Ink.WARN)
        self._screen.say(f"Type {event.approval} to approve, n and a reason to refuse; Enter leaves it open.", Ink.DIM)
        # A line of its own, however long: broken at a space it could not be copied as one command.
        command = self._home.command(f"approve {event.approval}")
        self._screen.line(f"Elsewhere: {command}", Ink.DIM)
        self._settle(event.approval, shown, peek)

    def _settle(self, approval: int, shown: admin.ApprovalShown, peek: Peek) -> None:
        descriptor = sys.stdin.fileno()
        told = False
        with _lines(descriptor):
            while True:
                self._screen.write(f"{approval}? ")
                line = _typed(descriptor, peek)
                if line is None:
                    if (event := peek()) is not None:
                        self._screen.fresh_line()
                        self._screen.say(over(approval, event), Ink.WARN, hang=2)
                    return
                if line.endswith("\n"):
                    self._screen.ended_by_keys()
                self._screen.fresh_line()
                heard = read(line, approval)
                if heard.said is Said.UNCLEAR:
                    self._complain(f"that answers nothing; {approval} approves, n refuses, Ctrl-C stops the turn")
                elif heard.said is Said.LATER:
                    if not told:
                        self._screen.say(_STAYS.format(approval), Ink.DIM)
                    told = True
                elif self._answer(shown, heard):
                    return

    def _answer(self, shown: admin.ApprovalShown, heard: Heard) -> bool:
        """Give the answer; False where the question may be open all the same, so that it can be answered again."""
        try:
            outcome = self._port.answer(shown, approve=heard.said is Said.YES, reason=heard.reason)
        except RemoteFault as fault:
            self._complain(str(fault))
        except BoxmakerError as error:
            self._complain(f"brokerd may not have heard the answer: {error}")
        else:
            approvals.say_outcome(self._screen, outcome)
            return outcome.ending is not ApprovalEnding.NOT_PENDING
        return False

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


def _typed(descriptor: int, peek: Peek) -> str | None:
    """Return the next line, an empty one for Ctrl-D; None once the question is over or the terminal is gone."""
    while peek() is None:
        if select.select([descriptor], [], [], _LOOK_SECONDS)[0]:
            untrusted = os.read(descriptor, _LONGEST_LINE)
            return untrusted.decode("utf-8", "replace") if untrusted or _there(descriptor) else None
    return None


def _there(descriptor: int) -> bool:
    try:
        termios.tcgetattr(descriptor)
    except termios.error:
        return False
    return True
