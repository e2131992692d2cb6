"""What gatewayd may not be able to do. Each has an entry in docs/runbook.md.

A fault of one post or one answer is told where it was said; a fault of the connection is a state (gatewayd.condition).
"""

from bxcore.errors import ConfigError, UpstreamError


class NotABot(ConfigError):
    """The token belongs to a person: whatever Boxmaker says would be said by that person."""

    code = "not_a_bot"


class NobodyAllowed(ConfigError):
    """No user may speak, so there is nothing to do."""

    code = "nobody_allowed"


class UsersUnfit(ConfigError):
    """None of the users of the settings is a person who could be written to."""

    code = "mattermost_users_unfit"


class MattermostFault(UpstreamError):
    """The server could not be asked, or said no. `status` is the HTTP status, 0 where there was none.

    `error` is the server's own name for it (`api.post…`), "" where it gave none; never quoted to a person.
    `retry_ms`: it asks not to be tried again before that long.
    """

    code = "mattermost_failed"
    retry_ms: int = 0

    def __init__(self, detail: str, *, status: int = 0, error: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.error = error


class MattermostAway(MattermostFault):
    """No connection, no TLS, no answer in time, or a 5xx: time mends it."""

    code = "mattermost_away"


class MattermostBusy(MattermostFault):
    """The server wants fewer requests (429, 503)."""

    code = "mattermost_busy"

    def __init__(self, detail: str, *, status: int, retry_ms: int) -> None:
        super().__init__(detail, status=status)
        self.retry_ms = retry_ms


class TokenRefused(MattermostFault):
    """401: the token was revoked, or the bot disabled."""

    code = "token_refused"


class MattermostDenied(MattermostFault):
    """403, or 404 for what was there: the bot is not in the channel any more, or may not do this."""

    code = "mattermost_denied"


class MattermostRefused(MattermostFault):
    """Another 4xx: this request will never be taken."""

    code = "mattermost_refused"


class MattermostUnclear(MattermostFault):
    """The answer is not what a Mattermost server says: another program, a proxy's page, a version too far away."""

    code = "mattermost_unclear"
