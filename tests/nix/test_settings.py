"""The configuration files that NixOS writes are read by the programs' own reader, and hold what was said."""

import json
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bxcore import config, wiring
from bxcore.settings.brokerd import BrokerdSettings, EgressNetwork
from bxcore.settings.gatewayd import GatewaydSettings
from bxcore.settings.inferproxy import InferproxySettings
from bxcore.settings.loopd import LoopdSettings
from bxcore.settings.roles import ROLES
from tests.nix.evaluation import (
    CHAT,
    EVERY,
    GOOD,
    NIX,
    PERSON,
    SERVER,
    UPSTREAM,
    Evaluated,
    evaluate,
    expression,
    needs_nix,
)

pytestmark = needs_nix

DECLARED = wiring.load(NIX / "roles.json")


def load(evaluated: Evaluated, role: str, directory: Path) -> Any:
    path = directory / f"{role}.toml"
    path.write_text(evaluated.texts[f"boxmaker/{role}.toml"], encoding="utf-8")
    return config.load(path, ROLES[role])


def test_every_role_has_a_file_that_its_program_reads(tmp_path: Path) -> None:
    evaluated = evaluate(EVERY)
    assert set(ROLES) == set(DECLARED.roles)
    for role in ROLES:
        load(evaluated, role, tmp_path)


def test_inferproxy_is_told_the_upstream_and_its_socket(tmp_path: Path) -> None:
    read = load(evaluate(GOOD), "inferproxy", tmp_path)
    assert read == InferproxySettings(listen=DECLARED.socket("infer"), upstream=UPSTREAM)


def test_loopd_is_told_its_sockets_the_server_and_the_slots(tmp_path: Path) -> None:
    said = {
        **GOOD,
        "timeZone": "Europe/Berlin",
        "slots": {"main": 2, "background": 0},
        "expect": {"contextTokens": 4096, "slots": 3, "templateSha256": "ab" * 32},
        "settings": {"loopd": {"sampling": {"temperature": 0.25}, "limits": {"steps": 7}}},
    }
    evaluated = evaluate(said)
    assert evaluated.refused == ()
    read: LoopdSettings = load(evaluated, "loopd", tmp_path)
    assert (read.listen.owner, read.infer.socket, read.broker.socket) == (
        DECLARED.socket("loop-owner"), DECLARED.socket("infer"), DECLARED.socket("broker"),
    )  # fmt: skip
    assert read.state == DECLARED.at("home")
    assert (read.slots.main, read.slots.background, read.time_zone) == (2, 0, "Europe/Berlin")
    assert (read.expect.n_ctx, read.expect.slots, read.expect.template_sha256) == (4096, 3, "ab" * 32)
    assert (read.sampling.temperature, read.limits.steps) == (Decimal("0.25"), 7)


def test_brokerd_is_told_its_places_and_what_nothing_may_see(tmp_path: Path) -> None:
    read: BrokerdSettings = load(evaluate({**GOOD, "egressNetwork": "slirp4netns"}), "brokerd", tmp_path)
    tools = DECLARED.tools
    assert (read.grants, read.audit, read.state) == tuple(
        DECLARED.at(path) for path in ("etc/grants", "home/audit", "home/broker")
    )
    assert (read.listen.broker, read.listen.admin) == (DECLARED.socket("broker"), DECLARED.socket("admin"))
    assert (read.podman.socket, read.podman.image_file) == (
        DECLARED.socket("tool-runner"),
        DECLARED.at(tools.image_file),
    )
    assert (read.podman.calls, read.podman.seccomp) == (DECLARED.at(tools.calls), DECLARED.at(tools.seccomp))
    assert read.protect == (DECLARED.at("home"), DECLARED.at("etc"), Path("/nix"))
    assert read.egress.network is EgressNetwork.SLIRP4NETNS


