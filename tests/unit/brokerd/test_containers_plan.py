"""brokerd.containerplan: what Podman is asked for, and every way in which what it made may differ."""

import copy
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from brokerd import containerplan
from brokerd.containerplan import Bounds, Ids, Network, Plan
from brokerd.mounts import Mount
from bxcore import strictjson
from tests.fakes.plans import PLAN
from tests.fakes.podman import Container

GRANTED = Mount(source="/srv/a b", destination="/srv/a b", writable=True, device=1, inode=2)
FULL = attrs.evolve(PLAN, mounts=(GRANTED,), ids=Ids.HOST_USER)


def made(plan: Plan) -> dict[str, Any]:
    """What Podman says of the container that it made, when it made what it was asked for."""
    container = Container(plan.spec())
    container.status = "initialized"
    return container.described()


@pytest.mark.parametrize("plan", [PLAN, FULL], ids=["own ids", "mounts"])
def test_what_was_asked_for_differs_in_nothing(plan: Plan) -> None:
    assert containerplan.differences(plan, made(plan)) == []


def test_a_plan_is_json_and_its_digest_says_all_of_it() -> None:
    assert strictjson.loads(strictjson.dumps(FULL.spec())) == FULL.spec()
    others: dict[str, Any] = {
        "owner": "other",
        "call": 2,
        "part": "egress",
        "image": "0" * 64,
        "argv": ("/bin/sh", "-c", "false"),
        "mounts": (attrs.evolve(GRANTED, writable=False),),
        "network": Network.HOST,
        "ids": Ids.OWN,
        "seccomp": "/elsewhere",
    }
    changed = [attrs.evolve(FULL, **{name: value}) for name, value in others.items()]
    for field in attrs.fields(Bounds):
        wider = attrs.evolve(FULL.bounds, **{field.name: getattr(FULL.bounds, field.name) * 2})
        changed.append(attrs.evolve(FULL, bounds=wider))
    assert {*others, "bounds"} == {field.name for field in attrs.fields(Plan)}
    digests = {
        *(containerplan.digest(plan) for plan in (FULL, *changed)),
        containerplan.digest(FULL, FULL),
        containerplan.digest(FULL, changed[0]),
    }
    assert len(digests) == len(changed) + 3


def test_no_container_gets_the_hosts_environment_or_a_network_unasked() -> None:
    spec = PLAN.spec()
    assert spec["netns"] == {"nsmode": "none"}
    assert spec["unsetenvall"] is True
    assert spec["httpproxy"] is False
    assert spec["cap_drop"] == ["all"]
    assert spec["read_only_filesystem"] is True
    assert spec["no_new_privileges"] is True
    assert spec["use_image_hosts"] is True


@pytest.mark.parametrize("network", Network)
def test_a_container_learns_the_machines_name_servers_only_to_dial_for_a_fetch(network: Network) -> None:
    spec = attrs.evolve(PLAN, network=network).spec()
    assert spec["use_image_resolve_conf"] is (network is Network.NONE)


def test_a_mount_brings_nothing_that_is_mounted_below_it() -> None:
    asked: Any = FULL.spec()["mounts"]
    (bind,) = (mount for mount in asked if mount["type"] == "bind")
    assert "bind" in bind["options"]
    assert "rbind" not in bind["options"]


Change = Callable[[dict[str, Any]], None]


def at(*path: str | int, to: object) -> Change:
    def change(described: dict[str, Any]) -> None:
        where: Any = described
        for step in path[:-1]:
            where = where[step]
        where[path[-1]] = to

    return change


HOST_IDS = {"UidMap": ["0:0:1", "1:1:65536"], "GidMap": ["0:0:1", "1:1:65536"]}
OTHER_MOUNT = {
    "Type": "bind",
    "Source": "/etc",
    "Destination": "/x",
    "RW": False,
    "Propagation": "rprivate",
    "Options": ["bind"],
}

