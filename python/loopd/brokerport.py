"""How loopd asks for a tool that it may not run itself.

loopd holds no authority: a call is a request, and what comes back is a result, a failure or a
denial. Its waits are deadlines of whole answers, never of single reads: a broker that trickles
cannot hold a turn. Each call has a connection of its own; closing it withdraws the call.
"""

import select
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import attrs

from bxcore import logs
from bxcore.client import Connection, PeerAway, PeerDenied, PeerUnclear, RemoteFault
from bxcore.deadline import Clock, Deadline
from bxcore.errors import UpstreamError
from bxcore.timestamp import DAY_MS
from bxcore.wire.control import ErrorCode
from bxcore.wire.tools import DenyReason, ToolDenied, ToolFailed, ToolPending, ToolRequest, ToolResult
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled

LONGEST_MS = DAY_MS
"""No question to the owner stays open longer, whatever the broker says."""

Answer = ToolResult | ToolFailed | ToolDenied
OnPending = Callable[[ToolPending], None]

NOT_KNOWN = "whether the call took effect is not known; do not repeat it without asking"

log = logs.get("brokerport")


class BrokerPort(Protocol):
    """Whoever decides and runs tool calls."""

    def run(self, request: ToolRequest, *, cancel: CancelToken, on_pending: OnPending) -> Answer:
        """Return the final answer to `request`. Raises Cancelled; UpstreamError where it was not even asked."""
        ...


class NoBroker:
    """There is no broker: every request is denied, and says so."""

    def run(self, request: ToolRequest, *, cancel: CancelToken, on_pending: OnPending) -> Answer:
        """Deny."""
        del request, cancel, on_pending
        return ToolDenied(
            reason=DenyReason.RUNNER_UNAVAILABLE, detail="this Boxmaker has no broker, so it runs no tools"
        )


@attrs.frozen(kw_only=True)
class Broker:
    """brokerd, on its socket. `timeout_ms` is for a call that needs no question, and for one after its question."""

    socket: Path
    clock: Clock
    timeout_ms: int

    def run(self, request: ToolRequest, *, cancel: CancelToken, on_pending: OnPending) -> Answer:
        """Ask brokerd. Raises Cancelled; UpstreamError (peer_away, peer_denied) where it cannot be asked."""
        with cancel.waking() as waker:
            cancel.check()
            with Connection(self.socket, clock=self.clock) as connection:
                try:
                    return self._answer(connection, request, cancel=cancel, waker=waker, on_pending=on_pending)
                except (Cancelled, PeerAway, PeerDenied):
                    raise
                except RemoteFault as fault:
                    return _faulted(fault)
                except UpstreamError as fault:
                    log.warning("no answer session=%s call=%d code=%s", request.session, request.call, fault.code)
                    return ToolFailed(message=f"the broker did not answer; {NOT_KNOWN}")

    def _answer(
        self, connection: Connection, request: ToolRequest, *, cancel: CancelToken, waker: int, on_pending: OnPending
    ) -> Answer:
        deadline = Deadline.after(self.clock, milliseconds=self.timeout_ms)
        latest = Deadline.after(self.clock, milliseconds=LONGEST_MS + self.timeout_ms)
        # A frame that has begun must end soon; how long until it begins is the deadline's matter.
        answers = connection.request(request, number=request.call)
        while True:
            if not _readable(connection, waker, deadline):
                cancel.check()
                return ToolFailed(message=f"the broker did not answer in time; {NOT_KNOWN}")
            cancel.check()
            match next(answers).msg:
                case ToolPending() as pending:
                    lapses_ms = pending.expires - self.clock.now_ms()
                    deadline = latest.sooner(milliseconds=max(0, lapses_ms) + self.timeout_ms)
                    on_pending(pending)
                case ToolResult() | ToolFailed() | ToolDenied() as answer:
                    return answer
                case _:
                    raise PeerUnclear("brokerd answered with something that is no answer to a tool request")


def _readable(connection: Connection, waker: int, deadline: Deadline) -> bool:
    # Not select(): it cannot watch a descriptor beyond 1,023, and a busy loopd has such.
    waiting = select.poll()
    for descriptor in (connection.fileno(), waker):
        waiting.register(descriptor, select.POLLIN)
    ready = [descriptor for descriptor, _ in waiting.poll(deadline.remaining_ms())]
    return connection.fileno() in ready


def _faulted(fault: RemoteFault) -> Answer:
    log.warning("brokerd answered with an error code=%s", fault.code)
    if fault.code == ErrorCode.INTERNAL.value:
        return ToolFailed(message=f"the broker failed inside; {NOT_KNOWN}")
    return ToolFailed(message="the broker did not take the request; the call was not carried out")