def test_gatewayd_is_told_the_server_the_people_and_its_places(tmp_path: Path) -> None:
    other, channel = "z" * 26, "c" * 26
    said = {
        **CHAT,
        "caFile": "/etc/ssl/mine.pem",
        "allowedUsers": [PERSON, other],
        "allowedChannels": [channel],
        "approvers": [other],
        "linkHosts": ["example.org", "*.example.org"],
    }
    evaluated = evaluate({**GOOD, "mattermost": said, "settings": {"gatewayd": {"limits": {"stale_ms": 60_000}}}})
    assert evaluated.refused == ()
    read: GatewaydSettings = load(evaluated, "gatewayd", tmp_path)
    assert (read.mattermost.url, read.mattermost.ca_file) == (SERVER, DECLARED.at("etc/gatewayd/ca.pem"))
    assert (read.allow.users, read.allow.channels, read.approvers) == ((PERSON, other), (channel,), (other,))
    assert (read.links.hosts, read.limits.stale_ms) == (("example.org", "*.example.org"), 60_000)
    assert (read.listen.gateway, read.listen.owner, read.loop.socket, read.state) == (
        DECLARED.socket("gateway"), DECLARED.socket("gateway-owner"), DECLARED.socket("loop-gateway"),
        DECLARED.at("home/gateway"),
    )  # fmt: skip
    # The token is a credential of systemd: the file does not speak of it.
    assert read.secrets == {}


def test_without_an_authority_of_ones_own_gatewayd_is_told_of_none(tmp_path: Path) -> None:
    assert load(evaluate(EVERY), "gatewayd", tmp_path).mattermost.ca_file is None


def test_brokerd_asks_gatewayd_where_it_runs_and_loopd_listens_for_it_always(tmp_path: Path) -> None:
    with_it, without = evaluate(EVERY), evaluate(GOOD)
    assert load(with_it, "brokerd", tmp_path).gateway.socket == DECLARED.socket("gateway")
    assert load(without, "brokerd", tmp_path).gateway.socket is None
    for evaluated in (with_it, without):
        assert load(evaluated, "loopd", tmp_path).listen.gateway == DECLARED.socket("loop-gateway")
    assert "boxmaker/gatewayd.toml" not in without.texts


def test_what_a_role_keeps_and_reads_is_what_its_container_sees(tmp_path: Path) -> None:
    """A path in a file that no mount brings would be a role that cannot start, seen on the machine only."""
    evaluated = evaluate({**GOOD, "mattermost": {**CHAT, "caFile": "/etc/ssl/mine.pem"}})
    for role in ROLES:
        seen = [DECLARED.at(mount.path) for mount in DECLARED.roles[role].mounts]
        for path in paths_of(load(evaluated, role, tmp_path)):
            assert any(path.is_relative_to(place) or place.is_relative_to(path) for place in seen), (role, path)


def paths_of(settings: object) -> list[Path]:
    """Return every path in a settings type but the ones that are only kept from being shown."""
    found: list[Path] = []
    for name in getattr(settings, "__slots__", ()):
        value = getattr(settings, name, None)
        if isinstance(value, Path):
            found.append(value)
        elif hasattr(value, "__attrs_attrs__"):
            found += paths_of(value)
    return found


def test_a_key_that_no_program_knows_is_refused_by_the_program(tmp_path: Path) -> None:
    evaluated = evaluate({**GOOD, "settings": {"loopd": {"limits": {"stepz": 7}}}})
    with pytest.raises(config.ConfigFaults, match="stepz"):
        load(evaluated, "loopd", tmp_path)


TEXTS = ("plain", 'quo"te', "back\\slash", "new\nline", "\ttab", "\x7f", "\x01", "ümlaut 🎈", "")


def test_any_text_is_written_so_that_it_is_read_again(tmp_path: Path) -> None:
    caller = tmp_path / "caller.nix"
    caller.write_text(f"{{ value }}: import {NIX}/toml.nix (builtins.fromJSON value)\n", encoding="utf-8")
    value = {"a.b": list(TEXTS), "deep": {"er": {"yes": True, "n": -3}, "empty": {}}, "none": []}
    assert tomllib.loads(expression(caller, value=json.dumps(value))) == value
