"""The conversation between loopd and brokerd on `broker.sock`: one request, its answers.

A `tool_request` is answered by zero or more `tool_pending` frames and one final frame of the
other kinds. Nothing here can say "allowed": a decision has no wire form.
"""

from enum import Enum

import attrs

from bxcore.ids import CallId, SessionId
from bxcore.timestamp import Timestamp


class DataClass(Enum):
    """How far a text may travel, in rising order of secrecy."""

    PUBLIC = "public"
    PRIVATE = "private"
    SECRET = "secret"


RISING = tuple(DataClass)


class DenyReason(Enum):
    """Why policy said no."""

    NO_GRANT = "no_grant"
    GRANT_EXPIRED = "grant_expired"
    TAINT_TOO_HIGH = "taint_too_high"
    DENIED_BY_GRANT = "denied_by_grant"
    APPROVAL_REFUSED = "approval_refused"
    APPROVAL_EXPIRED = "approval_expired"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    GRANTS_INVALID = "grants_invalid"
    AUDIT_UNAVAILABLE = "audit_unavailable"
    STATE_UNREADABLE = "state_unreadable"
    RUNNER_UNAVAILABLE = "runner_unavailable"


@attrs.frozen(kw_only=True)
class ToolRequest:
    """kind `tool_request`. `arguments` is the model's JSON object, carried unparsed."""

    session: SessionId
    call: CallId
    tool: str
    arguments: str


@attrs.frozen(kw_only=True)
class ToolPending:
    """kind `tool_pending`, never final: the owner is being asked. `approval` is the seq of the decision record."""

    approval: int
    expires: Timestamp


@attrs.frozen(kw_only=True)
class ToolResult:
    """kind `tool_result`: the tool ran; the label is brokerd's, never the tool's."""

    content: str
    data_class: DataClass
    untrusted: bool
    truncated: bool


@attrs.frozen(kw_only=True)
class ToolFailed:
    """kind `tool_failed`: the tool ran, or should have, and failed; `message` is fixed text."""

    message: str


@attrs.frozen(kw_only=True)
class ToolDenied:
    """kind `tool_denied`. `detail` is one line of at most 300 characters, or None."""

    reason: DenyReason
    detail: str | None
