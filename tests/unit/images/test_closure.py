"""The image gets what the tools import, wherever the import stands, and no more."""

import dataclasses
from pathlib import Path

import pytest

from images import closure, table
from images.build import PYTHON

INSTALLED = Path(pytest.__file__).parents[1]
NEVER = {"bxcore.secrets", "bxcore.grants", "bxcore.auditlog", "bxcore.chain", "bxcore.config", "bxcore.convert"}


def checkout(top: Path, **files: str) -> Path:
    for name in ("bxcore", "toolkit"):
        (top / name).mkdir()
        (top / name / "__init__.py").touch()
    for name, text in files.items():
        path = top.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return top


def test_the_whole_role_and_what_it_imports_of_bxcore(tmp_path: Path) -> None:
    python = checkout(
        tmp_path,
        toolkit__read="from bxcore import paths\nfrom bxcore.errors import Some\n",
        toolkit__alone="import os\n",
        bxcore__paths="def late() -> None:\n    import bxcore.hosts\n",
        bxcore__hosts="",
        bxcore__errors="class Some: ...\n",
        bxcore__grants="",
    )
    assert list(closure.modules(python, "toolkit")) == [
        "bxcore", "bxcore.errors", "bxcore.hosts", "bxcore.paths", "toolkit", "toolkit.alone", "toolkit.read",
    ]  # fmt: skip


def test_modules_that_import_each_other_are_found_once(tmp_path: Path) -> None:
    python = checkout(tmp_path, toolkit__a="import toolkit.b\n", toolkit__b="import toolkit.a\n")
    assert list(closure.modules(python, "toolkit")) == ["bxcore", "toolkit", "toolkit.a", "toolkit.b"][1:]


def test_another_role_is_none_of_its_modules(tmp_path: Path) -> None:
    python = checkout(tmp_path, toolkit__a="import loopd.b\n", loopd__b="")
    assert set(closure.modules(python, "toolkit")) == {"toolkit", "toolkit.a"}


def test_a_text_that_the_program_reads_comes_along_and_no_hidden_file(tmp_path: Path) -> None:
    python = checkout(tmp_path, toolkit__a="")
    (python / "toolkit" / "words.md").touch()
    (python / "toolkit" / ".env").touch()
    (python / "toolkit" / "__pycache__").mkdir()
    (python / "toolkit" / "__pycache__" / "a.pyc").touch()
    assert closure.data(python, "toolkit") == [python / "toolkit" / "words.md"]
    assert [path.name for path in closure.data(PYTHON, "loopd")] == ["system.md"]


def test_loopd_has_no_code_for_secrets_and_grants() -> None:
    assert not set(closure.modules(PYTHON, "loopd")) & {"bxcore.secrets", "bxcore.grants", "bxcore.auditlog"}


def test_a_package_that_the_table_does_not_name_stops_the_build(tmp_path: Path) -> None:
    python = checkout(tmp_path, toolkit__a="import attrs\n")
    image = dataclasses.replace(table.image("inferproxy"), program="toolkit")
    with pytest.raises(closure.Missing, match="toolkit imports attrs"):
        closure.stated(image, python, INSTALLED)
    named = dataclasses.replace(image, packages=("attrs",))
    assert [each.metadata["Name"] for each in closure.stated(named, python, INSTALLED)] == ["attrs"]


def test_a_package_that_only_the_table_names_stops_it_too(tmp_path: Path) -> None:
    python = checkout(tmp_path)
    image = dataclasses.replace(table.image("inferproxy"), program="toolkit", packages=("attrs",))
    with pytest.raises(closure.Missing, match="no package"):
        closure.stated(image, python, INSTALLED)


def test_no_code_of_the_brokers_goes_into_the_image() -> None:
    found = set(closure.modules(PYTHON, "toolkit"))
    assert {"bxcore.tools", "bxcore.paths", "toolkit.__main__", "toolkit.egress"} <= found
    assert not found & NEVER
    assert {name.split(".")[0] for name in found} == {"bxcore", "toolkit"}


def test_a_relative_import_is_not_guessed_at(tmp_path: Path) -> None:
    python = checkout(tmp_path, toolkit__a="from . import b\n")
    with pytest.raises(closure.Missing, match=r"a\.py:1"):
        closure.modules(python, "toolkit")


def test_a_package_comes_with_what_it_needs(tmp_path: Path) -> None:
    source = tmp_path / "page.py"
    source.write_text("def late() -> None:\n    import bs4\n")
    names = [each.metadata["Name"] for each in closure.distributions([source], INSTALLED, ours=set())]
    assert names == ["beautifulsoup4", "soupsieve", "typing_extensions"]


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    source = tmp_path / "page.py"
    source.write_text("import no_such_package\n")
    with pytest.raises(closure.Missing, match="no_such_package"):
        closure.distributions([source], INSTALLED, ours=set())
