"""The channel protocol on `loop.sock`: what bxctl and gatewayd say to loopd, and what comes back.

gatewayd may say a part of it only, about its own sessions. One request per connection at a time; to cancel a turn while
its events stream in, open a second connection. Every event of a turn names the turn. Field by field: docs/protocol.md.
"""

from enum import Enum

import attrs

from bxcore.ids import CallId, MessageKey, SessionId
from bxcore.timestamp import Timestamp

MAX_TEXT_BYTES = 262_144
"""Longest text of one owner message, in UTF-8 bytes."""


GATEWAY_SESSIONS = "mm-"
"""How the names of Mattermost's sessions begin. gatewayd may speak in these and in no other."""


class TurnEnding(Enum):
    """How a turn ended. Only ANSWERED is an ordinary answer; each other one carries a sentence."""

    ANSWERED = "answered"
    CANCELLED = "cancelled"
    LENGTH = "length"
    EMPTY = "empty"
    ONLY_THINKING = "only_thinking"
    REPEATED_CALLS = "repeated_calls"
    REPEATED_TEXT = "repeated_text"
    TOO_MANY_STEPS = "too_many_steps"
    CONTEXT_FULL = "context_full"
    SLOT_BUSY = "slot_busy"
    MODEL_LOADING = "model_loading"
    SERVER_SILENT = "server_silent"
    SERVER_AWAY = "server_away"
    SERVER_LOST = "server_lost"
    SERVER_PROTOCOL = "server_protocol"
    SERVER_REFUSED = "server_refused"
    MODEL_CHANGED = "model_changed"
    STATE_FAILED = "state_failed"
    INTERRUPTED = "interrupted"
    INTERNAL = "internal"


class WaitReason(Enum):
    """What a turn waits for before the server sends its first byte."""

    OTHER_TURN = "other_turn"
    SLOT_BUSY = "slot_busy"
    MODEL_LOADING = "model_loading"
    SERVER_AWAY = "server_away"


class TurnState(Enum):
    """Where a turn is when it is looked up."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


# -- requests ---------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class UserMessage:
    """kind `user_message`: say something. Answered by `message_accepted`, then the turn's events.

    `new` asks for a session that does not exist yet. A `key` that the session already holds
    is not said twice: the answer follows the turn that the first sending belongs to.
    """

    session: SessionId
    new: bool
    key: MessageKey
    text: str


@attrs.frozen(kw_only=True)
class TurnFollow:
    """kind `turn_follow`: look a turn up (0: the newest). `turn_snapshot`, then its remaining events."""

    session: SessionId
    turn: int


@attrs.frozen(kw_only=True)
class TurnCancel:
    """kind `turn_cancel`: stop a turn (0: whichever runs), if it is the one that runs. `turn_cancel_noted`."""

    session: SessionId
    turn: int


@attrs.frozen(kw_only=True)
class SessionList:
    """kind `session_list`: `session_summary` frames, newest first, then `session_list_end`."""

    limit: int


@attrs.frozen(kw_only=True)
class SessionShow:
    """kind `session_show`: `session_record` frames, then `session_show_end`."""

    session: SessionId


@attrs.frozen(kw_only=True)
class CacheReport:
    """kind `cache_report`: one `cache_row` per request to the model, then `cache_report_end`."""

    session: SessionId


@attrs.frozen(kw_only=True)
class SelfTest:
    """kind `self_test`: run the start-up checks now; `check_result` frames, then `self_test_end`."""


@attrs.frozen(kw_only=True)
class LoopStatus:
    """kind `loop_status`: answered by `loop_status_report`, also before loopd is ready."""


# -- events of a turn ---------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class MessageAccepted:
    """kind `message_accepted`: the message is on disk. `turn` is the turn that it will be part of."""

    session: SessionId
    key: MessageKey
    turn: int
    queued: bool
    duplicate: bool


@attrs.frozen(kw_only=True)
class TurnStarted:
    """kind `turn_started`: the messages `keys` together are this turn's."""

    turn: int
    keys: tuple[MessageKey, ...]


@attrs.frozen(kw_only=True)
class TurnWaiting:
    """kind `turn_waiting`: nothing has come from the server yet, and why. Times in milliseconds."""

    turn: int
    reason: WaitReason
    waited_ms: int
    limit_ms: int


@attrs.frozen(kw_only=True)
class PromptProgress:
    """kind `prompt_progress`, in tokens: the share read is (processed-cached)/(total-cached)."""

    turn: int
    step: int
    total: int
    cached: int
    processed: int


@attrs.frozen(kw_only=True)
class ReasoningDelta:
    """kind `reasoning_delta`: more of the model's thinking."""

    turn: int
    step: int
    text: str


