"""The server that the suite runs against: the fake, in a process of its own, or a real one.

Real: MATTERMOST_URL (`make verify-mattermost`). Its administrator is MATTERMOST_ADMIN with the password in the file
MATTERMOST_PASSWORD_FILE; without these two it must be freshly set up, and its first account is made here.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.gateway.people import Town
from tests.contract.gateway.place import Place, place
from tests.contract.gateway.served import fake_server


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of a server that is there for the whole run."""
    named = os.environ.get("MATTERMOST_URL")
    if named:
        yield named.rstrip("/")
        return
    with fake_server() as url:
        yield url


@pytest.fixture
def town(server_url: str) -> Iterator[Town]:
    login = os.environ.get("MATTERMOST_ADMIN")
    made = (
        Town(server_url, login=login, password=Path(os.environ["MATTERMOST_PASSWORD_FILE"]).read_text().strip())
        if login
        else Town(server_url)
    )
    yield made
    made.close()


@pytest.fixture
def here(town: Town) -> Iterator[Place]:
    """gatewayd, running, with a loopd that answers."""
    with place(town) as made:
        made.start()
        yield made


@pytest.fixture
def tools(town: Town) -> Iterator[Place]:
    """The same with brokerd; gatewayd is not started yet."""
    with place(town, brokerd=True) as made:
        yield made
