import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.loop import Loop
from tests.fakes.served import Served


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="bxl") as name:
        yield Path(name)


@pytest.fixture
def served(directory: Path, tmp_path: Path) -> Iterator[Served]:
    made = Served(directory, Loop(tmp_path))
    yield made
    made.close()
