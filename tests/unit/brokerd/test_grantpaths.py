"""What the owner is told of the paths that grants name, before a call fails of it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerd import mounts, reach, usermap
from brokerd.call import FRESH
from brokerd.grantdesk import GrantDesk
from brokerd.grantpaths import PathReview
from brokerd.protected import Protected
from brokerd.reach import ToolUser
from bxcore.tools import TOOLS
from bxcore.wire.admin import FindingLevel, GrantFinding, GrantsCheckEnd, GrantsVerdict, Verdict
from tests.fakes.brokered import Brokered

STRANGER = ToolUser(uid=54_321, groups=frozenset({54_322}))
GONE = "nothing is there now; see whether it is spelt as you meant it"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter, as every one above it."""
    with tempfile.TemporaryDirectory(prefix="bxm") as name:
        made = Path(name).resolve()
        made.chmod(0o755)
        yield made


@pytest.fixture
def brokered(place: Path) -> Iterator[Brokered]:
    home = place / "home"
    home.mkdir()
    made = Brokered(home)
    yield made
    made.close()


def desk(brokered: Brokered, user: ToolUser | None = None) -> GrantDesk:
    paths = PathReview(protected=lambda: Protected(whole=(brokered.state,)), user=lambda: user)
    return GrantDesk(
        files=brokered.files, reading=brokered.reading, ledger=brokered.ledger, paths=paths, now=brokered.time.now_ms
    )


def told(brokered: Brokered, path: object, user: ToolUser | None = None, **keys: str) -> list[str]:
    """Return what is said of the one path of a grant that asks, or as `keys` have it."""
    brokered.grant("a", paths=f'["{path}"]', **{"mode": "ask", **keys})
    *found, end = desk(brokered, user).check()
    assert isinstance(end, GrantsCheckEnd)
    assert end.valid
    warnings = [one for one in found if isinstance(one, GrantFinding) and one.level is FindingLevel.WARNING]
    return [one.text.removeprefix("constraints.paths[0]: ") for one in warnings]


@pytest.mark.parametrize("mode", ["auto", "deny"])
def test_a_path_where_nothing_is_is_warned_of(brokered: Brokered, place: Path, mode: str) -> None:
    assert told(brokered, place / "gone", mode=mode, max_taint="secret") == [GONE]
    (place / "gone").mkdir()
    assert told(brokered, place / "gone", mode=mode, max_taint="secret") == []


def test_a_place_of_the_tool_images_own_is_never_mounted_as_a_whole_or_at_all(brokered: Brokered) -> None:
    why = "a mount here would cover files of the tool image"
    for path in ("/usr", "/etc"):
        assert told(brokered, path) == [f"can never be mounted as a whole: {why}"], path
    assert told(brokered, os.path.realpath("/usr/lib")) == [f"can never be mounted: {why}"]
    assert told(brokered, "/proc") == ["can never be mounted: nothing below /proc, /sys or /dev can be opened"]


def test_a_directory_of_boxmakers_own_is_never_mounted(brokered: Brokered) -> None:
    assert told(brokered, brokered.state) == [f"can never be mounted: {mounts.OWN}"]
    (brokered.state / "inside").mkdir()
    assert told(brokered, brokered.state / "inside") == [f"can never be mounted: {mounts.OWN}"]
    assert told(brokered, brokered.home) == [f"can never be mounted as a whole: {mounts.OWN}"]
    (brokered.home / "beside").mkdir()
    assert told(brokered, brokered.home / "beside") == []


def test_what_denies_may_name_any_place(brokered: Brokered) -> None:
    assert told(brokered, brokered.state, mode="deny", max_taint="secret") == []


def test_a_path_that_the_tool_user_may_not_enter_is_warned_of_by_check_and_by_test(
    brokered: Brokered, place: Path
) -> None:
    closed = place / "closed"
    (closed / "below").mkdir(parents=True)
    (closed / "below" / "a").write_text("a")
    closed.chmod(0o750)
    text = f"the user that tools run as (uid 54321) may not enter {closed}"
    assert told(brokered, closed / "below", STRANGER) == [f"{text}, so such calls are denied until it may"]
    *_, verdict = desk(brokered, STRANGER).test("read_file", f'{{"path":"{closed}/below/a"}}', FRESH)
    assert isinstance(verdict, GrantsVerdict)
    assert (verdict.verdict, verdict.detail) == (Verdict.ASK, text)
    closed.chmod(0o751)
    assert told(brokered, closed / "below", STRANGER) == []
    *_, verdict = desk(brokered, STRANGER).test("read_file", f'{{"path":"{closed}/below/a"}}', FRESH)
    assert isinstance(verdict, GrantsVerdict)
    assert (verdict.verdict, verdict.detail) == (Verdict.ASK, None)


NEEDS = [
    ("read_file", 0o751, None),
    ("list_directory", 0o751, "list"),
    ("search_files", 0o751, "list"),
    ("list_directory", 0o755, None),
    ("write_file", 0o755, "write in"),
    ("edit_file", 0o757, None),
    ("shell", 0o750, "enter"),
]


@pytest.mark.parametrize(("tool", "mode", "word"), NEEDS)
def test_each_tool_needs_what_it_does(place: Path, tool: str, mode: int, word: str | None) -> None:
    place.chmod(mode)
    said = reach.obstacle(str(place), TOOLS[tool], STRANGER)
    assert said == (word and f"the user that tools run as (uid 54321) may not {word} {place}")


def test_the_owner_the_group_and_root_are_judged_by_what_is_theirs(place: Path) -> None:
    file, read = place / "a", TOOLS["read_file"]
    file.write_text("a")
    owner, group = file.stat().st_uid, file.stat().st_gid
    cases = [
        (ToolUser(uid=54_321, groups=frozenset({group})), 0o640, True),
        (ToolUser(uid=54_321, groups=frozenset({group})), 0o604, False),  # the group's bits alone count for it
        (STRANGER, 0o640, False),
        (STRANGER, 0o604, True),
        (ToolUser(uid=0, groups=frozenset()), 0o000, True),
    ]
    if owner:
        cases.append((ToolUser(uid=owner, groups=frozenset()), 0o044, False))
    for user, mode, may in cases:
        file.chmod(mode)
        assert (reach.obstacle(str(file), read, user) is None) == may, (user, oct(mode))


def test_what_an_acl_or_a_link_may_change_is_not_judged(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    (place / "link").symlink_to(closed)
    read = TOOLS["read_file"]
    assert reach.obstacle(str(closed), read, STRANGER) is not None
    assert reach.obstacle(f"{place}/link/a", read, STRANGER) is None
    assert reach.obstacle(f"{place}/gone/a", read, STRANGER) is None
    asked: list[str] = []

    def has_one(path: str, name: str, *, follow_symlinks: bool) -> bytes:
        asked.append(name)
        return b"\x02\x00\x00\x00"

    monkeypatch.setattr(os, "getxattr", has_one)
    assert reach.obstacle(str(closed), read, STRANGER) is None
    assert asked == ["system.posix_acl_access"]


def test_the_tool_user_is_the_owner_of_the_services_socket(place: Path) -> None:
    socket = place / "podman.sock"
    assert ToolUser.of(socket) is None
    socket.touch()
    found = ToolUser.of(socket)
    assert found is not None
    assert found.uid == os.geteuid()
    assert socket.stat().st_gid in found.groups


def test_in_a_container_the_tool_user_is_nobody_that_could_be_judged(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = place / "podman.sock"
    socket.touch()
    monkeypatch.setattr(usermap, "stranger", os.geteuid)
    assert ToolUser.of(socket) is None
