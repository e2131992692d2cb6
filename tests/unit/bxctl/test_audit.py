"""`bxctl audit` where the log is not this user's to read, and what it says of an answer."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from bxcore import auditlog
from bxcore.ids import Hash32
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.tools import DataClass
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


def test_an_answer_from_mattermost_names_the_person_and_the_post() -> None:
    record = auditlog.Answered(
        seq=9,
        time=Timestamp(0),
        prev=Hash32("0" * 64),
        decision=8,
        ending=ApprovalEnding.REFUSED,
        approver=f"mattermost:{'a' * 26}",
        post="p" * 26,
        reason="not today",
        grant=None,
        grant_hash=None,
        taint=DataClass.PUBLIC,
        untrusted=False,
    )
    word, text, _ = auditshow._told(record)
    assert (word, text) == ("answer", f"8 refused by mattermost:{'a' * 26}, post {'p' * 26}: not today")
    _, text, _ = auditshow._told(attrs.evolve(record, approver="bxctl", post=None, reason=None))
    assert text == "8 refused by bxctl"
