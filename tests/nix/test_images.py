"""The images of Nix start what images/ says they start, under the names of the wiring."""

from typing import Any

import pytest

from bxcore import wiring
from images import layout, table
from tests.nix.evaluation import HERE, NIX, expression, needs_nix

pytestmark = needs_nix

DECLARED = wiring.load(NIX / "roles.json")


@pytest.fixture(scope="module")
def made() -> Any:
    return expression(HERE / "images.nix")


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
            "org.opencontainers.image.revision": "abc",
        }


def test_a_role_runs_what_its_image_starts(made: Any) -> None:
    for name, role in DECLARED.roles.items():
        assert tuple(made["configs"][f"image-{name}"]["Cmd"]) == role.command


def test_a_tag_is_made_from_the_contents(made: Any) -> None:
    for arguments in made["arguments"].values():
        assert "tag" not in arguments
