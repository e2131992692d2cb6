"""`bxctl mattermost`, a real process against a gatewayd that says what the test wrote."""

import json
from pathlib import Path

from bxcore.wire import gateway
from bxcore.wire.control import ErrorCode
from tests.fakes import gateway as fakes
from tests.fakes.gateway import ACCOUNT, FakeGateway, an_id
from tests.fakes.rolesocket import refuses
from tests.process.bxctl_process import run

HOSTILE = "all\x1b[31m\n\u202eok"


def test_whoami_says_what_the_server_said(tmp_path: Path) -> None:
    with FakeGateway(tmp_path):
        done = run(tmp_path, "mattermost", "whoami")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        f"bot        @boxmaker ({'b' * 26}), a bot",
        "server     https://chat.example.org, version 11.6.0",
        "posts      up to 16,383 characters each",
        "may speak  @alice",
        "approvers  @alice",
        "channels   in 3, direct messages too; where it is named, it answers in 0 of them",
    ]


def test_whoami_fails_where_an_id_is_nobodys(tmp_path: Path) -> None:
    with FakeGateway(tmp_path, fakes.account(unfit=(an_id("x"),), allowed=())):
        done = run(tmp_path, "mattermost", "whoami")
    assert done.returncode == 1
    assert done.stdout.decode().splitlines()[-1].startswith(f"unusable   {'x' * 26}: ")
    assert "[mattermost_users_unfit]" in done.stdout.decode()
    assert "may speak  nobody" in done.stdout.decode()


def test_whoami_fails_where_the_bot_is_not_in_a_channel(tmp_path: Path) -> None:
    with FakeGateway(tmp_path, fakes.account(channels_allowed=1, channels_absent=(an_id("x"),))):
        done = run(tmp_path, "mattermost", "whoami")
    assert done.returncode == 1
    assert "it answers in 1 of them" in done.stdout.decode()
    assert f"absent     {'x' * 26}: it is not there" in done.stdout.decode()


def test_whoami_in_json_is_the_frame(tmp_path: Path) -> None:
    with FakeGateway(tmp_path):
        done = run(tmp_path, "mattermost", "whoami", "--json")
    found = json.loads(done.stdout)
    assert (found["kind"], found["id"], found["allowed"]) == ("gateway_account", ACCOUNT.id, ["alice"])


def test_a_post_is_asked_for_as_it_was_typed(tmp_path: Path) -> None:
    with FakeGateway(tmp_path) as fake:
        done = run(tmp_path, "mattermost", "post", "Hello from the box.")
    assert (done.returncode, done.stdout.decode()) == (0, f"Posted to @alice: post {'p' * 26}.\n")
    assert fake.wait(gateway.GatewayPost).text == "Hello from the box."


def test_an_empty_post_is_a_slip(tmp_path: Path) -> None:
    with FakeGateway(tmp_path) as fake:
        done = run(tmp_path, "mattermost", "post", "  ")
    assert (done.returncode, fake.asked) == (2, [])


def test_status_counts_what_waits(tmp_path: Path) -> None:
    with FakeGateway(tmp_path):
        done = run(tmp_path, "mattermost", "status")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        "connected since 2026-11-30T10:26:00.000Z as @boxmaker: https://chat.example.org, version 11.6.0",
        "waiting    0 posts, not yet said to loopd",
        "asked      1 post, not answered yet",
        "outgoing   0 posts to be made",
        "questions  2 that can be answered there",
        "listed     0 posts too old to be acted upon",
        "parked     0 posts set aside, since they could not be handled or made",
    ]


def test_status_names_the_trouble_and_fails(tmp_path: Path) -> None:
    trouble = fakes.status(connected=False, code="token_refused", detail="the server refused the token", bot=None)
    with FakeGateway(tmp_path, trouble):
        done = run(tmp_path, "mattermost", "status")
    assert done.returncode == 1
    first, second, *_ = done.stdout.decode().splitlines()
    assert first.startswith("not connected since ")
    assert second == "the server refused the token [token_refused]"


def test_what_came_from_the_server_is_never_a_control_sequence(tmp_path: Path) -> None:
    scripts = fakes.account(username=HOSTILE, allowed=(HOSTILE,), server_version=HOSTILE)
    with FakeGateway(tmp_path, {**scripts, **fakes.status(bot=HOSTILE, code="x", detail=HOSTILE)}):
        said = run(tmp_path, "mattermost", "whoami").stdout + run(tmp_path, "mattermost", "status").stdout
    assert b"\x1b" not in said
    assert "\u202e" not in said.decode()
    assert "all\\u{001B}[31m\\u{000A}\\u{202E}ok" in said.decode()


def test_a_gatewayd_that_is_away_is_told_with_its_entry(tmp_path: Path) -> None:
    done = run(tmp_path, "mattermost", "status")
    assert done.returncode == 3
    assert b"gatewayd is not running: nothing listens on " in done.stderr
    assert done.stderr.endswith(b"[peer_away]\n")


def test_a_refusal_is_told_as_gatewayd_said_it(tmp_path: Path) -> None:
    with FakeGateway(tmp_path, {gateway.GatewayPost: refuses(ErrorCode.NOT_READY, "not connected")}):
        done = run(tmp_path, "mattermost", "post", "x")
    assert done.returncode == 3
    assert b"not connected [not_ready]" in done.stderr
