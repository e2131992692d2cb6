"""The two Podman services that the contract tests run against: the fake, and the real one of the tool host."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import attrs

from brokerd.containerplan import Plan
from brokerd.containers import Podman
from deploy.local.toolhost import ToolHost
from tests.fakes import plans
from tests.fakes.podman import FakePodman


class Peer(Protocol):
    """A service under test."""

    @property
    def podman(self) -> Podman: ...

    @property
    def plan(self) -> Plan: ...

    def containers(self) -> set[str]:
        """Return the IDs of all the containers that there are, ours or not."""


@attrs.frozen(kw_only=True)
class Fake:
    """The fake."""

    service: FakePodman
    podman: Podman
    plan: Plan

    def containers(self) -> set[str]:
        return set(self.service.containers)


@attrs.frozen(kw_only=True)
class Real:
    """Podman itself."""

    host: ToolHost
    podman: Podman
    plan: Plan

    def containers(self) -> set[str]:
        return set(self.host.podman("ps", "--all", "--quiet", "--no-trunc").split())


@contextmanager
def fake(directory: Path) -> Iterator[Fake]:
    path = directory / "podman.sock"
    with FakePodman(path) as service:
        podman = Podman(path, clock=plans.CLOCK, owner=plans.PLAN.owner)
        yield Fake(service=service, podman=podman, plan=plans.PLAN)


def real(host: ToolHost, owner: str) -> Real:
    """Podman with an owner of this test's own, so that tests do not sweep each other's containers."""
    plan = attrs.evolve(plans.PLAN, owner=owner, image=host.image_id, seccomp=str(host.seccomp_path))
    return Real(host=host, podman=Podman(host.api_socket, clock=plans.CLOCK, owner=owner), plan=plan)
