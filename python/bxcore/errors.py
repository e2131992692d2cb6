"""Every failure has a group (who must act) and a stable code (where the runbook explains it).

Groups: WireError (the peer), ConfigError (the owner, before start), StateError (the owner, now),
UpstreamError (time). A refusal that is an ordinary outcome is a value, not one of these.
Standard library only: inferproxy imports this module.
"""

EXIT_CONFIG = 78
EXIT_STATE = 74


class BoxmakerError(Exception):
    """Base of every error that Boxmaker raises on purpose.

    `code` is stable and has an entry in docs/runbook.md. The message names fields and sizes,
    never values: it may be shown to a peer or written to a log.
    """

    code = "internal"

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"

    @property
    def detail(self) -> str:
        """The message without its code."""
        return super().__str__()


class WireError(BoxmakerError):
    """The peer sent something that it must not send, or went away inside a frame."""

    code = "bad_frame"


class FrameTooLarge(WireError):
    """The announced length is zero or above the cap; raised before the body is read."""

    code = "bad_frame"


class BadVersion(WireError):
    """The envelope carries another protocol version."""

    code = "bad_version"


class BadMessage(WireError):
    """The frame is JSON but not a message that this socket understands."""

    code = "bad_message"


class Forbidden(WireError):
    """The message exists, but not on this socket."""

    code = "forbidden"


class DeadlinePassed(WireError):
    """The peer did not finish within the time that one frame may take."""

    code = "deadline"


class ConfigError(BoxmakerError):
    """A file that the owner wrote is wrong; the process does not start (exit 78)."""

    code = "config"


class StateError(BoxmakerError):
    """A file that Boxmaker owns cannot be read or written as it must be (exit 74)."""

    code = "state"


class UpstreamError(BoxmakerError):
    """A peer that Boxmaker depends on is away or answers wrongly; time may mend it."""

    code = "upstream"
