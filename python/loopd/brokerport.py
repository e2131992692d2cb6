"""How loopd asks for a tool that it may not run itself.

loopd holds no authority: a call is a request, and what comes back is a result, a failure or a
denial. The deadlines of the real port are those of whole answers, never of single reads.
"""

from typing import Protocol

from bxcore.wire.tools import DenyReason, ToolDenied, ToolFailed, ToolRequest, ToolResult
from loopd.cancel import CancelToken

Answer = ToolResult | ToolFailed | ToolDenied


class BrokerPort(Protocol):
    """Whoever decides and runs tool calls."""

    def run(self, request: ToolRequest, *, cancel: CancelToken) -> Answer:
        """Return the final answer to `request`. Raises Cancelled, or UpstreamError."""
        ...


class NoBroker:
    """There is no broker yet: every request is denied, and says so."""

    def run(self, request: ToolRequest, *, cancel: CancelToken) -> Answer:
        """Deny."""
        del request, cancel
        return ToolDenied(
            reason=DenyReason.RUNNER_UNAVAILABLE, detail="this Boxmaker has no broker, so it runs no tools"
        )
