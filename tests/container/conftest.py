"""A real Podman with the tool image, once for a session of tests, and directories that its user may enter.

Where Podman cannot work at all the tests fail and say the command; none is skipped for that. The one reason to skip: an
ordinary user whom nobody gave ids for containers, which only root can do.
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import toolhost
from deploy.local.refusal import Refusal
from deploy.local.toolhost import ToolHost
from deploy.local.tooluser import NoIds

STATES = Path(__file__).resolve().parents[2] / ".state" / "container-tests"


@pytest.fixture(scope="session")
def tool_host() -> Iterator[ToolHost]:
    try:
        host = started()
    except NoIds as missing:
        if os.geteuid() == 0:
            raise
        pytest.skip(f"no container can run for this user: {missing}")
    except Refusal as refusal:
        pytest.fail(f"{refusal}\nrun this first: deploy/local/setup.sh podman", pytrace=False)
    with host:
        yield host


def started() -> ToolHost:
    """Start the service of the first state that no other session uses. It keeps the image for the next session."""
    for number in itertools.count():
        try:
            return toolhost.start(STATES / str(number))
        except toolhost.InUse:
            continue
    raise AssertionError("unreachable")


@pytest.fixture
def open_dir(tool_host: ToolHost) -> Iterator[Path]:
    """Make a directory that belongs to the tool user."""
    directory = Path(tempfile.mkdtemp(dir=tool_host.shared_dir))
    directory.chmod(0o755)
    tool_host.give(directory)
    yield directory
    shutil.rmtree(directory)
