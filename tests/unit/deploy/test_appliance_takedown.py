"""An appliance is taken down to the end, and started only where its sockets can be: without a container."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bxcore import wiring
from deploy.appliance import host, remains, socketpaths
from deploy.appliance import place as places
from deploy.appliance.host import Appliance
from deploy.appliance.place import Account, Place
from deploy.appliance.users import Users
from deploy.local import podmanconf
from deploy.local.home import ROLES
from deploy.local.podman import Podman
from deploy.local.refusal import Refusal
from deploy.local.tooluser import ToolUser

MYSELF = ToolUser(name="me", uid=os.geteuid(), gid=os.getegid(), own=False)
MACHINE = podmanconf.Machine(runtime="runc", unified=False, bus=None)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    wired = wiring.load(ROLES)
    with tempfile.TemporaryDirectory(prefix="b", dir="/var/tmp") as directory:
        monkeypatch.setattr(places, "_tops", lambda: (Path(directory),))
        monkeypatch.setattr(places, "_DIGITS", 2)
        made = places.choose(
            Path(directory) / "state", wired, Users(own=False, users=dict.fromkeys(wired.users, MYSELF), groups={})
        )
        if (lock := made.lock()) is not None:
            with lock:
                made.prepare()
        yield made


def appliance(place: Place) -> Appliance:
    lock = place.lock()
    assert lock is not None
    stores = {party: Podman[Account](place.account(party), MACHINE) for party in place.parties}
    return Appliance(place, stores, lock, upstream="unix:/m/m.sock", log=place.path)


def test_what_is_planted_at_a_socket_keeps_nothing_else_from_being_taken_down(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[str] = []
    monkeypatch.setattr(remains, "clear", lambda store: cleared.append(store.place.party))
    sockets = [place.wiring.at(edge.path) for edge in place.wiring.edges]
    planted, *others = sockets
    (planted / "inside").mkdir(parents=True)
    for other in others:
        other.touch()
    with pytest.raises(Refusal, match=f"{planted} is a directory of the user .*rm -r {planted}"):
        appliance(place).close()
    assert sorted(cleared) == sorted(place.parties)
    assert [path for path in sockets if path.exists()] == [planted]
    again = place.lock()
    assert again is not None, "the lock is given back"
    again.close()


def test_a_party_that_cannot_be_cleared_is_told_after_the_others(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def clear(store: Podman[Account]) -> None:
        if store.place.party == "loopd":
            raise Refusal("loopd's store is gone")

    monkeypatch.setattr(remains, "clear", clear)
    socket = place.wiring.socket("infer")
    socket.touch()
    with pytest.raises(Refusal, match="loopd's store is gone"):
        appliance(place).close()
    assert not socket.exists()


def test_links_files_and_empty_directories_are_removed_at_a_sockets_place(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    path = tmp_path / "a.sock"
    makers: list[Callable[[], None]] = [lambda: path.symlink_to(kept), path.touch, path.mkdir, lambda: None]
    for make in makers:
        make()
        socketpaths.clear(path)
        assert not path.is_symlink()
        assert not path.exists()
    assert kept.read_text() == "kept"
    socketpaths.clear(tmp_path / "missing" / "a.sock")


def test_a_models_socket_among_other_things_is_refused_by_its_name_and_by_where_it_leads(
    place: Place, tmp_path: Path
) -> None:
    host.check_socket("http://box:8080", place.wiring)
    host.check_socket(f"unix:{tmp_path}/m.sock", place.wiring)
    with pytest.raises(Refusal, match=r"UPSTREAM=unix:/run/m\.sock: /run would"):
        host.check_socket("unix:/run/m.sock", place.wiring)
    (tmp_path / "link").symlink_to(place.wiring.at("home/"))
    with pytest.raises(Refusal, match="Boxmaker's own"):
        host.check_socket(f"unix:{tmp_path}/link/m.sock", place.wiring)
