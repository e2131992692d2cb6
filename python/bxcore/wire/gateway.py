"""`gateway-owner`'s socket: what bxctl asks gatewayd about its way to Mattermost. Field by field: docs/protocol.md.

Never carries a token, nor anything that was said.
"""

import attrs

from bxcore.ids import MattermostId
from bxcore.timestamp import Timestamp


@attrs.frozen(kw_only=True)
class GatewayStatus:
    """kind `gateway_status`: answered by `gateway_status_report`."""


@attrs.frozen(kw_only=True)
class GatewayWhoami:
    """kind `gateway_whoami`: ask the server now who the bot is. Answered by `gateway_account`."""


@attrs.frozen(kw_only=True)
class GatewayPost:
    """kind `gateway_post`: say `text` to the first allowed user directly. Answered by `gateway_post_made`."""

    text: str


@attrs.frozen(kw_only=True)
class GatewayStatusReport:
    """kind `gateway_status_report`, final. `code` is None where nothing is wrong, else an entry of the runbook.

    `connected`: events arrive, and what was missed before has been read; `since` when that is as it is.
    Posts: `waiting` are accepted and not yet said to loopd, `asked` were said and wait for their answer;
    `outgoing` wait to be posted, `parked` could not be handled or posted, `listed` were too old to be acted upon.
    `questions` are approvals that can be answered now.
    """

    connected: bool
    since: Timestamp
    code: str | None
    detail: str | None
    server: str
    server_version: str | None
    bot: str | None
    waiting: int
    asked: int
    outgoing: int
    parked: int
    listed: int
    questions: int


@attrs.frozen(kw_only=True)
class GatewayAccount:
    """kind `gateway_account`, final: what the server says. `allowed` are the names of the users who may speak.

    `unfit`: ids of the settings' users, those who may speak and approvers, that are nobody's, a bot's, or of an
    account that was deactivated. `channels` are all that the bot is in, direct messages too; `channels_allowed` are
    those of the settings that it is in, and `channels_absent` those that it is not in.
    """

    server: str
    server_version: str | None
    id: MattermostId
    username: str
    is_bot: bool
    max_post_characters: int
    allowed: tuple[str, ...]
    approvers: tuple[str, ...]
    unfit: tuple[MattermostId, ...]
    channels: int
    channels_allowed: int
    channels_absent: tuple[MattermostId, ...]


@attrs.frozen(kw_only=True)
class GatewayPostMade:
    """kind `gateway_post_made`, final."""

    post: MattermostId
    to: str
