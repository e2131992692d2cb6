"""What an HTTP status of the server means: one table for its answers and for the event stream's handshake. Pure.

Judged by the status, by two headers, and by whether the server itself speaks; never by the words of an error: those are
translated, and may be anybody's.
"""

import re
from collections.abc import Mapping

from gatewayd.faults import (
    MattermostAway,
    MattermostBusy,
    MattermostDenied,
    MattermostFault,
    MattermostRefused,
    MattermostUnclear,
    TokenRefused,
)

_USUAL_PAUSE_MS = 1_000
_TOO_LARGE = 413  # a proxy's word counts: the request never comes to the server
_PAUSES = ("retry-after", "x-ratelimit-reset")
_SECONDS = re.compile(r"[0-9]{1,12}")


def fault(
    what: str,
    status: int,
    headers: Mapping[str, str],
    *,
    most_ms: int,
    error: str = "",
    fixed: bool = False,
    foreign: bool = False,
) -> MattermostFault:
    """Return what to raise for an answer that is no success. `what` was asked, and holds no secret.

    `headers` has lower-case names. A pause that the server asks for is heeded up to `most_ms`. `fixed`: the address
    names nothing that could have gone, so a 404 means that this is no Mattermost server. `foreign`: the answer has not
    the form of the server's errors, so a refusal is a proxy's, and says nothing of a channel or a post: a proxy whose
    server is being restarted says 404 to everything.
    """
    said = f"{what}: the server said {status}"
    pause_ms = _pause_ms(headers)
    if status == 401:
        return TokenRefused(f"{said}: the token was revoked, or the bot is disabled", status=status, error=error)
    if status == 429 or (status == 503 and pause_ms is not None):
        retry_ms = min(most_ms, pause_ms or _USUAL_PAUSE_MS)
        return MattermostBusy(f"{said}: too many requests", status=status, retry_ms=retry_ms)
    if status >= 500:
        return MattermostAway(said, status=status, error=error)
    if status < 400 or (fixed and status == 404) or (foreign and status != _TOO_LARGE):
        detail = f"{said}, which is not what Mattermost says here: is the server's address right?"
        return MattermostUnclear(detail, status=status, error=error)
    refusal = MattermostDenied if status in {403, 404} else MattermostRefused
    return refusal(said, status=status, error=error)


def _pause_ms(headers: Mapping[str, str]) -> int | None:
    """Both headers are seconds from now. A date is no number of seconds, and is not read."""
    seconds = [int(value) for name in _PAUSES if _SECONDS.fullmatch(value := headers.get(name, "").strip())]
    return max(seconds) * 1_000 if seconds else None
