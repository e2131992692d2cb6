"""Every run-time package has its row in docs/dependencies.md, and each is one that we use."""

import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.structure import sources

RUN_TIME = "At run time"
CELLS = 4  # package, why, licence, who keeps it


def locked(lock: str) -> set[str]:
    """Return the run-time packages of a poetry.lock, those that come with another included."""
    return {package["name"] for package in tomllib.loads(lock)["package"] if "main" in package["groups"]}


def explained(page: str) -> set[str]:
    """Return the packages whose row is complete."""
    return {row[0].strip("`") for row in sources.table_rows(page) if len(row) == CELLS and all(row)}


def read(name: str) -> str:
    return (sources.ROOT / name).read_text(encoding="utf-8")


def test_the_page_explains_exactly_the_locked_packages() -> None:
    assert explained(sources.section(read("docs/dependencies.md"), RUN_TIME)) == locked(read("poetry.lock"))


def test_a_row_with_an_empty_cell_explains_nothing() -> None:
    head = "| package | why | licence | kept by |\n| --- | --- | --- | --- |\n"
    assert explained(head + "| `attrs` | values | MIT | one |\n| `click` | | BSD | two |\n") == {"attrs"}


def test_development_packages_need_no_row() -> None:
    lock = '[[package]]\nname = "a"\ngroups = ["main", "dev"]\n[[package]]\nname = "b"\ngroups = ["dev"]\n'
    assert locked(lock) == {"a"}


def declared(settings: Mapping[str, Any]) -> set[str]:
    return set(settings["tool"]["poetry"]["dependencies"]) - {"python"}


def imported(paths: Iterable[Path]) -> set[str]:
    """Return the distributions that the files import, of packages that are not ours."""
    distributions = metadata.packages_distributions()
    tops = {name.split(".")[0] for path in paths for name in sources.imports(path)}
    foreign = tops - set(sys.stdlib_module_names) - set(sources.packages())
    return {distributions[name][0].lower() if name in distributions else name for name in foreign}


def test_what_is_declared_is_what_is_imported() -> None:
    assert imported(sources.python_files()) == declared(tomllib.loads(read("pyproject.toml")))


def test_a_package_that_only_comes_along_is_seen(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import socket\nimport attr\nimport bxcore\ndef late() -> None:\n    import idna\n")
    assert imported([bad]) == {"attrs", "idna"}


def test_no_source_nor_address_is_in_the_lock() -> None:
    lock = tomllib.loads(read("poetry.lock"))
    assert [package["name"] for package in lock["package"] if "source" in package] == []
    assert "://" not in read("poetry.lock")


def settings_of_poetry_only(pyproject: str) -> bool:
    """Poetry2nix reads nothing under [project], and evaluates without dependencies when they are there."""
    settings = tomllib.loads(pyproject)
    return "project" not in settings and "source" not in settings["tool"]["poetry"]


def test_the_project_is_described_where_poetry2nix_reads() -> None:
    assert settings_of_poetry_only(read("pyproject.toml"))


def test_another_description_is_seen() -> None:
    assert not settings_of_poetry_only('[project]\nname = "x"\n[tool.poetry]\nname = "x"\n')
    assert not settings_of_poetry_only('[tool.poetry]\nname = "x"\n[[tool.poetry.source]]\nname = "y"\n')
