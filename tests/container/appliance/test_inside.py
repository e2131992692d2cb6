"""What each role finds in its place, compared with the wiring, subject by subject: INV-1, INV-10 and INV-11.

And the comparison itself: each wall that is taken away, one at a time, is named by it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from bxcore import wiring as wirings
from bxcore.wiring import Network, Wiring
from deploy.local.home import ROLES
from tests.container.appliance import expected
from tests.container.appliance.conftest import not_run
from tests.container.appliance.expected import SUBJECTS, differences
from tests.container.appliance.rig import Loose, Rig

WIRING = wirings.load(ROLES)
Reports = dict[str, dict[str, dict[str, str]]]


@pytest.fixture(scope="module")
def reports(rig: Rig) -> Reports:
    """What is seen from the place of each role, while all the others run; the canaries have heard nothing.

    But what they heard of a role that has a network to dial out by: from the host's, where it has that, they are near.
    """
    rig.up()
    found: Reports = {}
    for role in WIRING.roles:
        heard = list(rig.canaries.heard)
        found[role] = rig.look(role)
        if not rig.view(role).isolated:
            rig.canaries.heard[:] = heard
        rig.up()
    return found


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("role", WIRING.roles)
def test_a_role_finds_what_the_wiring_gives_it_and_nothing_else(
    rig: Rig, reports: Reports, role: str, subject: str
) -> None:
    """S6 and E15 for roles: user namespaces, ptrace, keyring, raw sockets, DNS, abstract names, Podman's sockets."""
    faults = differences(subject, rig.view(role), reports[role][subject])
    assert faults == [], "\n".join(["", *faults])


def test_e15_nobody_outside_heard_of_it(rig: Rig, reports: Reports) -> None:
    assert set(reports) == set(WIRING.roles)
    assert rig.canaries.heard == []


def test_the_places_are_told_apart_by_their_users(rig: Rig, reports: Reports, separate_users: None) -> None:
    users = {found["identity"]["host uid"] for found in reports.values()}
    assert len(users) == len(WIRING.roles)
    assert str(rig.appliance.place.users.uid(WIRING.tools.user)) not in users


@pytest.mark.parametrize("role", WIRING.roles)
def test_where_control_groups_are_delegated_the_wirings_limits_hold(
    running: Rig, role: str, request: pytest.FixtureRequest
) -> None:
    """Read on the host, since the container's own view is hidden. Else the limits of a process are all there is."""
    group = Path(f"/proc/{running.number(role)}/cgroup").read_text(encoding="ascii").strip()
    where = Path("/sys/fs/cgroup") / group.removeprefix("0::/")
    if not group.startswith("0::/") or not (where / "memory.max").exists():
        not_run.append(request.node.nodeid)
        pytest.skip("this host delegates no control groups, so Podman limits nothing by them")
    limits = WIRING.roles[role].limits
    assert (where / "memory.max").read_text().strip() == str(limits.memory_mb * 1024 * 1024)
    assert (where / "pids.max").read_text().strip() == str(limits.processes)


# -- the comparison can fail ------------------------------------------------------------------------

Named = dict[str, str]


def without(option: str) -> Loose:
    """Leave out one of the options that close every role's container."""
    return Loose(wiring=lambda w: attrs.evolve(w, closed=tuple(one for one in w.closed if one != option)))


def on_the_hosts_network() -> Loose:
    def opened(wiring: Wiring) -> Wiring:
        loopd = attrs.evolve(wiring.roles["loopd"], network=Network.UPSTREAM)
        return attrs.evolve(wiring, roles={**wiring.roles, "loopd": loopd})

    return Loose(wiring=opened, settings=lambda s: attrs.evolve(s, upstream="http://127.0.0.1:9", network="host"))


def sees(path: str, *, under: str = "{path}", read_only: str = "true") -> Callable[[Rig], Loose]:
    """Mount one thing more."""

    def made(rig: Rig) -> Loose:
        source = rig.at(path) if "/" in path else rig.files
        target = under.format(path=source)
        return Loose(more=(f"--mount=type=bind,src={source},dst={target},ro={read_only},noexec,nosuid,nodev",))

    return made