DIFFERENCES: dict[str, tuple[Change, str]] = {
    "another image": (at("Image", to="0" * 64), "image"),
    "another program": (at("Path", to="/bin/busybox"), "program"),
    "other arguments": (at("Args", to=[]), "program"),
    "it runs already": (at("State", "Status", to="running"), "state"),
    "root": (at("Config", "User", to="0:0"), "user"),
    "a proxy of the host's": (at("Config", "Env", to=["HTTP_PROXY=http://user:password@proxy"]), "environment"),
    "no label": (at("Config", "Labels", to={}), "labels"),
    "a terminal": (at("Config", "Tty", to=True), "stdin"),
    "no stdin": (at("Config", "OpenStdin", to=False), "stdin"),
    "it may live on": (at("Config", "Timeout", to=0), "lifetime"),
    "a network": (at("HostConfig", "NetworkMode", to="slirp4netns"), "network"),
    "the host's network": (at("HostConfig", "NetworkMode", to="host"), "network"),
    "a root that can be written": (at("HostConfig", "ReadonlyRootfs", to=False), "read-only root"),
    "privileged": (at("HostConfig", "Privileged", to=True), "privileged"),
    "a capability": (at("EffectiveCaps", to=["CAP_KILL"]), "capabilities"),
    "a capability to be had": (at("BoundingCaps", to=["CAP_KILL"]), "capabilities"),
    "a capability added": (at("HostConfig", "CapAdd", to=["CAP_KILL"]), "capabilities"),
    "new privileges": (at("HostConfig", "SecurityOpt", to=[]), "new privileges"),
    "a device": (at("HostConfig", "Devices", to=[{"PathOnHost": "/dev/kvm"}]), "devices"),
    "the host's processes": (at("HostConfig", "PidMode", to="host"), "namespaces"),
    "the host's name": (at("HostConfig", "UTSMode", to="host"), "namespaces"),
    "the shared user ids": (at("HostConfig", "UsernsMode", to=""), "namespaces"),
    "the host user is its root": (at("HostConfig", "IDMappings", to=HOST_IDS), "user ids"),
    "no ids": (at("HostConfig", "IDMappings", to=None), "user ids"),
    "a log on the disk": (at("HostConfig", "LogConfig", "Type", to="k8s-file"), "log"),
    "the host's processes go first": (at("HostConfig", "OomScoreAdj", to=0), "first to go"),
    "no mount": (at("Mounts", to=[]), "mounts"),
    "another source": (at("Mounts", 0, "Source", to="/srv/b"), "mounts"),
    "another place": (at("Mounts", 0, "Destination", to="/srv/b"), "mounts"),
    "a mount that may not be written": (at("Mounts", 0, "RW", to=False), "mounts"),
    "a mount that is shared": (at("Mounts", 0, "Propagation", to="shared"), "mounts"),
    "a mount with all below it": (at("Mounts", 0, "Options", to=["rbind"]), "mounts"),
    "one mount more": (lambda described: described["Mounts"].append(OTHER_MOUNT), "mounts"),
    "no file system in memory": (at("HostConfig", "Tmpfs", to={}), "tmpfs"),
    "a larger one": (at("HostConfig", "Tmpfs", "/tmp", to="rw,size=50%,noexec,nosuid,nodev,mode=1777"), "tmpfs"),
    "one that runs programs": (at("HostConfig", "Tmpfs", "/tmp", to="rw,size=4194304,nosuid,nodev,mode=1777"), "tmpfs"),
    "one more of them": (at("HostConfig", "Tmpfs", "/run", to="rw"), "tmpfs"),
    "no limits": (at("HostConfig", "Ulimits", to=[]), "limits"),
    "a wider limit": (at("HostConfig", "Ulimits", 1, to={"Name": "RLIMIT_DATA", "Soft": 1, "Hard": -1}), "limits"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_was_made_otherwise_is_seen(name: str) -> None:
    change, expected = DIFFERENCES[name]
    described = copy.deepcopy(made(FULL))
    change(described)
    assert containerplan.differences(FULL, described) == [expected]


def test_a_container_of_its_own_ids_may_not_have_the_host_user_in_them() -> None:
    described = made(FULL)
    assert "user ids" in containerplan.differences(PLAN, described)
    assert "user ids" in containerplan.differences(FULL, made(attrs.evolve(FULL, ids=Ids.OWN)))
