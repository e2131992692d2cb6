"""Where the tools of a home lie: a short path that the tool user can enter, and of which it owns only its part."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import toolplace
from deploy.local.refusal import Refusal
from deploy.local.toolplace import MAX_PATH_BYTES, Place
from deploy.local.tooluser import ToolUser

STRANGER = ToolUser(name="stranger", uid=54_321, gid=54_321, own=True)
MYSELF = ToolUser(name="me", uid=os.geteuid(), gid=os.getegid(), own=False)
LONGEST_IN_PODMAN = 50

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away; others have no other user")


@pytest.fixture
def short() -> Iterator[Path]:
    """Give a directory whose path is short wherever pytest puts its own."""
    with tempfile.TemporaryDirectory(prefix="bm", dir="/var/tmp") as directory:
        yield Path(directory)


def test_a_home_that_the_user_can_enter_has_its_tools_inside(short: Path) -> None:
    assert toolplace.choose(short, MYSELF).path == short / "tools"


def test_a_closed_home_has_them_elsewhere(short: Path) -> None:
    home = short / "home"
    home.mkdir(mode=0o700)
    place = toolplace.choose(home, STRANGER)
    assert place.path.parent == toolplace.ELSEWHERE
    assert place.path != toolplace.choose(short, STRANGER).path


def test_a_long_home_has_them_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 10)
    place = toolplace.choose(home, MYSELF)
    assert place.path.parent == toolplace.ELSEWHERE
    assert place.path == toolplace.choose(home, MYSELF).path


def test_podman_accepts_the_longest_path(tmp_path: Path) -> None:
    place = Place(path=Path("/" + "x" * (MAX_PATH_BYTES - 1)), user=MYSELF)
    assert len(os.fsencode(place.runtime / "containers")) <= LONGEST_IN_PODMAN
    elsewhere = toolplace.choose(tmp_path / ("long" * 10), MYSELF).path
    assert len(os.fsencode(elsewhere)) <= MAX_PATH_BYTES


def test_two_homes_have_two_places(tmp_path: Path) -> None:
    places = {toolplace.choose(tmp_path / ("long" * 10 + name), MYSELF).path for name in "ab"}
    assert len(places) == 2


def test_a_place_is_lost_when_its_home_is_gone(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolplace, "ELSEWHERE", short)
    home = short / "home"
    place = toolplace.choose(short / ("long" * 10), MYSELF)
    place.prepare()
    assert toolplace.lost(MYSELF) == []  # it does not say whose it is: it is being made
    place.write(place.home, f"{home}\n")
    assert toolplace.lost(MYSELF) == [place]
    home.mkdir()
    assert toolplace.lost(MYSELF) == []


def test_a_link_is_no_lost_place(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolplace, "ELSEWHERE", short)
    (short / "precious").mkdir()
    (short / "precious" / "home").write_text("/no/such/home\n")
    (short / "boxmaker-tools-0123456789").symlink_to("precious")
    assert toolplace.lost(MYSELF) == []


def modes(place: Place) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (place.path, *place.path.iterdir())}


def test_everything_is_made_with_its_mode_whatever_it_had(short: Path) -> None:
    place = Place(path=short / "tools", user=MYSELF)
    place.prepare()
    for path in place.path.iterdir():
        path.chmod(0o777)
    place.prepare()
    assert modes(place) == {
        "tools": 0o711, "etc": 0o750, "calls": 0o2750, "storage": 0o711, "run": 0o700, "shared": 0o711,
    }  # fmt: skip


@as_root
def test_the_tool_user_owns_its_part_and_reads_the_rest(short: Path) -> None:
    place = Place(path=short / "tools", user=STRANGER)
    place.prepare()
    place.write(place.image_id, "x\n")
    owners = {path.name: path.stat().st_uid for path in (place.path, *place.path.iterdir())}
    assert owners == {
        "tools": 0, "etc": 0, "calls": 0, "image-id": 0,
        "storage": STRANGER.uid, "run": STRANGER.uid, "shared": os.geteuid(),
    }  # fmt: skip
    status = place.image_id.stat()
    assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (STRANGER.gid, 0o640)


@as_root
def test_what_is_made_in_calls_belongs_to_the_users_group(short: Path) -> None:
    place = Place(path=short / "tools", user=STRANGER)
    place.prepare()
    (place.calls / "17").mkdir()
    assert (place.calls / "17").stat().st_gid == STRANGER.gid


@as_root
def test_a_link_that_is_given_away_is_not_followed(short: Path) -> None:
    place = Place(path=short / "tools", user=STRANGER)
    place.prepare()
    link = place.shared / "link"
    link.symlink_to(place.settings)
    place.give(link)
    assert link.lstat().st_uid == STRANGER.uid
    assert place.settings.stat().st_uid == 0


def test_a_place_that_is_a_link_is_refused(short: Path) -> None:
    (short / "other").mkdir()
    (short / "tools").symlink_to("other")
    with pytest.raises(Refusal, match="not a directory of yours"):
        Place(path=short / "tools", user=MYSELF).prepare()
    assert list((short / "other").iterdir()) == []


@as_root
def test_a_place_that_somebody_else_made_first_is_refused(short: Path) -> None:
    (short / "tools").mkdir()
    os.chown(short / "tools", 54_322, 54_322)
    with pytest.raises(Refusal, match="not a directory of yours"):
        Place(path=short / "tools", user=STRANGER).prepare()


def test_one_service_a_place(short: Path) -> None:
    place = Place(path=short / "tools", user=MYSELF)
    place.prepare()
    lock = place.lock()
    assert lock is not None
    assert place.lock() is None
    lock.close()
    again = place.lock()
    assert again is not None
    again.close()
