"""The command lines that bxctl shows can be pasted."""

import shlex
import sys
from pathlib import Path

import pytest

from bxctl import sockets
from bxctl.configcheck import default_folder


def program(folder: Path) -> Path:
    """Make a bxctl that can be run."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "bxctl"
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    return made


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of our interpreter, in which no bxctl stands yet; none is on PATH."""
    folder = tmp_path / "an env" / "bin"
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return folder


def test_a_home_with_a_blank_is_quoted(tmp_path: Path, beside: Path) -> None:
    home = sockets.home(tmp_path / "my home")
    assert shlex.split(home.command("approve 4")) == ["bxctl", "--home", str(tmp_path / "my home"), "approve", "4"]


def test_a_relative_home_is_spelled_out(tmp_path: Path, beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sockets.home(Path("x")).command("approve 4") == f"bxctl --home {tmp_path}/x approve 4"


def test_a_bxctl_that_is_not_on_path_is_named_by_its_place(beside: Path) -> None:
    made = program(beside)
    assert shlex.split(sockets.home(None).command("approve 4")) == [str(made), "approve", "4"]


def test_a_bxctl_on_path_is_named_by_its_name(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(beside)
    monkeypatch.setenv("PATH", str(beside))
    assert sockets.home(None).command("approve 4") == "bxctl approve 4"


def test_another_bxctl_on_path_is_not_meant(tmp_path: Path, beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(beside)
    monkeypatch.setenv("PATH", str(program(tmp_path / "other").parent))
    assert shlex.split(sockets.home(None).command("approve 4"))[0] == str(made)


def test_a_checkouts_own_bxctl_needs_no_home(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(sockets.__file__).resolve().parents[2]
    made = program(beside)
    monkeypatch.setattr(sockets, "_CHECKOUT_PROGRAM", made)
    assert shlex.split(sockets.home(root / ".state").command("approve 4")) == [str(made), "approve", "4"]
    other = sockets.home(root / ".state" / "demo")
    assert shlex.split(other.command("approve 4")) == [str(made), "--home", str(other.path), "approve", "4"]


def test_what_was_typed_is_kept_in_a_home_of_ones_own(tmp_path: Path) -> None:
    assert sockets.home(tmp_path).history == tmp_path / "bxctl-history"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [("/elsewhere", "/elsewhere/boxmaker"), ("", "~/.local/state/boxmaker"), ("a", "~/.local/state/boxmaker")],
)
def test_in_an_appliance_it_is_kept_among_the_owners_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, expected: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)  # so that the home is another's
    monkeypatch.setenv("XDG_STATE_HOME", chosen)
    assert sockets.home(tmp_path).history == Path(expected).expanduser() / "bxctl-history"


def test_settings_are_found_in_a_checkout_beside_an_appliance_and_else_in_etc(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert default_folder(sockets.home(home)) == Path("/etc/boxmaker")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "roles.json").touch()
    assert default_folder(sockets.home(home)) == tmp_path / "etc"
    (home / "etc").mkdir(parents=True)
    assert default_folder(sockets.home(home)) == home / "etc"
    assert default_folder(sockets.home(None)) == Path("/etc/boxmaker")
