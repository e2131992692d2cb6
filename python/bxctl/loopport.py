"""What bxctl asks loopd, and the wait until loopd can answer.

Every request has a connection of its own: a turn's events may be streaming on another one.
Errors: UpstreamError where loopd is away or refuses (the refusal's code is loopd's).
"""

from collections.abc import Callable
from typing import Protocol

from bxcore import client
from bxcore.deadline import Clock, Deadline
from bxcore.errors import BoxmakerError, UpstreamError
from bxcore.ids import SessionId
from bxcore.wire import channel
from bxctl.blocks import Status
from bxctl.port import HomeMissing, Port
from bxctl.render import Screen, safe_line
from bxctl.sockets import Home

TURN_MS = 180_000
"""How long a turn may be silent before we look whether loopd still lives."""
SELF_TEST_MS = 600_000
"""One check of the self-test may read a prompt on a slow machine."""

_POLL_SECONDS = 0.5


class LoopAway(UpstreamError):
    """loopd could not be reached, or did not get ready, within the time the owner gave it."""

    code = "loopd_away"


class HasStatus(Protocol):
    """Whoever can say how loopd is."""

    def status(self) -> channel.LoopStatusReport:
        """Return loopd's status; raises BoxmakerError where there is none to be had."""
        ...


class LoopPort(Port):
    """loopd's owner socket. Safe to share: it keeps no connection."""

    def __init__(self, home: Home, clock: Clock) -> None:
        super().__init__(home, home.loop_socket, clock)

    def status(self) -> channel.LoopStatusReport:
        """Return how loopd is; it answers this before it is ready."""
        return self.one(channel.LoopStatus(), channel.LoopStatusReport)

    def cancel(self, session: SessionId, turn: int = 0) -> channel.TurnCancelNoted:
        """Stop a turn of `session` (0: whichever runs), if it is the one that runs."""
        return self.one(channel.TurnCancel(session=session, turn=turn), channel.TurnCancelNoted)


def wait_until_ready(
    port: HasStatus,
    deadline: Deadline,
    *,
    tell: Callable[[str], None],
    pause: Callable[[float], None],
) -> channel.LoopStatusReport:
    """Return loopd's status once it is ready; `tell` what it waits for meanwhile. Raises LoopAway."""
    while True:
        try:
            report = port.status()
            if report.ready:
                return report
            reason = safe_line(report.waiting_for or "it is starting")
        except (client.PeerDenied, client.PeerUnclear, HomeMissing):
            raise  # no time mends these
        except BoxmakerError as error:
            reason = safe_line(error.detail.removeprefix("loopd is not running: "))
        if deadline.passed():
            raise LoopAway(f"gave up waiting for loopd: {reason}")
        tell(reason)
        pause(_POLL_SECONDS)


def wait_visibly(
    port: LoopPort, screen: Screen, clock: Clock, *, wait_ms: int, pause: Callable[[float], None]
) -> channel.LoopStatusReport:
    """Wait until loopd is ready and say so on `screen` meanwhile. Raises LoopAway after `wait_ms`."""
    status = Status(screen, clock)
    deadline = Deadline.after(clock, milliseconds=wait_ms)
    try:
        return wait_until_ready(port, deadline, tell=lambda why: status.say(f"waiting for loopd: {why}"), pause=pause)
    finally:
        status.clear()