@attrs.frozen(kw_only=True)
class TextDelta:
    """kind `text_delta`: more of the model's answer."""

    turn: int
    step: int
    text: str


@attrs.frozen(kw_only=True)
class ToolCalled:
    """kind `tool_called`: `name` is the target tool (not call_tool), `arguments` JSON text from the model."""

    turn: int
    call: CallId
    name: str
    arguments: str


@attrs.frozen(kw_only=True)
class ApprovalPending:
    """kind `approval_pending`: the owner is asked about this call. What it is must be fetched from brokerd by id.

    `name` is the target tool; `approval` the id; `expires` when the question lapses.
    """

    turn: int
    call: CallId
    name: str
    approval: int
    expires: Timestamp


@attrs.frozen(kw_only=True)
class ToolReturned:
    """kind `tool_returned`: what the model will read. `ok` is false where the call was not carried out."""

    turn: int
    call: CallId
    name: str
    ok: bool
    content: str
    truncated: bool


@attrs.frozen(kw_only=True)
class TurnNotice:
    """kind `turn_notice`: something the owner may want to know; `code` is in docs/runbook.md."""

    turn: int
    code: str
    text: str


@attrs.frozen(kw_only=True)
class StepUsage:
    """kind `step_usage`, in tokens, for one request to the model.

    prompt = cached + read. `reread` is what was read again although an earlier request of this
    session had it in the same place (the server's own one-token overlap excluded).
    """

    turn: int
    step: int
    prompt: int
    cached: int
    read: int
    reread: int
    output: int
    reasoning: int


@attrs.frozen(kw_only=True)
class AnswerPart:
    """kind `answer_part`: the front of an answer that is too long for one frame, right before `turn_ended`."""

    turn: int
    text: str


@attrs.frozen(kw_only=True)
class TurnEnded:
    """kind `turn_ended`, final. `sentence` is None where it was answered.

    The whole answer is the text of the `answer_part` frames before it, if there are any, and then `text`.
    """

    turn: int
    ending: TurnEnding
    text: str
    sentence: str | None
    steps: int
    prompt: int
    cached: int
    read: int
    output: int
    elapsed_ms: int


# -- other answers ------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class TurnSnapshot:
    """kind `turn_snapshot`: where the turn is; both texts are those of step `step` so far (0: none has come)."""

    turn: int
    state: TurnState
    step: int
    reasoning: str
    text: str


@attrs.frozen(kw_only=True)
class TurnCancelNoted:
    """kind `turn_cancel_noted`, final. `turn` is None where no such turn was running."""

    session: SessionId
    turn: int | None


@attrs.frozen(kw_only=True)
class SessionSummary:
    """kind `session_summary`. `opening` is the start of the first message, at most 120 characters."""

    session: SessionId
    started: Timestamp
    last: Timestamp
    turns: int
    records: int
    bytes: int
    opening: str
    damaged: bool


@attrs.frozen(kw_only=True)
class SessionListEnd:
    """kind `session_list_end`, final. `total` counts all sessions, listed or not."""

    total: int


@attrs.frozen(kw_only=True)
class SessionRecord:
    """kind `session_record`: a stored line, or (`more`) a piece of one; `line` counts from 1."""

    epoch: int
    line: int
    text: str
    more: bool


@attrs.frozen(kw_only=True)
class SessionShowEnd:
    """kind `session_show_end`, final."""

    lines: int


@attrs.frozen(kw_only=True)
class CacheRow:
    """kind `cache_row`: one request to the model, in tokens; as StepUsage. `lost` marks a cache loss."""

    turn: int
    step: int
    prompt: int
    cached: int
    read: int
    reread: int
    output: int
    lost: bool


@attrs.frozen(kw_only=True)
class CacheReportEnd:
    """kind `cache_report_end`, final: totals of the rows before it."""

    rows: int
    prompt: int
    cached: int
    read: int
    reread: int
    lost: int


@attrs.frozen(kw_only=True)
class CheckResult:
    """kind `check_result`: one start-up check. `runbook` names the entry that mends a failure."""

    name: str
    passed: bool
    expected: str
    found: str
    runbook: str


@attrs.frozen(kw_only=True)
class SelfTestEnd:
    """kind `self_test_end`, final."""

    passed: int
    failed: int


@attrs.frozen(kw_only=True)
class LoopStatusReport:
    """kind `loop_status_report`, final. `waiting_for` says what loopd waits for, or None when ready."""

    ready: bool
    waiting_for: str | None
    running_turns: int
    open_sessions: int
    model: str | None
    n_ctx: int
    main_slot: int
    background_slot: int
