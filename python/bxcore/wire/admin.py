"""The owner's conversation with brokerd on `admin.sock`: approvals, grants, session state.

Nothing of this is understood on `broker.sock`, where loopd speaks. Field by field: docs/protocol.md.
"""

from enum import Enum

import attrs

from bxcore.ids import CallId, Hash32, SessionId
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass, DenyReason


class ApprovalEnding(Enum):
    """What became of one question to the owner."""

    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"
    VOID = "void"
    DENIED_NOW = "denied_now"
    NOT_PENDING = "not_pending"
    CHANGED = "changed"


class Verdict(Enum):
    """What policy says about a call."""

    ALLOWED = "allowed"
    ASK = "ask"
    DENIED = "denied"


class FindingLevel(Enum):
    """How much a finding about a grant matters: an ERROR makes brokerd deny every call."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


# -- approvals ----------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ApprovalList:
    """kind `approval_list`: `approval_summary` frames, oldest first, then `approval_list_end`."""


@attrs.frozen(kw_only=True)
class ApprovalSummary:
    """kind `approval_summary`: one pending question. `id` is the seq of its decision record."""

    id: int
    session: SessionId
    call: CallId
    tool: str
    grant: str
    opened: Timestamp
    expires: Timestamp
    canonical: Hash32


@attrs.frozen(kw_only=True)
class ApprovalListEnd:
    """kind `approval_list_end`, final."""

    total: int


@attrs.frozen(kw_only=True)
class ApprovalShow:
    """kind `approval_show`: `approval_text` frames, then `approval_shown`. Error `no_approval` where none is open."""

    id: int


@attrs.frozen(kw_only=True)
class ApprovalText:
    """kind `approval_text`: the next piece of the block that the owner reads, escaped, nothing left out."""

    text: str


@attrs.frozen(kw_only=True)
class ApprovalShown:
    """kind `approval_shown`, final. `canonical` is what an answer must name; `characters` counts the block."""

    summary: ApprovalSummary
    canonical: Hash32
    characters: int


@attrs.frozen(kw_only=True)
class ApprovalAnswer:
    """kind `approval_answer`: answered by `approval_outcome`.

    `canonical` binds a yes to what was shown; a no may leave it out. `reason` is for the audit log and the model.
    """

    id: int
    approve: bool
    canonical: Hash32 | None
    reason: str | None


@attrs.frozen(kw_only=True)
class ApprovalOutcome:
    """kind `approval_outcome`, final: what the question ended as. `detail` is one line for the owner."""

    id: int
    ending: ApprovalEnding
    detail: str


# -- grants -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class GrantsCheck:
    """kind `grants_check`: `grant_finding` frames, then `grants_check_end`."""


@attrs.frozen(kw_only=True)
class GrantFinding:
    """kind `grant_finding`: what is to be said about one file. `line` 0 means the whole file."""

    file: str
    line: int
    level: FindingLevel
    text: str


@attrs.frozen(kw_only=True)
class GrantsCheckEnd:
    """kind `grants_check_end`, final. `valid` is false where brokerd denies every call."""

    valid: bool
    grants: int
    findings: int


@attrs.frozen(kw_only=True)
class GrantsTest:
    """kind `grants_test`: a dry run of policy; `grant_reason` frames, then `grants_verdict`. Nothing is recorded."""

    tool: str
    arguments: str
    taint: DataClass
    untrusted: bool


@attrs.frozen(kw_only=True)
class GrantsExplain:
    """kind `grants_explain`: as `grants_test`, for the recorded decision `seq`. Error `no_record`."""

    seq: int


@attrs.frozen(kw_only=True)
class GrantReason:
    """kind `grant_reason`: whether one grant fits the call, and if not the first reason why not."""

    grant: str
    matched: bool
    why: str


@attrs.frozen(kw_only=True)
class GrantsVerdict:
    """kind `grants_verdict`, final. For an explained record `same_grants` says whether the files are still those.

    `recorded` repeats the outcome on record as one line, or is None in a dry run.
    """

    verdict: Verdict
    reason: DenyReason | None
    detail: str | None
    grant: str | None
    result_class: DataClass | None
    result_untrusted: bool | None
    mounts: tuple[str, ...]
    hosts: tuple[str, ...]
    recorded: str | None
    same_grants: bool


@attrs.frozen(kw_only=True)
class GrantsSuggest:
    """kind `grants_suggest`: for the denial `seq`, answered by `grant_suggestion`. Error `no_record`."""

    seq: int


@attrs.frozen(kw_only=True)
class GrantSuggestion:
    """kind `grant_suggestion`, final: the narrowest grant that would ask for this call. Never written by brokerd.

    `toml` is None where no grant can allow it; `note` says why, or what to look at first. `file` is the whole path of
    the file that it would be, in the directory that brokerd reads.
    """

    file: str
    toml: str | None
    note: str


# -- state and health ---------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class SessionRebuild:
    """kind `session_rebuild`: compute a session's labels again from the audit log; `session_state_report`."""

    session: SessionId


@attrs.frozen(kw_only=True)
class BrokerStatus:
    """kind `broker_status`: answered by `broker_status_report`."""


@attrs.frozen(kw_only=True)
class BrokerStatusReport:
    """kind `broker_status_report`, final. `denies` names why every call is denied now, or is None.

    `limits_missing` names the resource limits that this host does not enforce.
    """

    denies: DenyReason | None
    detail: str | None
    grants: int
    pending: int
    running: int
    audit_seq: int
    audit_hash: Hash32
    image: str | None
    limits_held: tuple[str, ...]
    limits_missing: tuple[str, ...]