LOOSE: dict[str, tuple[Loose | Callable[[Rig], Loose], Named]] = {
    "one mount more": (sees("home/run/admin"), {"mounts": "run/admin is", "paths": "home/run is"}),
    "a mount that may be written": (
        sees("files", read_only="false"),
        {"mounts": "shared/files is"},
    ),
    "the tools' Podman": (
        sees("home/run/tool-runner"),
        {"mounts": "run/tool-runner is", "paths": "run/tool-runner is"},
    ),
    "a secret of another": (sees("etc/inferproxy.toml", under="/run/secrets"), {"secrets": "/run/secrets"}),
    "the host's network": (
        on_the_hosts_network(),
        {"network": "interface", "abstract names": "connect to the host's is 'ok'"},
    ),
    "no filter of system calls": (
        Loose(more=("--security-opt=seccomp=unconfined",)),
        {"identity": "Seccomp is '0'", "system calls": "unshare user is 'ok'", "kinds of socket": "netlink is 'ok'"},
    ),
    "a capability": (Loose(more=("--cap-add=NET_ADMIN",)), {"capabilities": "CapEff is '4096'"}),
    "a root that may be written": (without("--read-only"), {"writable": "/usr", "mounts": "/ is"}),
    # With the filter and without this the runtime cannot even start one.
    "new privileges": (
        attrs.evolve(without("--security-opt=no-new-privileges"), more=("--security-opt=seccomp=unconfined",)),
        {"identity": "NoNewPrivs is '0'"},
    ),
    "all of Podman's capabilities": (without("--cap-drop=all"), {"capabilities": "CapBnd is"}),
    "shared memory": (without("--ipc=none"), {"mounts": "/dev/shm is", "surroundings": "devices"}),
    "one variable more": (Loose(more=("--env=HTTP_PROXY=http://example.org",)), {"environment": "HTTP_PROXY"}),
    "more files": (Loose(more=("--ulimit=nofile=512:512",)), {"limits": "NOFILE is '512'"}),
    "other processes": (Loose(more=("--pid=host",)), {"surroundings": "processes is"}),
    "files for everybody": (Loose(more=("--umask=0022",)), {"identity": "umask is '0022'"}),
    "another name": (Loose(more=("--hostname=brokerd",)), {"identity": "host name is 'brokerd'"}),
}
"""What is loosened, how, and by which subject it is found, with a piece of what is said."""


@pytest.mark.parametrize("loosened", LOOSE)
def test_a_wall_that_is_missing_is_named(running: Rig, loosened: str) -> None:
    named(running, "loopd", *LOOSE[loosened])


OF_GATEWAYD: dict[str, tuple[Loose | Callable[[Rig], Loose], Named]] = {
    **{name: LOOSE[name] for name in ("one mount more", "the tools' Podman", "a capability", "one variable more")},
    "no filter of system calls": (LOOSE["no filter of system calls"][0], {"system calls": "unshare user is 'ok'"}),
    "a root that may be written": LOOSE["a root that may be written"],
    "the conversations": (sees("home/sessions"), {"mounts": "home/sessions is", "paths": "home/sessions is"}),
    "calls of tools": (sees("home/run/broker"), {"mounts": "run/broker is", "paths": "run/broker is"}),
    "certificates that it may change": (
        Loose(wiring=lambda wired: may_write(wired, "gatewayd", "etc/gatewayd")),
        {"mounts": "etc/gatewayd is"},
    ),
}
"""The one role with a way out and a secret: its other walls hold all the more."""


def may_write(wired: Wiring, role: str, path: str) -> Wiring:
    row = wired.roles[role]
    mounts = tuple(attrs.evolve(mount, writable=mount.writable or mount.path == path) for mount in row.mounts)
    return attrs.evolve(wired, roles={**wired.roles, role: attrs.evolve(row, mounts=mounts)})


@pytest.mark.parametrize("loosened", OF_GATEWAYD)
def test_a_wall_that_is_missing_around_gatewayd_is_named(running: Rig, loosened: str) -> None:
    named(running, "gatewayd", *OF_GATEWAYD[loosened])


def test_the_token_of_gatewayd_shown_to_another_is_named(running: Rig) -> None:
    held = running.credentials()["gatewayd"]
    more = (f"--mount=type=bind,src={held},dst={held},ro=true,noexec,nosuid,nodev",)
    named(running, "loopd", Loose(more=more), {"mounts": "credentials/gatewayd is", "paths": "credentials/gatewayd is"})


def test_a_role_with_secrets_that_are_not_shown_to_it_is_named(running: Rig) -> None:
    view = running.view("gatewayd")
    lines = differences("environment", view, {"HOSTNAME": "gatewayd"})
    assert any("CREDENTIALS_DIRECTORY" in line and "there is none" in line for line in lines)


def named(rig: Rig, role: str, how: Loose | Callable[[Rig], Loose], wanted: Named) -> None:
    """Look from the place of a role with a wall less; what is wrong there is told, in these subjects."""
    found: dict[str, Any] = rig.look(role, loose=how if isinstance(how, Loose) else how(rig))
    rig.canaries.heard.clear()
    for subject, piece in wanted.items():
        faults = differences(subject, rig.view(role), found[subject])
        assert any(piece in fault for fault in faults), (subject, faults, found[subject])


def test_what_is_missing_is_named_as_well(rig: Rig) -> None:
    view = rig.view("loopd")
    lines = differences("limits", view, {"NOFILE": "1024"})
    assert "limits: NPROC should be '512', and there is none" in lines


def test_the_tables_follow_the_wiring(rig: Rig) -> None:
    """One row more in roles.nix changes what is expected, without a word here."""
    view = rig.view("loopd")
    role = view.role
    more = (*role.mounts, wirings.Mount(path="home/audit", writable=True))
    changed = attrs.evolve(rig.appliance.wiring, roles={**view.wiring.roles, "loopd": attrs.evolve(role, mounts=more)})
    after = expected.writable(attrs.evolve(view, wiring=changed)).names
    assert set(after) - set(expected.writable(view).names) == {str(changed.at("home/audit"))}
