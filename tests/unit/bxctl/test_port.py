"""What is said where nobody listens."""

from pathlib import Path

import pytest

from bxcore.client import PeerAway
from bxcore.deadline import SystemClock
from bxctl import sockets
from bxctl.adminport import AdminPort
from bxctl.gatewayport import GatewayPort


def away(home: Path) -> str:
    """Return the words of a question that nobody hears."""
    with pytest.raises(PeerAway) as caught:
        AdminPort(sockets.home(home), SystemClock()).pending()
    return caught.value.detail


def away_from_gatewayd(home: Path) -> str:
    with pytest.raises(PeerAway) as caught:
        GatewayPort(sockets.home(home), SystemClock()).status()
    return caught.value.detail


def test_in_a_checkout_it_says_what_starts_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deploy" / "local").mkdir(parents=True)
    (tmp_path / "deploy" / "local" / "chat.py").touch()
    (tmp_path / ".state" / "demo").mkdir(parents=True)
    monkeypatch.setattr(sockets, "_ROOT", tmp_path)
    assert away(tmp_path / ".state").endswith(
        f"brokerd is not running: nothing listens on {tmp_path}/.state/run/admin/admin.sock; make chat starts it"
    )
    assert "make chat" not in away(tmp_path / ".state" / "demo")
    assert away_from_gatewayd(tmp_path / ".state").endswith("; make chat MATTERMOST=… starts it")


def test_in_the_home_of_make_appliance_it_names_that(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert "starts it" not in away(home)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "roles.json").touch()
    assert away(home).endswith("; make appliance starts it")
    assert away_from_gatewayd(home).endswith("; make appliance MATTERMOST=… starts it")


def test_elsewhere_it_does_not(tmp_path: Path) -> None:
    assert "make chat" not in away(tmp_path)
