"""`bxctl audit` where the log is not this user's to read, as an owner finds it on an appliance."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bxctl import audit, auditshow
from bxctl.audit import AuditClosed, Log
from bxctl.auditshow import Wanted
from bxctl.world import World
from tests.fakes.backedup import BackedUp

COMMANDS: dict[str, Callable[[World], int]] = {
    "verify": lambda world: audit.verify(world, Log(), json=False),
    "head": lambda world: audit.head(world, Log()),
    "show": lambda world: auditshow.show_list(world, Log(), Wanted(session=None, since=None, limit=1), json=False),
    "show 7": lambda world: auditshow.show_one(world, Log(), seq=7, json=False),
}


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackedUp:
    """A home whose log answers as it does to somebody who is neither root nor brokerd's user."""
    place, iterdir = BackedUp(tmp_path), Path.iterdir
    place.fill()

    def refusing(path: Path) -> Iterator[Path]:
        if path == place.home / "audit":
            raise PermissionError(errno.EACCES, "Permission denied")
        return iter(iterdir(path))

    monkeypatch.setattr(Path, "iterdir", refusing)
    return place


@pytest.mark.parametrize("words", COMMANDS)
def test_who_may_not_read_the_log_is_told_what_to_run(closed: BackedUp, words: str) -> None:
    with pytest.raises(AuditClosed) as refused:
        COMMANDS[words](closed.world())
    detail = refused.value.detail
    assert detail.startswith(f"{closed.home}/audit: is brokerd's alone to read")
    assert "as root: sudo " in detail
    assert detail.endswith(f"--home {closed.home} audit {words}")
    assert closed.err.getvalue() == ""


def test_a_log_elsewhere_is_named_in_the_command(closed: BackedUp) -> None:
    with pytest.raises(AuditClosed, match=rf"audit verify --directory {closed.home}/audit \["):
        audit.verify(closed.world(), Log(directory=closed.home / "audit"), json=False)
