"""Roles meet only on the wire: the import contracts of pyproject.toml hold and are not blind."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.structure import sources

PYPROJECT = sources.ROOT / "pyproject.toml"
SETTINGS: Mapping[str, Any] = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]
CONTRACTS: list[Mapping[str, Any]] = SETTINGS["importlinter"]["contracts"]
WITHOUT_PROGRAM = {"bxcore", "toolkit"}
"""One is a library; the other's programs are started by name in the tool image, and nowhere else."""
FLOOR = {
    f"bxcore.{name}"
    for name in ("errors", "ids", "timestamp", "logs", "deadline", "acl", "listener", "daemon", "regularfile")
}


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages below `directory`/python with its pyproject.toml."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-logo", "--no-cache", directory / "pyproject.toml"],
        env={**os.environ, "PYTHONPATH": str(directory / "python")},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_contracts_hold() -> None:
    result = lint(sources.ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def violation(contract: Mapping[str, Any]) -> tuple[str, str]:
    """Return a module of the contract and an import that it must not have."""
    if contract["type"] == "independence":
        first, second = contract["modules"][:2]
        return first, second
    if contract["type"] == "protected":
        return "brokerd.call", contract["protected_modules"][0]
    return contract["source_modules"][-1], contract["forbidden_modules"][-1]


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract["name"])
def test_a_broken_contract_is_seen(contract: Mapping[str, Any], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.read_text(encoding="utf-8"), encoding="utf-8")
    for name in _modules_named_in(CONTRACTS):
        _make_module(tmp_path / "python", name)
    assert lint(tmp_path).returncode == 0

    module, unwanted = violation(contract)
    package = tmp_path / "python" / module.replace(".", "/")
    bad = package / "bad.py" if package.is_dir() else package.with_suffix(".py")
    bad.write_text(f"import {unwanted}\n")
    result = lint(tmp_path)
    assert result.returncode != 0
    assert f"{contract['name']} BROKEN" in " ".join(result.stdout.split())


def _modules_named_in(contracts: Iterable[Mapping[str, Any]]) -> set[str]:
    keys = ("modules", "source_modules", "forbidden_modules", "protected_modules", "allowed_importers")
    named = {name for contract in contracts for key in keys for name in contract.get(key, [])}
    packages = set(SETTINGS["importlinter"]["root_packages"])
    return packages | {name for name in named if name.partition(".")[0] in packages}


def _make_module(top: Path, name: str) -> None:
    """Make an empty module, as a package where the real one is a package."""
    *parents, _ = name.split(".")
    for depth in range(1, len(parents) + 1):
        _make_package(top.joinpath(*parents[:depth]))
    place = top.joinpath(*name.split("."))
    if (sources.PYTHON / place.relative_to(top)).is_dir():
        _make_package(place)
    else:
        place.with_suffix(".py").touch()


def _make_package(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "__init__.py").touch()


def unlisted(packages: Iterable[str], settings: Mapping[str, Any]) -> list[str]:
    """Say which packages the contracts, the linter or the distribution forgot."""
    linter = settings["importlinter"]
    independent = {name for c in linter["contracts"] if c["type"] == "independence" for name in c["modules"]}
    packaged = {entry["include"] for entry in settings["poetry"]["packages"]}
    found = []
    for name in packages:
        if name != "bxcore" and name not in independent:
            found.append(f"{name} is not in the independence contract")
        if name not in linter["root_packages"]:
            found.append(f"{name} is no root package of the linter")
        if name not in packaged:
            found.append(f"{name} is not packaged")
        if name not in WITHOUT_PROGRAM and settings["poetry"]["scripts"].get(name) != f"{name}.__main__:main":
            found.append(f"{name} has no script")
    return found


def test_every_package_is_under_contract() -> None:
    assert unlisted(sources.packages(), SETTINGS) == []


def test_a_forgotten_package_is_seen() -> None:
    assert len(unlisted(["bxcore", "rogue"], SETTINGS)) == 4


def outside_the_standard_library(path: Path) -> list[str]:
    """Return what a file of inferproxy or of its floor imports beyond them and the standard library."""
    allowed = FLOOR | {"inferproxy", "bxcore"}
    return [name for name in sources.imports(path) if not _is_allowed(name, allowed)]


def _is_allowed(name: str, allowed: set[str]) -> bool:
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    # `from bxcore.errors import ConfigError` names the module and then what it takes of it.
    return name in allowed or name.rpartition(".")[0] in FLOOR or name.startswith("inferproxy.")


def test_inferproxy_and_its_floor_need_the_standard_library_alone() -> None:
    floor = [path for path in sources.python_files() if sources.module_name(path) in FLOOR]
    proxy = sources.python_files(sources.PYTHON / "inferproxy")
    assert len(floor) == len(FLOOR)
    assert proxy
    assert {
        sources.shown(path): found for path in [*floor, *proxy] if (found := outside_the_standard_library(path))
    } == {}


def test_a_package_or_a_higher_module_is_seen(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import socket\nimport attrs\nfrom bxcore import errors, frame\nfrom bxcore.logs import get\n")
    assert outside_the_standard_library(bad) == ["attrs", "bxcore.frame"]


def takes_secrets(path: Path) -> bool:
    return any(name == "bxcore.secrets" or name.startswith("bxcore.secrets.") for name in sources.imports(path))


def test_loopd_never_takes_a_secret() -> None:
    assert [sources.shown(path) for path in sources.python_files(sources.PYTHON / "loopd") if takes_secrets(path)] == []


@pytest.mark.parametrize(
    "source", ["import bxcore.secrets", "from bxcore import secrets", "from bxcore.secrets import Secret"]
)
def test_taking_a_secret_is_seen(tmp_path: Path, source: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(source)
    assert takes_secrets(bad)
