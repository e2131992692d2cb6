"""Row P2 of the bad-input list, for grants: what denies through a link would deny nothing, and is refused."""

import errno
import os
from pathlib import Path

import pytest

from brokerd import grantlinks, links, mounts
from brokerd.grantset import GrantFiles
from bxcore import hosts
from bxcore.grants import GrantSet, Mode
from bxcore.tools import TOOLS
from bxcore.wire.admin import FindingLevel
from tests.fakes import calls
from tests.fakes.brokered import grant_text
from tests.fakes.clocks import HandClock
from tests.fakes.grantfiles import AlwaysStill, faults, ids, put

FULL_LOOK_MS = 1_000


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def grants(tmp_path: Path) -> Path:
    made = tmp_path / "grants"
    made.mkdir(mode=0o755)
    return made


@pytest.fixture
def files(grants: Path, clock: HandClock) -> GrantFiles:
    """Return the grants as seen with a kernel that tells nothing: between two full looks all stays as it was."""
    return GrantFiles(grants, clock=clock, watch=AlwaysStill())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with a private one in it, to which the home's `docs` is a link."""
    made = tmp_path / "data" / "docs"
    (made / "private").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "docs").symlink_to(made)
    return made


def grant(path: object, mode: Mode = Mode.DENY) -> str:
    return grant_text(mode=mode.value, max_taint="secret", paths=f'["{path}"]')


def fault(name: str, place: object) -> str:
    return f"{name}.toml: constraints.paths[0]: leads to {place}; name that place"


# -- what denies ------------------------------------------------------------------------------


def test_p2_a_deny_grant_through_a_link_stops_everything_until_it_names_the_place(
    grants: Path, files: GrantFiles, clock: HandClock, data: Path, tmp_path: Path
) -> None:
    put(grants / "docs.toml", grant(data, Mode.AUTO))
    put(grants / "shut.toml", grant(tmp_path / "home" / "docs" / "private"))
    assert faults(files) == [fault("shut", data / "private")]
    put(grants / "shut.toml", grant(data / "private"))
    clock.wind(FULL_LOOK_MS)
    assert ids(files) == ["docs", "shut"]


def test_p2_a_link_that_appears_is_seen_within_a_full_look(
    grants: Path, files: GrantFiles, clock: HandClock, tmp_path: Path
) -> None:
    put(grants / "shut.toml", grant(tmp_path / "private"))
    assert ids(files) == ["shut"]
    (tmp_path / "private").symlink_to("elsewhere")
    clock.wind(FULL_LOOK_MS - 1)
    assert ids(files) == ["shut"]
    clock.wind(1)
    assert faults(files) == [fault("shut", tmp_path / "elsewhere")]
    (tmp_path / "private").unlink()
    clock.wind(FULL_LOOK_MS)
    assert ids(files) == ["shut"]


def test_the_same_set_is_given_as_long_as_no_link_appears(
    grants: Path, files: GrantFiles, clock: HandClock, data: Path
) -> None:
    put(grants / "shut.toml", grant(data / "private"))
    first = files.current()
    clock.wind(FULL_LOOK_MS)
    assert files.current() is first


# What is a link to what, the path in the grant, and where it leads.
LINKS: dict[str, tuple[dict[str, str], str, str]] = {
    "the folder itself": ({"a": "b"}, "a", "b"),
    "a folder above it": ({"a": "b"}, "a/x/y", "b/x/y"),
    "to nothing": ({"a": "none/there"}, "a", "none/there"),
    "up and down again": ({"a": "home/../b"}, "a", "b"),
    "to a file": ({"a": "f"}, "a", "f"),
    "one link after the other": ({"a": "b", "b": "c"}, "a/x", "c/x"),
    "to a name that steers a terminal": ({"a": "\x1b[31m"}, "a", "\\u{001B}[31m"),
    "to a name that is not UTF-8": ({"a": "\udcff"}, "a", "\\u{DCFF}"),
}


@pytest.mark.parametrize(("made", "named", "leads_to"), LINKS.values(), ids=LINKS.keys())
def test_p2_wherever_the_link_is_and_leads(
    grants: Path, files: GrantFiles, tmp_path: Path, made: dict[str, str], named: str, leads_to: str
) -> None:
    (tmp_path / "f").touch()
    for name, target in made.items():
        (tmp_path / name).symlink_to(target)
    put(grants / "shut.toml", grant(tmp_path / named))
    assert faults(files) == [fault("shut", tmp_path / leads_to)]


