"""Every role's container on NixOS is the one of deploy/appliance/roleplan.py, and of nothing else."""

from pathlib import Path
from typing import Any

import pytest

from bxcore import convert, wiring
from bxcore.wiring import Wiring
from deploy.appliance import roleplan
from deploy.appliance.roleplan import Settings
from tests.nix.evaluation import (
    CHAT,
    EVERY,
    GOOD,
    NIX,
    UPSTREAM,
    Evaluated,
    Said,
    evaluate,
    evaluate_each,
    expression,
    needs_nix,
)

pytestmark = needs_nix

DECLARED = wiring.load(NIX / "roles.json")
ROLES = sorted(DECLARED.roles)
OURS = ("--cgroups=split",)
"""What a systemd unit needs beside: the container lies in the unit's own cgroup."""

CASES: dict[str, tuple[dict[str, Any], Settings]] = {
    "an upstream over TCP": ({}, Settings(upstream=UPSTREAM, network="pasta", outbound="pasta")),
    "another network": (
        {"network": "slirp4netns:enable_ipv6=true"},
        Settings(upstream=UPSTREAM, network="slirp4netns:enable_ipv6=true", outbound="pasta"),
    ),
    "an upstream on a socket": (
        {"upstream": "unix:/srv/model/model.sock"},
        Settings(upstream="unix:/srv/model/model.sock", network="pasta", outbound="pasta"),
    ),
    "a chat server on this machine": (
        {"network": "host", "mattermost": {**CHAT, "url": "http://127.0.0.1:8065"}},
        Settings(upstream=UPSTREAM, network="host", outbound="pasta:-T,8065"),
    ),
    "folders to grant": (
        {"grantedPaths": ["/srv/notes", "/srv/notes/inner", "/srv/notes2", "/srv/a, b"]},
        Settings(
            upstream=UPSTREAM,
            network="pasta",
            outbound="pasta",
            granted=tuple(map(Path, ("/srv/notes", "/srv/notes/inner", "/srv/notes2", "/srv/a, b"))),
        ),
    ),
    "a folder granted twice": (
        {"grantedPaths": ["/srv/notes", "/srv/b", "/srv/notes"]},
        Settings(
            upstream=UPSTREAM,
            network="pasta",
            outbound="pasta",
            granted=tuple(map(Path, ("/srv/notes", "/srv/b", "/srv/notes"))),
        ),
    ),
    "another home": ({"stateDir": "/srv/boxmaker"}, Settings(upstream=UPSTREAM, network="pasta", outbound="pasta")),
}


def placed(said: dict[str, Any]) -> Wiring:
    return DECLARED.moved(home=Path(said.get("stateDir", "/var/lib/boxmaker")), etc=Path("/etc/boxmaker"))


@pytest.fixture(scope="module")
def good() -> Evaluated:
    return evaluate(EVERY)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_role_gets_the_options_and_the_command_of_the_plan(case: tuple[dict[str, Any], Settings]) -> None:
    said, settings = case
    evaluated = evaluate({**EVERY, **said})
    assert evaluated.refused == ()
    for role in ROLES:
        user = DECLARED.roles[role].user
        container = evaluated.container(user)
        assert tuple(container["extraOptions"]) == (
            *OURS,
            *roleplan.options(placed(said), role, settings),
            *roleplan.secrets(placed(said), role, Path(f"/run/credentials/{user}.service")),
        )
        assert tuple(container["cmd"]) == roleplan.command(placed(said), role)


def test_a_container_has_nothing_beside_the_plan(good: Evaluated) -> None:
    """oci-containers would make an option of each of these, and some would widen what the plan closes."""
    known = {
        "serviceName", "image", "imageFile", "pull", "podman", "log-driver", "extraOptions", "cmd",
    }  # fmt: skip
    for role in ROLES:
        assert set(good.container(DECLARED.roles[role].user)) == known


def test_there_is_a_container_for_each_role_and_no_other(good: Evaluated) -> None:
    containers = good.config["virtualisation"]["oci-containers"]["containers"]
    assert sorted(containers) == sorted(role.user for role in DECLARED.roles.values())


def test_an_optional_role_that_is_not_enabled_has_no_container() -> None:
    containers = evaluate(GOOD).config["virtualisation"]["oci-containers"]["containers"]
    assert sorted(containers) == sorted(role.user for role in DECLARED.running(()).values())
    assert "bx-gatewayd" not in containers


def test_a_role_that_dials_out_never_has_the_hosts_network() -> None:
    saids: list[Said] = [{"network": "host", "mattermost": {**CHAT, "url": url}} for url in (
        "https://chat.example.org", "http://127.0.0.1:8065", "https://[::1]",
    )]  # fmt: skip
    networks = [
        [option for option in evaluated.container("bx-gatewayd")["extraOptions"] if option.startswith("--network")]
        for evaluated in evaluate_each(({**EVERY, **said}, {}) for said in saids)
    ]
    assert networks == [["--network=pasta"], ["--network=pasta:-T,8065"], ["--network=pasta:-T,443"]]


def test_inv_1_loopd_has_no_network_whatever_is_said() -> None:
    saids: list[Said] = [{}, {"network": "host"}, {"upstream": "unix:/srv/model/model.sock"}]
    for evaluated in evaluate_each(({**GOOD, **said}, {}) for said in saids):
        options = evaluated.container("bx-loopd")["extraOptions"]
        assert [option for option in options if option.startswith("--network")] == ["--network=none"]


def test_a_role_runs_as_its_user_and_says_itself_when_it_is_ready(good: Evaluated) -> None:
    for role in DECLARED.roles.values():
        container = good.container(role.user)
        assert container["podman"] == {"user": role.user, "sdnotify": "container"}
        assert container["serviceName"] == role.user


def test_a_role_runs_its_own_image_and_nothing_is_pulled(good: Evaluated) -> None:
    for name, role in DECLARED.roles.items():
        container = good.container(role.user)
        assert container["image"] == f"{role.image}:tag-of-{name}"
        assert container["imageFile"] == f"/nix/store/image-{name}.tar"
        assert container["pull"] == "never"


def test_an_image_of_ones_own_takes_the_place(good: Evaluated) -> None:
    images = {
        name: {"outPath": f"/nix/store/{name}", "type": "derivation", "imageName": "mine", "imageTag": "1"}
        for name in ROLES
    }
    container = evaluate({**EVERY, "images": images}).container("bx-loopd")
    assert (container["image"], container["imageFile"]) == ("mine:1", "/nix/store/loopd")


def test_the_wiring_in_json_is_not_stale() -> None:
    """nix/roles.json is what everything but NixOS reads; `make generate` writes it."""
    assert convert.structure(expression(NIX / "roles.nix"), Wiring) == DECLARED


def test_a_stale_wiring_is_seen(tmp_path: Path) -> None:
    text = (NIX / "roles.nix").read_text(encoding="utf-8")
    (tmp_path / "roles.nix").write_text(text.replace("uid = 642;", "uid = 2199;"), encoding="utf-8")
    assert convert.structure(expression(tmp_path / "roles.nix"), Wiring) != DECLARED
