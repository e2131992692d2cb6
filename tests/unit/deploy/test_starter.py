"""The grants that a checkout starts with: brokerd takes them, and they are written once."""

from pathlib import Path
from typing import cast

import pytest

from bxcore import grants
from bxcore.grants import Mode
from bxcore.wire.tools import DataClass
from deploy.local import starter
from deploy.local.home import Home
from deploy.local.toolhost import ToolHost

FOLDER = Path("/var/tmp/boxmaker-tools-1-abc/shared/sample")


class FakeHost:
    """A tool host of this very user: what it is given is its own already."""

    def __init__(self, shared: Path) -> None:
        self.shared_dir = shared
        self.given: list[Path] = []

    def give(self, path: Path) -> None:
        self.given.append(path)


@pytest.fixture
def host(tmp_path: Path) -> ToolHost:
    shared = tmp_path / "shared"
    shared.mkdir()
    return cast(ToolHost, FakeHost(shared))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def test_every_starter_grant_can_be_read() -> None:
    found = {name: grants.parse(name, text.encode()) for name, text in starter.grants(FOLDER).items()}
    modes = {grant.tool: grant.mode for grant in found.values()}
    assert modes == {
        "read_file": Mode.AUTO,
        "list_directory": Mode.AUTO,
        "search_files": Mode.AUTO,
        "write_file": Mode.ASK,
        "edit_file": Mode.ASK,
        "http_fetch": Mode.ASK,
    }
    assert all(grant.untrusted for grant in found.values())


def test_no_secret_may_leave_by_a_starter_grant() -> None:
    fetch = grants.parse("fetch-example.toml", starter.grants(FOLDER)["fetch-example.toml"].encode())
    assert fetch.max_taint is DataClass.PRIVATE
    assert [rule.host for rule in fetch.hosts] == [starter.FETCHED_HOST]


def test_a_new_home_gets_grants_that_nobody_else_may_write_and_a_folder_of_the_tool_users(
    home: Home, host: ToolHost
) -> None:
    folder = starter.prepare(home, host)
    assert {path.name for path in home.grants.iterdir()} == set(starter.grants(folder))
    assert {path.stat().st_mode & 0o777 for path in home.grants.iterdir()} == {0o600}
    assert (folder / "shopping.txt").read_text().startswith("coffee\n")
    assert len(cast(FakeHost, host).given) == 1 + len(list(folder.iterdir()))


def test_a_grant_that_the_owner_deleted_is_not_written_again(home: Home, host: ToolHost) -> None:
    starter.prepare(home, host)
    (home.grants / "write-sample.toml").unlink()
    (home.grants / "read-sample.toml").write_text("mine")
    starter.prepare(home, host)
    assert not (home.grants / "write-sample.toml").exists()
    assert (home.grants / "read-sample.toml").read_text() == "mine"


def test_an_empty_directory_of_grants_is_the_owners_word_too(home: Home, host: ToolHost) -> None:
    home.grants.mkdir()
    starter.prepare(home, host)
    assert list(home.grants.iterdir()) == []


def test_what_the_owner_put_into_the_folder_stays(home: Home, host: ToolHost) -> None:
    folder = starter.prepare(home, host)
    (folder / "shopping.txt").write_text("bread\n")
    starter.prepare(home, host)
    assert (folder / "shopping.txt").read_text() == "bread\n"


def test_a_start_that_was_cut_short_is_made_again_from_nothing(home: Home, host: ToolHost) -> None:
    for half in (home.etc / "grants.unfinished", host.shared_dir / "sample.unfinished"):
        half.mkdir()
        (half / "left-over.toml").write_text("x")
    folder = starter.prepare(home, host)
    assert "left-over.toml" not in {path.name for made in (home.grants, folder) for path in made.iterdir()}


def test_the_starter_grants_are_told_with_their_folder(host: ToolHost, home: Home) -> None:
    folder = starter.prepare(home, host)
    told = starter.summary(home, folder)
    assert told.startswith(f"6 grants say what tools may do, in {home.grants}")
    assert told.endswith(f"the sample folder is {folder}")


def test_an_owner_who_deleted_the_grants_is_told_that_nothing_is_allowed(host: ToolHost, home: Home) -> None:
    folder = starter.prepare(home, host)
    for path in home.grants.iterdir():
        path.unlink()
    (home.grants / ".hidden.toml").write_text("")
    (home.grants / "later.txt").write_text("")
    assert starter.summary(home, folder).startswith(f"no grant in {home.grants}: every call is denied")


def test_the_sample_folder_is_named_only_where_a_grant_names_it(host: ToolHost, home: Home) -> None:
    folder = starter.prepare(home, host)
    for path in home.grants.iterdir():
        if path.name != "fetch-example.toml":
            path.unlink()
    told = starter.summary(home, folder)
    assert told.startswith("1 grant says")
    assert str(folder) not in told
