"""One real appliance for all tests here, and a loud word about what could not be run.

As in the directory above: where Podman cannot work at all the tests fail and say the command. Rows that need users of
their own for the roles do not run for an ordinary user; the summary counts them.
"""

import os
from collections.abc import Iterator

import pytest

from deploy.appliance import host
from deploy.local.refusal import Refusal
from deploy.local.tooluser import NoIds
from tests.container.appliance.canaries import Canaries
from tests.container.appliance.rig import GATEWAYD, SECRET, STATE, Rig

not_run: list[str] = []


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    os.environ["BOXMAKER_TEST_SECRET"] = SECRET
    try:
        STATE.mkdir(parents=True, exist_ok=True)
        appliance = host.start(STATE, enabled=(GATEWAYD,))
    except NoIds as missing:
        if os.geteuid() == 0:
            raise
        not_run.append("everything: no container can run for this user")
        pytest.skip(f"no container can run for this user: {missing}")
    except Refusal as refusal:
        pytest.fail(f"{refusal}\nrun this first: deploy/local/setup.sh appliance", pytrace=False)
    with appliance, Canaries() as canaries:
        made = Rig(appliance, canaries)
        made.prepare()
        made.forget()
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def running(rig: Rig) -> Iterator[Rig]:
    """The appliance with every role in service. What a test grants is taken back after it."""
    rig.replies.clear()
    rig.forget_grants()
    yield rig.up()
    rig.forget_grants()


@pytest.fixture
def separate_users(rig: Rig, request: pytest.FixtureRequest) -> None:
    """For what says nothing where all roles are one user."""
    if not rig.appliance.place.users.own:
        not_run.append(request.node.nodeid)
        pytest.skip("all roles are one user here: run as root, after deploy/local/setup.sh appliance")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not_run:
        terminalreporter.section("isolation rows that were NOT RUN here", sep="!", red=True)
        for name in not_run:
            terminalreporter.line(name)
        terminalreporter.line(f"{len(not_run)} NOT RUN: each needs what this host or user lacks (-ra says what)")
