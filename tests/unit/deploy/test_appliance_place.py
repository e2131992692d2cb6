"""Where an appliance lies on a machine that is not one: whose directories, with which modes, and who may enter."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore import acl, wiring
from bxcore.wiring import Wiring
from deploy.appliance import place as places
from deploy.appliance import users
from deploy.appliance.place import MAX_RUN_BYTES, Place
from deploy.appliance.users import Users
from deploy.local.home import ROLES
from deploy.local.refusal import Refusal
from deploy.local.tooluser import ToolUser

MYSELF = ToolUser(name="me", uid=os.geteuid(), gid=os.getegid(), own=False)
LONGEST_IN_PODMAN = 50


@pytest.fixture
def wired() -> Wiring:
    return wiring.load(ROLES)


@pytest.fixture
def me(wired: Wiring) -> Users:
    return Users(own=False, users=dict.fromkeys(wired.users, MYSELF), groups={})


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a short directory, in which places lie."""
    with tempfile.TemporaryDirectory(prefix="b", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        monkeypatch.setattr(places, "_tops", lambda: (Path(directory),))
        monkeypatch.setattr(places, "_DIGITS", 2)
        yield Path(directory)


@pytest.fixture
def place(short: Path, wired: Wiring, me: Users) -> Place:
    made = places.choose(short / "state", wired, me)
    lock = made.lock()
    assert lock is not None
    with lock:
        made.prepare()
    return made


def test_podman_accepts_every_run_directory(wired: Wiring, me: Users) -> None:
    place = places.choose(Path("/root/a/long/way/to/a/checkout/.state/appliance"), wired, me)
    for party in place.parties:
        runtime = place.account(party).runtime
        assert len(os.fsencode(runtime)) <= MAX_RUN_BYTES
        assert len(os.fsencode(runtime / "containers")) <= LONGEST_IN_PODMAN


def test_two_states_have_two_places(tmp_path: Path, wired: Wiring, me: Users) -> None:
    assert len({places.choose(tmp_path / name, wired, me).path for name in "ab"}) == 2
    assert places.choose(tmp_path, wired, me).path == places.choose(tmp_path, wired, me).path


def test_roots_place_is_not_where_old_files_are_removed_and_one_that_was_there_is_found(
    tmp_path: Path, wired: Wiring, me: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp, state = tmp_path / "tmp", tmp_path / "state"
    monkeypatch.setattr(places, "ROOTS", tmp_path / "lib")
    monkeypatch.setattr(places, "ELSEWHERE", tmp)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    new = places.choose(state, wired, me).path
    assert new.parent == tmp_path / "lib"
    (tmp / new.name).mkdir(parents=True)
    monkeypatch.setattr(places, "_is_ours", Path.is_dir)
    assert places.choose(state, wired, me).path == tmp / new.name
    new.mkdir(parents=True)
    assert places.choose(state, wired, me).path == new
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert places.choose(state, wired, me).path.parent == tmp


def test_every_directory_of_the_wiring_is_there_with_its_mode(place: Place) -> None:
    for directory in place.wiring.directories:
        path = place.wiring.at(directory.path)
        assert path.is_relative_to(place.path)
        assert path.stat().st_mode & 0o7777 == int(directory.mode, 8), directory.path


def test_the_wiring_says_where_it_is_now(place: Place) -> None:
    assert wiring.load(place.etc / "roles.json") == place.wiring


def test_it_can_be_prepared_again(place: Place) -> None:
    (place.grants / "mine.toml").write_text("mine")
    place.prepare()
    assert (place.grants / "mine.toml").read_text() == "mine"


def test_granted_folders_lie_outside_of_what_is_boxmakers_own(place: Place) -> None:
    assert not place.shared.is_relative_to(place.wiring.places.home)
    assert not place.shared.is_relative_to(place.wiring.places.etc)


def test_one_at_a_time(place: Place) -> None:
    lock = place.lock()
    assert lock is not None
    with lock:
        assert place.lock() is None
    again = place.lock()
    assert again is not None
    again.close()


def test_a_link_in_its_place_is_refused(short: Path, wired: Wiring, me: Users) -> None:
    place = places.choose(short / "state", wired, me)
    place.path.symlink_to("/etc")
    with pytest.raises(Refusal, match="not a directory of yours"):
        place.lock()


@pytest.mark.parametrize("name", ["home/sessions", "home/run/infer", "etc/grants", "home"])
def test_a_link_in_place_of_a_directory_is_refused_and_not_followed(place: Place, short: Path, name: str) -> None:
    elsewhere = short / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    path = place.wiring.at(name + "/")
    shutil.rmtree(path)
    path.symlink_to(elsewhere)
    with pytest.raises(Refusal, match=f"{path} is a link to {elsewhere}"):
        place.prepare()
    assert (elsewhere.stat().st_mode & 0o7777, list(elsewhere.iterdir())) == (0o755, [])


def test_a_link_to_nowhere_and_a_file_are_refused_too(place: Place, short: Path) -> None:
    path = place.wiring.at("home/sessions")
    path.rmdir()
    path.symlink_to(short / "nowhere")
    with pytest.raises(Refusal, match="is a link to"):
        place.prepare()
    path.unlink()
    path.touch()
    with pytest.raises(Refusal, match="is no directory"):
        place.prepare()


def test_the_state_is_read_as_it_was_written(place: Place) -> None:
    for name in ("/a/state", "/a/state\n", "/a/st\rate"):
        places.write(place.state, f"{name}\n", gid=None, mode=0o644)
        assert place.of() == Path(name)


def test_files_have_the_wirings_modes(place: Place) -> None:
    for file in place.wiring.files:
        place.write(file.path, "text\n")
        path = place.wiring.at(file.path)
        assert (path.read_text(), path.stat().st_mode & 0o777) == ("text\n", int(file.mode, 8))
    place.write_grant("one.toml", "text\n")
    assert (place.grants / "one.toml").stat().st_mode & 0o777 == 0o640


def test_a_name_that_is_too_long_for_podman_is_refused(
    short: Path, wired: Wiring, me: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_tops", lambda: (short / ("long" * 5),))
    with pytest.raises(Refusal, match="Podman allows"):
        places.choose(short / "state", wired, me).prepare()


def test_a_place_is_lost_when_its_state_is_gone(short: Path, place: Place, wired: Wiring, me: Users) -> None:
    assert list(places.lost(wired, me)) == [], "nobody wrote down whose it is"
    (short / "state").mkdir()
    places.write(place.state, f"{short / 'state'}\n", gid=None, mode=0o644)
    assert list(places.lost(wired, me)) == []
    (short / "state").rmdir()
    assert [lost.path for lost in places.lost(wired, me)] == [place.path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_only_the_two_ends_of_an_edge_get_to_its_socket(short: Path, wired: Wiring) -> None:
    try:
        found = users.find(wired)
    except Refusal as missing:
        pytest.skip(f"NOT RUN: {missing}")
    place = places.choose(short / "state", wired, found)
    lock = place.lock()
    assert lock is not None
    with lock:
        place.prepare()
    for edge in wired.edges:
        directory = place.wiring.at(edge.directory)
        socket = directory / "made.sock"
        socket.touch()
        listener = wired.user(edge.listener)
        assert listener is not None
        os.chown(socket, found.uid(listener), -1)
        socket.chmod(0o660)
        may = {name for name, user in found.users.items() if _reaches(directory, socket, user)}
        assert may == {listener, *({client} if (client := wired.user(edge.client)) else ())}, edge.name


def _reaches(directory: Path, socket: Path, user: ToolUser) -> bool:
    return _may(directory, acl.ENTER, user) and _may(socket, acl.WRITE, user)


def _may(path: Path, wanted: int, user: ToolUser) -> bool:
    status = path.stat()
    held = acl.of(path) or acl.of_mode(status.st_mode)
    return held.may(wanted, uid=user.uid, groups={user.gid}, owner=status.st_uid, group=status.st_gid)


def test_a_secret_is_there_for_its_role_while_it_runs(place: Place) -> None:
    place.write_secret("gatewayd", "mattermost-token", "t\n")
    held = place.credentials("gatewayd") / "mattermost-token"
    assert held.read_text() == "t\n"
    assert held.stat().st_mode & 0o007 == 0
    assert held.parent.stat().st_mode & 0o007 == 0
    assert not place.credentials("loopd").exists()
    place.forget_secrets()
    place.forget_secrets()
    assert list(held.parent.iterdir()) == []
