from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from bxcore.server import Handler
from bxcore.wire.channel import LoopStatus
from tests.unit.bxcore.house import House, status


@pytest.fixture
def socket_directory(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir(mode=0o750)
    return tmp_path / "run"


@pytest.fixture
def open_house(socket_directory: Path) -> Iterator[Callable[..., House]]:
    opened: list[House] = []

    def opener(handlers: Mapping[type, Handler] | None = None, **settings: object) -> House:
        opened.append(House(socket_directory, handlers or {LoopStatus: status}, **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield opener
    for house in opened:
        house.close()
