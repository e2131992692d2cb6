"""The offline evaluation of the flake passes, and sees what would break the real one."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.structure import sources

pytestmark = pytest.mark.skipif(shutil.which("nix") is None, reason="Nix is not installed; make gate brings it")

CHECK = sources.ROOT / "tests" / "nix" / "check.sh"


def check(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CHECK, directory], capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy what the flake reads, so that a test can break it."""
    for name in ("flake.nix", "flake.lock", "pyproject.toml", "poetry.lock"):
        shutil.copy(sources.ROOT / name, tmp_path)
    for name in ("nix", "python", "images", "deploy/example", "tests/nix"):
        shutil.copytree(sources.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_flake_evaluates_offline() -> None:
    result = check(sources.ROOT)
    assert result.returncode == 0, result.stderr


def test_what_the_next_tests_break_holds_before(copy: Path) -> None:
    result = check(copy)
    assert result.returncode == 0, result.stderr


BREAKAGES: dict[str, Callable[[Path], None]] = {
    "syntax": lambda top: edit(top / "nix/shell.nix", "mkShell {", "mkShell {{"),
    "unbound name": lambda top: edit(top / "nix/shell.nix", "pkgs.git\n", "git\n"),
    "wrong attribute": lambda top: edit(top / "flake.nix", "packages.${pkgs", "package.${pkgs"),
    "an output that needs another name": lambda top: edit(top / "flake.nix", "environment;", "environments;"),
    "a module that does not fit its options": lambda top: edit(top / "nix/module.nix", "cfg.stateDir;", "cfg.home;"),
    "a machine that the module refuses": lambda top: edit(top / "nix/checks/machine.nix", '"alice"', '"bob"'),
    "a VM test that the module refuses": lambda top: edit(top / "nix/checks/vm.nix", '"/srv/notes" ]', '"/usr" ]'),
    "a chat of the VM test in which nobody may speak": lambda top: edit(top / "nix/checks/vm.nix", "[ alice ]", "[ ]"),
    "an image of no table": lambda top: edit(top / "images/roles.toml", "[loopd]", "[loop]"),
    "functions among the licences": lambda top: edit(top / "nix/packages.nix", "builtins.isAttrs", "true"),
    "no licence given": lambda top: edit(top / "nix/packages.nix", "license =", "licence ="),
    "platform wheel": lambda top: edit(
        top / "poetry.lock", 'attrs-26.1.0-py3-none-any.whl"', 'attrs-26.1.0-cp313-cp313-android_24_arm64_v8a.whl"'
    ),
    "a lock for other inputs": lambda top: edit(top / "flake.nix", "nixos-26.05", "nixos-25.11"),
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES.keys())
def test_a_broken_flake_is_seen(copy: Path, breakage: Callable[[Path], None]) -> None:
    breakage(copy)
    assert check(copy).returncode != 0
