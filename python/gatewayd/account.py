"""Who the bot is, and whether anybody may speak to it: asked of the server before anything else is done.

A server that cannot be reached, or that refuses the token, is asked again for as long as it takes, and that shows
(Part.CONNECTION). What no time mends ends the start: an account that is not a bot's, and an empty list of users.
Threads: called in one.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from random import random
from typing import Protocol

from bxcore import ids, logs
from bxcore.ids import MattermostId
from bxcore.settings.gatewayd import GatewaydSettings
from gatewayd.backoff import Backoff
from gatewayd.condition import Condition, Part
from gatewayd.faults import MattermostFault, NobodyAllowed, NotABot
from gatewayd.posts import Account, Channel, ChannelType

FIRST_PAUSE_MS = 1_000
MOST_NAMED = 20

log = logs.get("account")


class Api(Protocol):
    """What is asked of the server here; gatewayd.mattermost.Mattermost is one."""

    def me(self) -> Account: ...
    def channels(self) -> tuple[Channel, ...]: ...
    def users(self, ids: Sequence[MattermostId]) -> tuple[Account, ...]: ...
    def close(self) -> None: ...


def check(
    api: Callable[[], Api],
    settings: GatewaydSettings,
    condition: Condition,
    *,
    stopping: threading.Event,
    tried: Callable[[], None] = lambda: None,
) -> Account | None:
    """Return the bot's account, None where `stopping` was set before the server told. Raises NotABot, NobodyAllowed.

    `tried` is called once, after the first try.
    """
    backoff = Backoff(FIRST_PAUSE_MS, settings.mattermost.retry_most_ms, random)
    with closing(api()) as server:
        while not stopping.is_set():
            found = _asked(server, condition)
            if not settings.allow.users:
                raise _nobody(server, found)
            if isinstance(found, Account):
                _note_unfit(server, settings)
                tried()
                return found
            tried()
            tried = _nothing
            stopping.wait(max(backoff.next_ms(), found.retry_ms) / 1000)
    return None


def _nothing() -> None:
    """It was told."""


def _asked(server: Api, condition: Condition) -> Account | MattermostFault:
    try:
        account = server.me()
    except MattermostFault as error:
        condition.trouble(Part.CONNECTION, error)
        return error
    condition.well(Part.CONNECTION)
    if not account.is_bot:
        raise NotABot(
            "the token is that of a person, not of a bot: what Boxmaker says would be said in that person's name;"
            " make a bot account and put its token in place of this one (docs/mattermost.md)"
        )
    log.info("account user=%s name=%s", account.id, account.username)
    return account


# -- nobody may speak -----------------------------------------------------------------------------


def _nobody(server: Api, found: Account | MattermostFault) -> NobodyAllowed:
    text = (
        "nobody may speak: put ids of people into allow.users of gatewayd.toml, with make chat into MATTERMOST_USERS="
    )
    people = _acquainted(server, found) if isinstance(found, Account) else ()
    lines = [f"{person.username} = {person.id}" for person in people]
    return NobodyAllowed("\n".join([text + (". These have a direct channel with the bot:" if lines else ""), *lines]))


def _acquainted(server: Api, bot: Account) -> Sequence[Account]:
    """Return people who have a direct channel with the bot, whom the owner most likely means; as far as can be told."""
    try:
        direct = [channel for channel in server.channels() if channel.type is ChannelType.DIRECT]
        others = [other for channel in direct if (other := _other(channel, bot.id)) is not None]
        accounts = server.users(others[:MOST_NAMED]) if others else ()
    except MattermostFault as error:
        log.warning("nobody is named, the server did not say who is there code=%s", error.code)
        return ()
    return [account for account in accounts if _why_unfit(account) is None]


def _other(channel: Channel, bot: MattermostId) -> MattermostId | None:
    names = channel.name.split("__")
    if len(names) != 2 or bot not in names:
        return None
    other = names[1] if names[0] == bot else names[0]
    try:
        return ids.mattermost_id(other) if other != bot else None
    except ValueError:
        return None


# -- somebody who cannot --------------------------------------------------------------------------


def unfit(accounts: Sequence[Account], named: Sequence[str]) -> dict[MattermostId, str]:
    """Return which of the ids in the settings can speak to nobody, and why; `accounts` is what the server knows."""
    known = {account.id: account for account in accounts}
    found: dict[MattermostId, str] = {}
    for entry in named:
        account = known.get(MattermostId(entry))
        why = "nobody has this id" if account is None else _why_unfit(account)
        if why is not None:
            found[MattermostId(entry)] = why
    return found


def named(settings: GatewaydSettings) -> tuple[MattermostId, ...]:
    """Return everybody whom the settings name, once."""
    return tuple(dict.fromkeys(map(MattermostId, (*settings.allow.users, *settings.approvals.users))))


def _why_unfit(account: Account) -> str | None:
    if account.is_bot:
        return "it is a bot"
    return "it was deactivated" if account.delete_at else None


def _note_unfit(server: Api, settings: GatewaydSettings) -> None:
    try:
        accounts = server.users(named(settings))
    except MattermostFault as error:
        log.warning("the users of the settings were not looked up code=%s", error.code)
        return
    for user, why in unfit(accounts, named(settings)).items():
        log.warning("a user of the settings cannot speak user=%s why=%s code=mattermost_users_unfit", user, why)
