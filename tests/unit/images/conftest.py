"""Every image of images/roles.toml, built and opened once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import roleimages, toolimage
from images import table
from images.table import Image
from tests.unit.images import archive
from tests.unit.images.archive import Opened

IMAGES = table.load()


@pytest.fixture(scope="session", params=list(IMAGES.values()), ids=list(IMAGES))
def stated(request: pytest.FixtureRequest) -> Image:
    """What the table says of an image."""
    image: Image = request.param
    return image


@pytest.fixture(scope="session")
def built(stated: Image) -> Path:
    """The archive of that image."""
    return toolimage.built().archive if stated.shell else roleimages.built(stated.name).archive


@pytest.fixture(scope="session")
def opened(built: Path) -> Iterator[Opened]:
    image = archive.read(built)
    yield image
    image.layer.close()
