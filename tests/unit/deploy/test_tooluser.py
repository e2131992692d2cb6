"""Who runs the tools, and where that user may go."""

import os
import pwd
from pathlib import Path

import pytest

from deploy.local import tooluser
from deploy.local.refusal import Refusal
from deploy.local.tooluser import NoIds, ToolUser

STRANGER = ToolUser(name="stranger", uid=54_321, gid=54_321, own=True)
MYSELF = ToolUser(name="me", uid=os.geteuid(), gid=os.getegid(), own=False)


@pytest.fixture
def ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make files that give ids to whom the test says."""
    monkeypatch.setattr(tooluser, "_RANGES", (tmp_path / "subuid", tmp_path / "subgid"))
    return tmp_path


def me(monkeypatch: pytest.MonkeyPatch, uid: int) -> str:
    """Be an ordinary user who is called like this one."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    return pwd.getpwuid(uid).pw_name


def give(ranges: Path, line: str) -> None:
    for name in ("subuid", "subgid"):
        (ranges / name).write_text(f"somebody:100000:65536\n{line}\n")


def test_an_ordinary_user_runs_the_tools_and_is_told_that_it_is_weaker(
    ranges: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = me(monkeypatch, 65_534)
    give(ranges, f"{name}:165536:65536")
    user = tooluser.find()
    assert (user.uid, user.own) == (65_534, False)
    assert name in (user.warning or "")


def test_a_line_may_name_the_number(ranges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me(monkeypatch, 65_534)
    give(ranges, "65534:165536:65536")
    assert tooluser.find().uid == 65_534


@pytest.mark.parametrize("line", ["", "nobodyelse:1:2"])
def test_a_user_without_ids_is_told_the_command(ranges: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    name = me(monkeypatch, 65_534)
    give(ranges, line)
    command = f"usermod --add-subuids 165536-231071 --add-subgids 165536-231071 {name}"
    with pytest.raises(NoIds, match=f"once as root:\n    {command}$"):
        tooluser.find()


@pytest.mark.parametrize(
    ("uids", "gids", "first"),
    [("", "", 100_000), ("a:1:2\n", "a:200000:65536\n", 265_536), ("# nothing\na:b:c\na:300000:1\n", "", 300_001)],
)
def test_the_first_ids_above_everybodys_are_named(ranges: Path, uids: str, gids: str, first: int) -> None:
    (ranges / "subuid").write_text(uids)
    (ranges / "subgid").write_text(gids)
    assert tooluser.free_range() == f"{first}-{first + 65_535}"


def test_one_of_the_two_files_is_not_enough(ranges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = me(monkeypatch, 65_534)
    (ranges / "subuid").write_text(f"{name}:165536:65536\n")
    with pytest.raises(NoIds):
        tooluser.find()


def test_root_needs_the_user_that_the_set_up_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tooluser, "NAME", "no-such-user-here")
    with pytest.raises(Refusal, match=r"setup\.sh podman"):
        tooluser.find()


def test_a_user_of_its_own_needs_no_warning() -> None:
    assert STRANGER.warning is None


def test_a_closed_directory_on_the_way_keeps_a_stranger_out(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "open"
    inner.mkdir(parents=True)
    inner.chmod(0o777)
    inner.parent.chmod(0o700)
    assert not tooluser.may_enter(inner, STRANGER)
    assert tooluser.may_enter(inner, MYSELF)


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "passes"),
    [
        (0o711, -1, -1, True),
        (0o766, -1, -1, False),
        (0o710, -1, os.getegid(), True),
        (0o701, -1, os.getegid(), False),
        (0o611, os.geteuid(), -1, False),
        (0o700, os.geteuid(), -1, True),
    ],
)
def test_the_first_class_that_fits_decides(tmp_path: Path, mode: int, uid: int, gid: int, *, passes: bool) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)
    user = ToolUser(name="x", uid=uid, gid=gid, own=True)
    assert tooluser._passes(place.stat(), user) is passes


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed").chmod(0o700)
    (tmp_path / "link").symlink_to("closed")
    assert not tooluser.may_enter(tmp_path / "link", STRANGER)
