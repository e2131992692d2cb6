"""What `make clean-appliance` may take away."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore import wiring
from deploy.appliance import clean, host, users
from deploy.appliance import place as places
from deploy.appliance.place import Place
from deploy.appliance.users import Users
from deploy.local import starter
from deploy.local.home import ROLES
from deploy.local.tooluser import ToolUser

MYSELF = ToolUser(name="me", uid=os.geteuid(), gid=os.getegid(), own=False)


class Machine:
    """One directory as /var/lib, and a checkout's .state beside it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.state = top / "checkout" / ".state"
        self.state.mkdir(parents=True)
        self.wiring = wiring.load(ROLES)
        self.users = Users(own=False, users=dict.fromkeys(self.wiring.users, MYSELF), groups={})

    def place(self, state: Path) -> Place:
        """Make the place of a state, with the first grants."""
        state.mkdir(parents=True, exist_ok=True)
        made = places.choose(state, self.wiring, self.users)
        if (lock := made.lock()) is not None:
            with lock:
                made.prepare()
        places.write(made.state, f"{state.resolve()}\n", gid=None, mode=0o644)
        for name, text in starter.grants(made.shared / "sample").items():
            made.write_grant(name, text)
        return made


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="b", dir="/var/tmp") as directory:
        made = Machine(Path(directory))
        monkeypatch.setattr(places, "_tops", lambda: (made.top,))
        monkeypatch.setattr(places, "_DIGITS", 2)
        monkeypatch.setattr(users, "find", lambda _: made.users)
        # No Podman: what it does to files of other ids, tests/container shows.
        monkeypatch.setattr(host, "empty", lambda _: None)
        yield made


def test_places_of_this_checkout_go_and_those_of_others_stay(machine: Machine) -> None:
    mine, bench = machine.place(machine.state / "appliance"), machine.place(machine.state / "bench" / "appliance-0")
    tests = machine.place(machine.state / "container-tests" / "launched")
    (tests.wiring.at("home/sessions") / "s.jsonl").touch()
    other = machine.place(machine.top / "other" / ".state" / "appliance")
    (machine.state / "role-images" / "loopd").mkdir(parents=True)
    assert clean.main(machine.state) == 0
    assert [place for place in (mine, bench, tests, other) if place.path.exists()] == [other]
    assert not (machine.state / "role-images").exists()


@pytest.mark.parametrize("path", ["home/sessions/s.jsonl", "home/audit/audit.jsonl", "etc/grants/mine.toml"])
def test_what_was_said_allowed_or_recorded_stays_and_is_named(
    machine: Machine, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = machine.place(machine.state / "appliance")
    kept = mine.wiring.at(path)
    kept.write_text("mine")
    (mine.wiring.at("home/containers/loopd") / "overlay").mkdir()
    assert clean.main(machine.state) == 0
    assert kept.read_text() == "mine"
    assert not mine.wiring.at("home/containers").exists()
    said = capsys.readouterr().err
    assert said.startswith(f"make clean-appliance: removing images and containers of {mine.path}\n")
    assert f"kept in {mine.path} what was said, allowed or written there: " in said
    assert f"rm -r {mine.path}" in said
    again = machine.place(machine.state / "appliance")
    assert (again.path, kept.read_text()) == (mine.path, "mine"), "a next start finds it"


def test_a_file_of_a_tools_stays(machine: Machine) -> None:
    mine = machine.place(machine.state / "appliance")
    (mine.shared / "sample").mkdir()
    (mine.shared / "sample" / "notes.txt").write_text("a tool wrote this")
    assert clean.main(machine.state) == 0
    assert (mine.shared / "sample" / "notes.txt").exists()


def test_a_place_in_use_is_left_whole(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    mine = machine.place(machine.state / "appliance")
    lock = mine.lock()
    assert lock is not None
    with lock:
        assert clean.main(machine.state) == clean.EXIT_LEFT
    assert mine.wiring.at("home/containers").exists()
    assert f"{mine.path} is in use and stays" in capsys.readouterr().err
