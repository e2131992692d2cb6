"""Messages that every framed socket understands."""

from enum import Enum

import attrs


class ErrorCode(Enum):
    """Why a request was not carried out. Each has an entry in docs/runbook.md."""

    BAD_FRAME = "bad_frame"
    BAD_VERSION = "bad_version"
    BAD_MESSAGE = "bad_message"
    FORBIDDEN = "forbidden"
    DEADLINE = "deadline"
    TOO_BUSY = "too_busy"
    INTERNAL = "internal"
    NOT_READY = "not_ready"
    NO_SESSION = "no_session"
    SESSION_EXISTS = "session_exists"
    SESSION_DAMAGED = "session_damaged"
    NO_TURN = "no_turn"
    TEXT_TOO_LONG = "text_too_long"
    STATE_UNWRITABLE = "state_unwritable"
    STATE_UNREADABLE = "state_unreadable"
    STATE_IN_USE = "state_in_use"
    LAGGED = "lagged"
    NO_APPROVAL = "no_approval"
    NO_RECORD = "no_record"
    AUDIT_UNAVAILABLE = "audit_unavailable"
    GRANTS_INVALID = "grants_invalid"
    TOKEN_REFUSED = "token_refused"
    MATTERMOST_AWAY = "mattermost_away"
    MATTERMOST_BUSY = "mattermost_busy"
    MATTERMOST_DENIED = "mattermost_denied"
    MATTERMOST_REFUSED = "mattermost_refused"
    MATTERMOST_UNCLEAR = "mattermost_unclear"
    MATTERMOST_USERS_UNFIT = "mattermost_users_unfit"
    MATTERMOST_FAILED = "mattermost_failed"


@attrs.frozen(kw_only=True)
class WireFault:
    """kind `error`. Always the last frame of a response. `detail` never quotes a value of the request."""

    code: ErrorCode
    detail: str
