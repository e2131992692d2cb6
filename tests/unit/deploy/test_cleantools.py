"""What `make clean-tools` may take away."""

import os
from pathlib import Path

import pytest

from deploy.local import cleantools, podmanconf, starter, toolplace, tooluser
from deploy.local.podman import Podman
from deploy.local.toolplace import Place
from deploy.local.tooluser import ToolUser

MYSELF = ToolUser(name="me", uid=os.geteuid(), gid=os.getegid(), own=False)


class Machine:
    """One directory as /var/tmp, and the checkouts' homes beside it."""

    def __init__(self, top: Path) -> None:
        self.var_tmp = top / "var-tmp"
        self.var_tmp.mkdir()
        self.state = top / "checkout" / ".state"
        self.state.mkdir(parents=True)

    def place(self, number: int, home: Path, *, exists: bool = True) -> Place:
        """Make the place of a home."""
        made = Place(path=self.var_tmp / f"boxmaker-tools-{number:010}", user=MYSELF)
        made.prepare()
        made.write(made.home, f"{home}\n")
        if exists:
            home.mkdir(parents=True, exist_ok=True)
        return made


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path)
    monkeypatch.setattr(toolplace, "ELSEWHERE", found.var_tmp)
    monkeypatch.setattr(tooluser, "find", lambda: MYSELF)
    look = podmanconf.Machine(runtime="runc", unified=False, bus=None)
    monkeypatch.setattr(podmanconf, "look", lambda _: look)
    # No Podman: what it does to files of other ids, tests/container shows.
    monkeypatch.setattr(Podman, "run", lambda *_: None)
    return found


def fill(place: Place, texts: dict[str, str]) -> None:
    (place.shared / "sample").mkdir()
    for name, text in texts.items():
        (place.shared / "sample" / name).write_text(text)


def test_places_of_this_checkout_go_and_those_of_others_stay(machine: Machine) -> None:
    mine, tests = machine.place(1, machine.state), machine.place(2, machine.state / "container-tests" / "0")
    inside = Place(path=machine.state / "demo" / "tools", user=MYSELF)
    inside.path.parent.mkdir()
    inside.prepare()
    inside.write(inside.home, f"{machine.state / 'demo'}\n")
    other = machine.place(3, machine.state.parent.with_name("other") / ".state")
    neighbour = machine.place(4, machine.state.with_name(".state-of-another"))
    gone = machine.place(5, machine.state.with_name("gone"), exists=False)
    fill(mine, dict(starter.SAMPLES))
    fill(tests, {"whatever.txt": "a test wrote this"})
    assert cleantools.main(machine.state) == 0
    left = {place.path for place in (mine, tests, inside, other, neighbour, gone) if place.path.exists()}
    assert left == {other.path, neighbour.path}


@pytest.mark.parametrize(
    "texts", [{"shopping.txt": "bread\n"}, {"notes.txt": "mine\n"}], ids=["changed by a tool", "added"]
)
def test_what_somebody_wrote_stays_and_is_named(
    machine: Machine, texts: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = machine.place(1, machine.state)
    fill(place, {**starter.SAMPLES, **texts})
    for _ in range(2):
        assert cleantools.main(machine.state) == 0, "all that could be taken away is"
        said = capsys.readouterr().err.splitlines()
        assert said[0] == f"make clean-tools: removing {place.path}"
        assert f"kept {place.shared}" in said[1]
        assert said[2] == "make clean-tools: images and containers of this checkout's tools are gone from this machine"
    assert {path.name for path in place.path.iterdir()} == {"shared", "home"}
    ((name, text),) = texts.items()
    assert (place.shared / "sample" / name).read_text() == text


def test_a_link_in_a_folder_is_not_followed(machine: Machine, tmp_path: Path) -> None:
    place = machine.place(1, machine.state)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "welcome.txt").write_text(starter.SAMPLES["welcome.txt"])
    (place.shared / "sample").symlink_to(tmp_path / "precious")
    assert cleantools.main(machine.state) == 0
    assert (tmp_path / "precious" / "welcome.txt").exists()


def test_a_place_in_use_is_left_whole(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    place = machine.place(1, machine.state)
    before = sorted(place.path.rglob("*"))
    lock = place.lock()
    assert lock is not None
    with lock:
        assert cleantools.main(machine.state) == 1
    assert "is in use and stays" in capsys.readouterr().err
    assert sorted(place.path.rglob("*")) == sorted([*before, place.path / "lock"])
