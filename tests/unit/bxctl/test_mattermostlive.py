"""What `bxctl doctor` asks gatewayd: connected, as a bot, with people who exist, and posts short enough."""

from pathlib import Path
from typing import Any

import pytest

from bxcore.deadline import SystemClock
from bxcore.settings import brokerd
from bxcore.wire import gateway
from bxcore.wire.control import ErrorCode
from bxctl import mattermostlive
from bxctl.adminport import AdminPort
from bxctl.finding import Finding
from bxctl.gatewayport import GatewayPort
from bxctl.loopport import LoopPort
from bxctl.render import Screen
from bxctl.sockets import Home
from bxctl.world import World
from tests.fakes import gateway as fakes
from tests.fakes.gateway import FakeGateway, an_id
from tests.fakes.rolesocket import refuses

ETC = Path("/etc/boxmaker")
NOWHERE = Path("/x")


def world(home: Path) -> World:
    where, clock = Home(path=home, chosen=True), SystemClock()
    screen = Screen.nowhere()
    return World(
        home=where,
        clock=clock,
        port=LoopPort(where, clock),
        admin=AdminPort(where, clock),
        gateway=GatewayPort(where, clock),
        screen=screen,
        errors=screen,
        pause=lambda _: None,
    )


def settings(**given: Any) -> brokerd.BrokerdSettings:
    return brokerd.BrokerdSettings(
        listen=brokerd.Listen(broker=NOWHERE, admin=NOWHERE),
        grants=NOWHERE,
        audit=NOWHERE,
        state=NOWHERE,
        podman=brokerd.Podman(socket=NOWHERE, image_file=NOWHERE, calls=NOWHERE, seccomp=NOWHERE),
        gateway=brokerd.Gateway(**given),
    )


def look(home: Path, scripts: Any = None, made: brokerd.BrokerdSettings | None = None) -> list[Finding]:
    with FakeGateway(home, scripts):
        return list(mattermostlive.checks(world(home), ETC, made or settings()))


def test_where_all_is_well_each_check_says_what_it_found(tmp_path: Path) -> None:
    assert [(one.name, one.found) for one in look(tmp_path)] == [
        ("connection to Mattermost", "connected to https://chat.example.org as @boxmaker"),
        ("posts of Mattermost", "1 post at work, 0 to be posted, 0 too old"),
        ("bot", f"@boxmaker ({'b' * 26})"),
        ("people in Mattermost", "@alice may speak"),
        ("channels of Mattermost", "in direct messages, and where it is named in 0 channels"),
        ("version of Mattermost", "11.6.0"),
        ("length of posts", "16000 of 16383 characters"),
    ]


FAULTS: dict[str, tuple[Any, str, str, str]] = {
    "not connected": (fakes.status(connected=False), "mattermost_away", "not connected yet", ""),
    "a refused token": (
        fakes.status(connected=False, code="token_refused", detail="the server refused the token"),
        "token_refused",
        "the server refused the token",
        "mmctl token generate",
    ),
    "loopd is away": (fakes.status(code="peer_away", detail="loopd is not running"), "peer_away", "loopd is not", ""),
    "posts set aside": (fakes.status(parked=2), "posts_parked", "2 posts set aside", "sessions list"),
    "no bot": (
        fakes.account(is_bot=False),
        "not_a_bot",
        "a person's account",
        "ServiceSettings.EnableBotAccountCreation true",
    ),
    "nobody's id": (fakes.account(unfit=(an_id("x"),)), "mattermost_users_unfit", "x" * 26, "mmctl user search"),
    "a channel without the bot": (
        fakes.account(channels_absent=(an_id("x"),)),
        "mattermost_channels_absent",
        "x" * 26,
        "invite @boxmaker there, or correct the id in /etc/boxmaker/gatewayd.toml",
    ),
    "short posts": (fakes.account(max_post_characters=4_000), "post_limit", "16000", "post_characters = 4000"),
    "no answer of the server": (
        {gateway.GatewayWhoami: refuses(ErrorCode.INTERNAL, "no answer")},
        "internal",
        "no answer",
        "",
    ),
}


@pytest.mark.parametrize(("scripts", "code", "found", "command"), FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_is_told_once_with_its_entry_and_what_mends_it(
    tmp_path: Path, scripts: Any, code: str, found: str, command: str
) -> None:
    (fault,) = [one for one in look(tmp_path, scripts) if one.passed is False]
    assert fault.runbook == code
    assert found in fault.found
    assert command in fault.command
    assert fault.why


def test_a_gatewayd_that_does_not_run_is_told_with_where_it_says_why(tmp_path: Path) -> None:
    (fault,) = mattermostlive.checks(world(tmp_path), ETC, None)
    assert (fault.passed, fault.runbook) == (False, "peer_away")
    assert fault.command.startswith("journalctl")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "gatewayd.log").touch()
    (fault,) = mattermostlive.checks(world(tmp_path), ETC, None)
    assert fault.command == f"tail {tmp_path}/log/gatewayd.log"


@pytest.mark.parametrize("version", ["9.11.4", None, "", "eleven"])
def test_another_version_is_neither_passed_nor_failed(tmp_path: Path, version: str | None) -> None:
    (found,) = [one for one in look(tmp_path, fakes.account(server_version=version)) if one.name.startswith("version")]
    assert found.passed is None


def test_without_a_connection_the_server_is_not_asked(tmp_path: Path) -> None:
    with FakeGateway(tmp_path, fakes.status(connected=False)) as fake:
        list(mattermostlive.checks(world(tmp_path), ETC, None))
    assert fake.of(gateway.GatewayWhoami) == []


def test_a_shorter_post_than_the_server_takes_is_well(tmp_path: Path) -> None:
    scripts = fakes.account(max_post_characters=4_000)
    assert all(one.passed for one in look(tmp_path, scripts, settings(post_characters=4_000)))


def test_where_a_launcher_writes_the_settings_its_words_are_named(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "roles.json").touch()
    home = tmp_path / "home"
    (fault,) = [one for one in look(home, fakes.account(unfit=(an_id("x"),))) if one.passed is False]
    assert "look at the ids in MATTERMOST_USERS= of make appliance" in fault.command
    (fault,) = [one for one in look(home, fakes.account(channels_absent=(an_id("x"),))) if one.passed is False]
    assert fault.command.endswith("correct the id in MATTERMOST_CHANNELS= of make appliance")
    trouble = fakes.status(connected=False, code="token_refused", detail="the server refused the token")
    (fault,) = [one for one in look(home, trouble) if one.passed is False]
    assert fault.command.endswith("leave make appliance and start it again; a disabled bot: mmctl bot enable BOT")
