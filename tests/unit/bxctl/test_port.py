"""What is said where nobody listens."""

from pathlib import Path

import pytest

from bxcore.client import PeerAway
from bxcore.deadline import SystemClock
from bxctl import sockets
from bxctl.adminport import AdminPort


def away(home: Path) -> str:
    """Return the words of a question that nobody hears."""
    with pytest.raises(PeerAway) as caught:
        AdminPort(sockets.home(home), SystemClock()).pending()
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


def test_elsewhere_it_does_not(tmp_path: Path) -> None:
    assert "make chat" not in away(tmp_path)
