"""A gatewayd's owner socket that says what a test wrote: how it is, who the bot is, what was posted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from bxcore.ids import MattermostId, mattermost_id
from bxcore.timestamp import from_text
from bxcore.wire import gateway
from tests.fakes.rolesocket import FakeRole, Script, replies

WHEN = from_text("2026-11-30T10:26:00.000Z")
SERVER = "https://chat.example.org"

REPORT = gateway.GatewayStatusReport(
    connected=True,
    since=WHEN,
    code=None,
    detail=None,
    server=SERVER,
    server_version="11.6.0",
    bot="boxmaker",
    waiting=0,
    asked=1,
    outgoing=0,
    parked=0,
    listed=0,
    questions=2,
)


def an_id(letter: str) -> MattermostId:
    """Return an id of one letter."""
    return mattermost_id(letter * 26)


ACCOUNT = gateway.GatewayAccount(
    server=SERVER,
    server_version="11.6.0",
    id=an_id("b"),
    username="boxmaker",
    is_bot=True,
    max_post_characters=16_383,
    allowed=("alice",),
    approvers=("alice",),
    unfit=(),
    channels=3,
    channels_allowed=0,
    channels_absent=(),
)
MADE = gateway.GatewayPostMade(post=an_id("p"), to="alice")


class FakeGateway(FakeRole):
    """Serves `<home>/run/gateway-owner/gateway.sock` while the `with` block lasts. Without scripts all is well."""

    def __init__(self, home: Path, scripts: Mapping[Any, Script] | None = None) -> None:
        usual: dict[Any, Script] = {
            gateway.GatewayStatus: replies(REPORT),
            gateway.GatewayWhoami: replies(ACCOUNT),
            gateway.GatewayPost: replies(MADE),
        }
        super().__init__(home, "gateway-owner", "gateway.sock", {**usual, **(scripts or {})})


def status(**other: Any) -> dict[Any, Script]:
    """Return the script of a status that differs in these fields."""
    return {gateway.GatewayStatus: replies(attrs.evolve(REPORT, **other))}


def account(**other: Any) -> dict[Any, Script]:
    """Return the script of an account that differs in these fields."""
    return {gateway.GatewayWhoami: replies(attrs.evolve(ACCOUNT, **other))}
