"""What is wrong is told once, gravest first, and taken back when it is mended."""

import logging
import socket
from collections.abc import Iterator

import pytest

from gatewayd.condition import Condition, Part
from gatewayd.faults import MattermostAway, TokenRefused
from tests.fakes.clocks import BEGIN, HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def condition(clock: HandClock) -> Condition:
    return Condition(clock)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The service manager's end of sd_notify."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind("")
        made.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + made.getsockname().decode().removeprefix("\0"))
        yield made


def test_at_first_nothing_is_wrong_and_nothing_is_connected(condition: Condition) -> None:
    assert (condition.connected, condition.since, condition.server_version) == (False, BEGIN, None)
    assert condition.worst() is None


def test_the_gravest_part_is_what_is_shown(condition: Condition) -> None:
    for part in reversed(Part):
        condition.trouble(part, MattermostAway(part.value))
        worst = condition.worst()
        assert worst is not None
        assert worst.detail == part.value
    for part in Part:
        worst = condition.worst()
        assert worst is not None
        assert worst.detail == part.value
        condition.well(part)
    assert condition.worst() is None


def test_the_same_trouble_again_keeps_its_time_and_is_logged_once(
    condition: Condition, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    condition.trouble(Part.LOOP, MattermostAway("first"))
    clock.wind(1_000)
    condition.trouble(Part.LOOP, MattermostAway("again"))
    worst = condition.worst()
    assert worst is not None
    assert (worst.since, worst.detail) == (BEGIN, "again")  # what is wrong now: no name yet, then no certificate
    assert len([record for record in caplog.records if record.getMessage().startswith("trouble")]) == 1


def test_another_trouble_of_the_same_part_is_a_new_one(condition: Condition, clock: HandClock) -> None:
    condition.trouble(Part.CONNECTION, MattermostAway("away"))
    clock.wind(1_000)
    condition.trouble(Part.CONNECTION, TokenRefused("revoked", status=401))
    worst = condition.worst()
    assert worst is not None
    assert (worst.code, worst.since) == ("token_refused", BEGIN + 1_000)


def test_what_is_mended_is_logged_once(condition: Condition, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="boxmaker")
    condition.well(Part.LOOP)
    condition.trouble(Part.LOOP, MattermostAway("away"))
    condition.well(Part.LOOP)
    condition.well(Part.LOOP)
    assert len([record for record in caplog.records if record.getMessage().startswith("mended")]) == 1


def test_a_connection_that_stays_as_it_is_keeps_its_time_and_its_version(
    condition: Condition, clock: HandClock
) -> None:
    clock.wind(1_000)
    condition.connection(up=True, server_version="11.6.0")
    clock.wind(1_000)
    condition.connection(up=True)
    assert (condition.connected, condition.since, condition.server_version) == (True, BEGIN + 1_000, "11.6.0")
    condition.connection(up=False)
    assert (condition.connected, condition.since, condition.server_version) == (False, BEGIN + 2_000, "11.6.0")


def test_it_is_connected_once_what_was_missed_has_been_read(
    condition: Condition, clock: HandClock, manager: socket.socket
) -> None:
    clock.wind(1_000)
    condition.connection(up=True, missed=True)
    assert (condition.connected, condition.catching_up, condition.since) == (False, True, BEGIN)
    condition.connection(up=False)
    condition.connection(up=True)  # resumed: nothing more was missed, and it still is to be read
    assert (condition.connected, condition.catching_up) == (False, True)
    condition.reading(missed=False)
    assert (condition.connected, condition.catching_up, condition.since) == (True, False, BEGIN + 1_000)
    told = ["catching up", "connecting", "catching up", "connected"]
    assert [manager.recv(200).decode() for _ in told] == [f"STATUS={words}" for words in told]


def test_the_service_manager_is_told(condition: Condition, manager: socket.socket) -> None:
    condition.connection(up=True)
    condition.trouble(Part.OUTBOUND, MattermostAway("no connection"))
    condition.well(Part.OUTBOUND)
    condition.connection(up=False)
    assert [manager.recv(200).decode() for _ in range(4)] == [
        "STATUS=connected",
        "STATUS=mattermost_away: no connection",
        "STATUS=connected",
        "STATUS=connecting",
    ]
