"""The owner's socket: how the way to Mattermost is, who the bot is, and a post to try it with.

Reads: the queue, the condition, the server where it is asked for. Never says a token, nor anything that was said.
Threads: workers of the socket. Specified in docs/protocol.md, "the owner's socket of gatewayd".
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Protocol

import attrs

from bxcore import hosts
from bxcore.errors import BadMessage
from bxcore.ids import MattermostId
from bxcore.server import Handler, Request
from bxcore.settings.gatewayd import GatewaydSettings
from bxcore.wire.gateway import (
    GatewayAccount,
    GatewayPost,
    GatewayPostMade,
    GatewayStatus,
    GatewayStatusReport,
    GatewayWhoami,
)
from gatewayd import account, lookup, markdown
from gatewayd.condition import Condition
from gatewayd.faults import UsersUnfit
from gatewayd.mattermost import ServerConfig
from gatewayd.posts import Account, Channel
from gatewayd.questionposts import props
from gatewayd.store import Store

MOST_CHARACTERS = 4_000
CATCHING_UP = "what was missed is being read"


class Api(account.Api, lookup.Maker, Protocol):
    """What is asked of the server here; gatewayd.mattermost.Mattermost is one."""

    def config(self) -> ServerConfig: ...
    def direct(self, a: MattermostId, b: MattermostId) -> Channel: ...


@attrs.frozen(kw_only=True)
class Owner:
    """What the owner's socket tells. `bot` is None until the server has said who we are."""

    settings: GatewaydSettings
    store: Store
    condition: Condition
    api: Callable[[], Api]
    bot: Callable[[], Account | None]
    questions: Callable[[], int]

    def handlers(self) -> Mapping[type, Handler]:
        """Return what the socket understands."""
        return {GatewayStatus: self._status, GatewayWhoami: self._whoami, GatewayPost: self._post}

    def _status(self, request: Request) -> None:
        request.answer(self.report(), final=True)

    def report(self) -> GatewayStatusReport:
        """Say how things are. Raises StateError where the queue cannot be read."""
        counts, condition, worst, bot = self.store.counts(), self.condition, self.condition.worst(), self.bot()
        return GatewayStatusReport(
            connected=condition.connected,
            since=condition.since,
            code=None if worst is None else worst.code,
            detail=worst.detail if worst is not None else CATCHING_UP if condition.catching_up else None,
            server=self.settings.mattermost.url,
            server_version=condition.server_version,
            bot=None if bot is None else bot.username,
            waiting=counts.waiting,
            asked=counts.asked,
            outgoing=counts.outgoing,
            parked=counts.parked,
            listed=counts.listed,
            questions=self.questions(),
        )

    def _whoami(self, request: Request) -> None:
        with closing(self.api()) as api:
            bot, config, channels = api.me(), api.config(), api.channels()
            known = api.users(account.named(self.settings))
        inside = {channel.id for channel in channels}
        wanted = [MattermostId(channel) for channel in self.settings.allow.channels]
        absent = tuple(channel for channel in wanted if channel not in inside)
        request.answer(
            GatewayAccount(
                server=self.settings.mattermost.url,
                server_version=config.version,
                id=bot.id,
                username=bot.username,
                is_bot=bot.is_bot,
                max_post_characters=config.max_post_characters,
                allowed=_names(known, self.settings.allow.users),
                approvers=_names(known, self.settings.approvers),
                unfit=tuple(account.unfit(known, account.named(self.settings))),
                channels=len(channels),
                channels_allowed=len(wanted) - len(absent),
                channels_absent=absent,
            ),
            final=True,
        )

    def _post(self, request: Request) -> None:
        asked = request.message
        assert isinstance(asked, GatewayPost)
        if not asked.text.strip() or len(asked.text) > MOST_CHARACTERS:
            raise BadMessage(f"text: expected 1 to {MOST_CHARACTERS} characters")
        rules = tuple(hosts.rule(host) for host in self.settings.links.hosts)
        key = f"owner:{secrets.token_hex(8)}"
        with closing(self.api()) as api:
            user = self._reachable(api)
            channel = api.direct(api.me().id, user.id)
            message = markdown.harmless(asked.text, hosts=rules)
            post = api.create_post(channel.id, message, root=None, props=props(key), pending=key)
        request.answer(GatewayPostMade(post=post.id, to=user.username), final=True)

    def _reachable(self, api: Api) -> Account:
        """Return the first of those who may speak whom the server lets be written to. Raises UsersUnfit."""
        wanted = [MattermostId(user) for user in self.settings.allow.users]
        known = {person.id: person for person in api.users(wanted)}
        unfit = account.unfit(tuple(known.values()), wanted)
        for user in wanted:
            if user not in unfit:
                return known[user]
        raise UsersUnfit("nobody may speak: no id of allow.users is that of a person with an account; look at them")


def _names(known: Sequence[Account], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the names of users who are known, in the order in which the settings have them."""
    names = {account.id: account.username for account in known}
    return tuple(names[MattermostId(user)] for user in wanted if user in names)
