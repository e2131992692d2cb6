"""`gateway.sock`: brokerd asks gatewayd to put a question to the owner in Mattermost. Field by field: docs/protocol.md.

One connection for each open question, held by brokerd while it is open: a connection that closes withdraws the
post. What is posted is composed by brokerd; gatewayd shows it and says who answered.
"""

import attrs

from bxcore.ids import MattermostId, SessionId
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import ApprovalEnding


@attrs.frozen(kw_only=True)
class ApprovalOpen:
    """kind `approval_open`: `approval_posted` once it can be read, then the first answer as `approval_reply`.

    `parts` are posted in order, each as it is. `answerable` is false where the whole is too long for a chat: what
    is posted says so, and no answer to it is taken.
    """

    id: int
    session: SessionId
    opened: Timestamp
    expires: Timestamp
    parts: tuple[str, ...]
    answerable: bool


@attrs.frozen(kw_only=True)
class ApprovalPosted:
    """kind `approval_posted`: `post` is the last part, the one that is answered."""

    post: MattermostId


@attrs.frozen(kw_only=True)
class ApprovalReply:
    """kind `approval_reply`, final: an approver's word, from a post of theirs. `reason` belongs to a no."""

    approve: bool
    approver: MattermostId
    post: MattermostId
    reason: str | None


@attrs.frozen(kw_only=True)
class ApprovalClosed:
    """kind `approval_closed`: how the question ended, to be said where it was asked. Answered by `approval_noted`.

    On the question's own connection after its `approval_reply`; on another one where it ended otherwise.
    """

    id: int
    ending: ApprovalEnding
    detail: str


@attrs.frozen(kw_only=True)
class ApprovalNoted:
    """kind `approval_noted`, final."""
