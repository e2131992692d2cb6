"""Why loopd does not do what a client asked. The codes are those of bxcore.wire.control.ErrorCode."""

from bxcore.errors import BoxmakerError, StateError


class NotReady(BoxmakerError):
    """The start-up self-test has not passed yet."""

    code = "not_ready"


class NoSession(BoxmakerError):
    """There is no session of that name."""

    code = "no_session"


class SessionExists(BoxmakerError):
    """A new session was asked for under a name that is taken."""

    code = "session_exists"


class SessionDamaged(StateError):
    """The session's files cannot be read as they must be; nothing was changed."""

    code = "session_damaged"


class NoTurn(BoxmakerError):
    """The session has no such turn."""

    code = "no_turn"


class TextTooLong(BoxmakerError):
    """The message is longer than one may be."""

    code = "text_too_long"


class TooBusy(BoxmakerError):
    """As many turns run as may run at once."""

    code = "too_busy"
