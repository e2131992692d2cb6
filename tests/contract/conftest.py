"""The two servers that every test here is run against: the fake, and a real llama.cpp server.

The real one is started through deploy/local/model_server.py with the small model; UPSTREAM=http://…
takes the owner's own instead, reached through inferproxy. Where neither can be had, the tests fail
and say what to do: a suite that passes by skipping proves nothing.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.peer import FakePeer, Peer, RealPeer, UpstreamPeer


@pytest.fixture(scope="session")
def socket_directory() -> Iterator[Path]:
    """Short enough for a socket's name, which pytest's own directories need not be."""
    with tempfile.TemporaryDirectory(prefix="bxm") as name:
        yield Path(name)


@pytest.fixture(scope="session", params=["fake", pytest.param("real", marks=pytest.mark.real_model)])
def peer(request: pytest.FixtureRequest, socket_directory: Path) -> Iterator[Peer]:
    path = socket_directory / f"{request.param}.sock"
    upstream = os.environ.get("UPSTREAM")
    if request.param == "fake":
        chosen: Peer = FakePeer(path)
    elif upstream:
        chosen = UpstreamPeer(path, upstream)
    else:
        chosen = RealPeer(path)
    with chosen:
        yield chosen
