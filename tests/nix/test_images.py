"""The images of Nix start what images/ says they start, under the names of the wiring."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bxcore import wiring
from images import layout, table
from tests.nix.evaluation import HERE, NIX, expression, needs_nix

pytestmark = needs_nix

DECLARED = wiring.load(NIX / "roles.json")


@pytest.fixture(scope="module")
def made() -> Any:
    return expression(HERE / "images.nix", nix=str(NIX))


def revisions(made: Any) -> dict[str, str]:
    """Return the label of each image that says which sources it is made of."""
    labels = {name: config["Labels"] for name, config in made["configs"].items()}
    return {name.removeprefix("image-"): each["org.opencontainers.image.revision"] for name, each in labels.items()}


def test_there_is_an_image_for_each_role_one_for_tools_and_its_id(made: Any) -> None:
    assert set(made["outputs"]) == {*(f"image-{name}" for name in DECLARED.roles), "image-tools", "tool-image-id"}


def test_an_image_is_named_as_the_wiring_names_it(made: Any) -> None:
    roles = {f"image-{name}": role.image for name, role in DECLARED.roles.items()}
    assert made["names"] == roles | {"image-tools": DECLARED.tools.image}


def test_an_image_starts_what_it_starts_without_nix(made: Any) -> None:
    for name, image in table.load().items():
        config = made["configs"][f"image-{name}"]
        assert tuple(config["Cmd"]) == layout.command(image)
        assert config["User"] == layout.user(image)
        assert dict(entry.split("=", 1) for entry in config["Env"]) == layout.environment(image)
        assert config["Labels"] == {
            "org.opencontainers.image.title": image.title,
            "org.opencontainers.image.version": "1.2.3",
            "org.opencontainers.image.revision": revisions(made)[name],
        }
        assert re.fullmatch(r"source-[0-9a-f]{40}", revisions(made)[name])


def test_a_role_runs_what_its_image_starts(made: Any) -> None:
    for name, role in DECLARED.roles.items():
        assert tuple(made["configs"][f"image-{name}"]["Cmd"]) == role.command


def test_a_tag_is_made_from_the_contents(made: Any) -> None:
    for arguments in made["arguments"].values():
        assert "tag" not in arguments


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy what the images are made of, so that a test can change it."""
    shutil.copy(NIX.parent / "poetry.lock", tmp_path)
    for name in ("nix", "python", "images"):
        shutil.copytree(NIX.parent / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


CHANGED = {
    "README.md": set[str](),
    "nix/module.nix": set(),
    "images/README.md": set(),
    "python/bxctl/__main__.py": set(),
    "python/loopd/turn.py": {"loopd"},
    "python/bxcore/errors.py": {*table.load()},
    "images/stdlib.py": {*table.load()},
    "poetry.lock": {*table.load()},
}
"""A file, and the images that are others when it has changed."""


def test_an_image_is_another_one_only_when_something_that_it_is_made_of_has_changed(made: Any, checkout: Path) -> None:
    before = revisions(made)
    for name, changed in CHANGED.items():
        with (checkout / name).open("a", encoding="utf-8") as file:
            file.write("\n")
        after = revisions(expression(HERE / "images.nix", nix=str(checkout / "nix")))
        assert {image for image in before if after[image] != before[image]} == changed, name
        before = after