def test_a_place_too_long_to_show_is_cut(grants: Path, files: GrantFiles, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/".join(["x" * 200] * 10))
    put(grants / "shut.toml", grant(tmp_path / "a"))
    [text] = faults(files)
    assert text.endswith("xxx…; name that place")
    assert len(text) < 500


def test_it_is_told_beside_all_that_is_wrong_with_other_files(
    grants: Path, files: GrantFiles, data: Path, tmp_path: Path
) -> None:
    put(grants / "bad.toml", grant(data).replace("deny", "maybe"))
    put(grants / "shut.toml", grant(tmp_path / "home" / "docs"))
    first, second = faults(files)
    assert first.startswith("bad.toml:2: mode: ")
    assert second == fault("shut", data)


def test_each_path_of_a_grant_is_followed(grants: Path, files: GrantFiles, data: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    put(grants / "shut.toml", grant(f'{data}", "{home}/docs", "{home}/new", "{home}/docs/x'))
    keys = [text.partition(": leads to")[0] for text in faults(files)]
    assert keys == ["shut.toml: constraints.paths[1]", "shut.toml: constraints.paths[3]"]


def test_what_is_not_there_yet_is_denied_as_it_is_written(grants: Path, files: GrantFiles, tmp_path: Path) -> None:
    put(grants / "shut.toml", grant(tmp_path / "none" / "x"))
    assert ids(files) == ["shut"]
    assert grantlinks.findings(files.current()) == ()


# -- what is worth a warning ------------------------------------------------------------------


def warnings(found: GrantSet) -> list[tuple[str, str]]:
    findings = grantlinks.findings(found)
    assert {(finding.level, finding.line) for finding in findings} <= {(FindingLevel.WARNING, 0)}
    return [(finding.file, finding.text) for finding in findings]


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.ASK])
def test_what_allows_through_a_link_grants_nothing_and_stops_nothing(
    grants: Path, files: GrantFiles, data: Path, tmp_path: Path, mode: Mode
) -> None:
    put(grants / "open.toml", grant(tmp_path / "home" / "docs", mode))
    put(grants / "right.toml", grant(data, mode))
    text = f"constraints.paths[0]: leads to {data}; it fits no call until you name that place"
    assert warnings(files.current()) == [("open.toml", text)]


@pytest.fixture
def closed(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that brokerd may not enter. Root may enter all, so the kernel's answer is made up here."""
    real = os.readlink

    def readlink(path: str) -> str:
        if path.startswith(f"{data}/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "readlink", readlink)
    return data


def test_where_brokerd_cannot_look_a_deny_grant_means_what_it_says_and_is_warned_of(
    grants: Path, files: GrantFiles, closed: Path
) -> None:
    put(grants / "open.toml", grant(closed / "private", Mode.ASK))
    put(grants / "shut.toml", grant(closed / "private" / "x"))
    [(file, text)] = warnings(files.current())
    assert file == "shut.toml"
    assert text.startswith(f"constraints.paths[0]: brokerd cannot look at {closed / 'private'}, so a link")


def test_a_link_on_the_way_to_where_brokerd_cannot_look_is_still_a_fault(
    grants: Path, files: GrantFiles, closed: Path, tmp_path: Path
) -> None:
    put(grants / "shut.toml", grant(tmp_path / "home" / "docs" / "private"))
    assert faults(files) == [fault("shut", closed / "private")]


def test_grants_for_hosts_have_no_path_to_follow() -> None:
    grant_set = calls.grant_set(calls.grant("fetch", Mode.DENY, tool="http_fetch", hosts=(hosts.rule("example.org"),)))
    assert (grantlinks.faults(grant_set.grants), grantlinks.findings(grant_set)) == ((), ())


# -- following --------------------------------------------------------------------------------


def test_grants_and_calls_are_followed_alike(data: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "home" / "docs" / "private", data, tmp_path / "none", tmp_path / "home" / "docs" / "n"):
        assert links.follow(str(path)).real == mounts.resolve(str(path), TOOLS["read_file"])


def test_what_could_not_be_looked_at_is_told(tmp_path: Path) -> None:
    (tmp_path / "magic").symlink_to("/proc/self/root")
    (tmp_path / "loop").symlink_to("loop")
    assert links.follow(str(tmp_path / "none" / "x")).unseen is None
    assert links.follow(str(tmp_path / "magic" / "etc")).unseen == "/proc"
    assert links.follow("/proc/self/root/etc") == links.Led(real="/proc/self/root/etc", unseen="/proc")
    assert links.follow(str(tmp_path / "loop" / "x")).unseen == str(tmp_path / "loop")
