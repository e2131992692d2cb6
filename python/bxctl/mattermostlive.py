"""Checks of `bxctl doctor`: gatewayd runs, is connected as a bot, and knows who may speak. Asks gatewayd alone."""

import re
from collections.abc import Iterator
from pathlib import Path

from bxcore.errors import BoxmakerError
from bxcore.settings.brokerd import BrokerdSettings
from bxcore.wire import gateway
from bxctl import render
from bxctl.finding import Fault, Finding, room
from bxctl.world import World

USERS_UNFIT, POST_LIMIT, POSTS_PARKED = "mattermost_users_unfit", "post_limit", "posts_parked"
CHANNELS_ABSENT = "mattermost_channels_absent"
_NOT_A_BOT = "not_a_bot"

TRIED = 11
"""The server's major version that gatewayd was written for."""
_VERSION = re.compile(r"([0-9]{1,4})\.[0-9]+")
_MAKE_A_BOT = (
    "mmctl config set ServiceSettings.EnableBotAccountCreation true && mmctl bot create boxmaker --with-token  "
    "# an administrator, once"
)


def checks(world: World, etc: Path, brokerd: BrokerdSettings | None) -> Iterator[Finding]:
    """Yield what gatewayd says of itself, and then what the server says through it."""
    try:
        status = world.gateway.status()
    except BoxmakerError as error:
        yield _away(world, error)
        return
    yield from _connection(world, status)
    yield from _posts(world, status)
    if not status.connected:
        return  # the rest would be told by the server
    try:
        account = world.gateway.whoami()
    except BoxmakerError as error:
        yield from room("bot", held="", faults=[_unasked(error)], runbook=error.code)
        return
    yield from _account(account)
    yield from _people(world, etc, account)
    yield from _channels(world, etc, account)
    yield _version(account.server_version)
    if brokerd is not None:
        yield from _length(etc, account, brokerd)


def _away(world: World, error: BoxmakerError) -> Finding:
    log = world.home.path / "log" / "gatewayd.log"
    return Finding(
        name="gatewayd",
        passed=False,
        expected="gatewayd answers bxctl",
        found=error.detail,
        why="nobody is answered in Mattermost. Where it ends at once its log says why: the account is no bot "
        "(not_a_bot), nobody may speak (nobody_allowed), or there is no token (secret_missing)",
        command=f"tail {log}" if log.is_file() else "journalctl _UID=$(id -u bx-gatewayd) -n 30",
        runbook=error.code,
    )


def _connection(world: World, status: gateway.GatewayStatusReport) -> Iterator[Finding]:
    faults = []
    code = status.code or "mattermost_away"
    if status.code is not None or not status.connected:
        faults = [
            Fault(
                expected=f"connected to {status.server}, and nothing is wrong",
                found=status.detail or "not connected yet",
                why="until it is, what is said there waits"
                if not status.connected
                else "a part of it does not work now",
                command=_new_token(world) if code == "token_refused" else "",
            )
        ]
    held = f"connected to {status.server}{f' as @{status.bot}' if status.bot else ''}"
    yield from room("connection to Mattermost", held=held, faults=faults, runbook=code)


def _new_token(world: World) -> str:
    start = world.home.starts
    again = "restart gatewayd" if start is None else f"leave {start} and start it again"
    return (
        "make the bot a new token (mmctl token generate BOT DESCRIPTION), put it in the old one's place, and "
        f"{again}; a disabled bot: mmctl bot enable BOT"
    )


def _posts(world: World, status: gateway.GatewayStatusReport) -> Iterator[Finding]:
    faults = []
    if status.parked:
        faults = [
            Fault(
                expected="no post is set aside",
                found=f"{render.count_of(status.parked, 'post')} set aside",
                why="it could not be handled, or its answer could not be posted; nobody tries again",
                command=world.home.command("sessions list"),
            )
        ]
    waiting = render.count_of(status.waiting + status.asked, "post")
    held = f"{waiting} at work, {render.count(status.outgoing)} to be posted, {render.count(status.listed)} too old"
    yield from room("posts of Mattermost", held=held, faults=faults, runbook=POSTS_PARKED)


def _unasked(error: BoxmakerError) -> Fault:
    why = "who the bot is and who may speak could not be asked"
    return Fault(expected="the server says who the bot is", found=error.detail, why=why)


def _account(account: gateway.GatewayAccount) -> Iterator[Finding]:
    faults = []
    if not account.is_bot:
        faults = [
            Fault(
                expected=f"@{account.username} is a bot",
                found="it is a person's account",
                why="what Boxmaker says would be said by that person",
                command=_MAKE_A_BOT,
            )
        ]
    yield from room("bot", held=f"@{account.username} ({account.id})", faults=faults, runbook=_NOT_A_BOT)


def _people(world: World, etc: Path, account: gateway.GatewayAccount) -> Iterator[Finding]:
    faults = []
    if account.unfit:
        faults = [
            Fault(
                expected="each id under [allow] and [approvals] is a person's",
                found=f"{', '.join(account.unfit)}: no such account, deactivated, or a bot",
                why="whoever is meant by it is not heard",
                command=f"look at the ids {_written(world, etc, 'MATTERMOST_USERS=')}: "
                "mmctl user search NAME shows those there are",
            )
        ]
    named = ", ".join(f"@{name}" for name in account.allowed)
    yield from room("people in Mattermost", held=f"{named} may speak", faults=faults, runbook=USERS_UNFIT)


def _channels(world: World, etc: Path, account: gateway.GatewayAccount) -> Iterator[Finding]:
    faults = []
    if account.channels_absent:
        faults = [
            Fault(
                expected="the bot is in each channel of [allow] channels",
                found=f"it is not in {', '.join(account.channels_absent)}",
                why="nobody is heard there",
                command=f"invite @{account.username} there, or correct the id "
                + _written(world, etc, "MATTERMOST_CHANNELS="),
            )
        ]
    many = render.count_of(account.channels_allowed, "channel")
    held = f"in direct messages, and where it is named in {many}"
    yield from room("channels of Mattermost", held=held, faults=faults, runbook=CHANNELS_ABSENT)


def _written(world: World, etc: Path, variable: str) -> str:
    """Say where the owner writes it: a launcher makes the file from what was typed, and keeps one that was changed."""
    start = world.home.starts
    return f"in {etc / 'gatewayd.toml'}" if start is None else f"in {variable} of {start}"


def _version(text: str | None) -> Finding:
    name, expected = "version of Mattermost", f"{TRIED} or newer"
    found = _VERSION.match(text or "")
    if found is None:
        return Finding(name=name, passed=None, expected=expected, found="the server does not say which it is")
    if int(found[1]) < TRIED:
        words = f"{text} is older than {TRIED}, which this was written for: it may work, and was not tried"
        return Finding(name=name, passed=None, expected=expected, found=words)
    return Finding(name=name, passed=True, expected=expected, found=str(text))


def _length(etc: Path, account: gateway.GatewayAccount, brokerd: BrokerdSettings) -> Iterator[Finding]:
    most, wanted = account.max_post_characters, brokerd.gateway.post_characters
    faults = []
    if wanted > most:
        faults = [
            Fault(
                expected=f"brokerd's posts have at most {most} characters, as the server takes",
                found=f"post_characters is {wanted}",
                why="a long question would not be taken, and could be answered at this machine alone",
                command=f"post_characters = {most} under [gateway] in {etc / 'brokerd.toml'}, and restart brokerd",
            )
        ]
    yield from room("length of posts", held=f"{wanted} of {most} characters", faults=faults, runbook=POST_LIMIT)
