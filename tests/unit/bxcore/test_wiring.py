"""The wiring: read strictly, and what every part of it must have to do with the others."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bxcore import convert, strictjson, wiring
from bxcore.wiring import OWNER, TOOLS, Network, UnknownWiring, Wiring
from tests.structure.sources import ROOT

FILE = ROOT / "nix" / "roles.json"
WIRED = wiring.load(FILE)


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(FILE.read_bytes())
    change(value)
    return json.dumps(value).encode()


# -- reading ----------------------------------------------------------------------------------------


def test_what_is_written_is_what_was_read() -> None:
    assert wiring.read(strictjson.dumps(convert.unstructure(WIRED))) == WIRED


BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another version": (lambda w: w.update(version=2), "its version is 2, this program reads version 1"),
    "a version that is text": (lambda w: w.update(version="1"), "its version is '1'"),
    "no version": (lambda w: w.pop("version"), "its version is None"),
    "an unknown key": (lambda w: w.update(more=1), "more"),
    "a key that is missing": (lambda w: w.pop("tools"), "tools"),
    "a network that is none": (lambda w: w["roles"]["loopd"].update(network="host"), "network"),
    "a mode that is a number": (lambda w: w["directories"][0].update(mode=755), "mode"),
}


@pytest.mark.parametrize(("change", "told"), BAD.values(), ids=BAD.keys())
def test_another_wiring_is_refused(change: Callable[[dict[str, Any]], object], told: str) -> None:
    with pytest.raises(UnknownWiring, match=re.escape(told)):
        wiring.read(changed(change))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version":1}', b"\xff", b'{"version":1,"version":1}'])
def test_what_is_no_wiring_is_refused(content: bytes) -> None:
    with pytest.raises(UnknownWiring):
        wiring.read(content)


def test_the_file_is_named_in_what_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnknownWiring, match=r"roles\.json: No such file"):
        wiring.load(tmp_path / "roles.json")
    (tmp_path / "roles.json").write_bytes(b"{}")
    with pytest.raises(UnknownWiring, match=r"roles\.json: its version is None"):
        wiring.load(tmp_path / "roles.json")


def test_a_file_that_is_far_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "roles.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UnknownWiring):
        wiring.load(tmp_path / "roles.json")


# -- looking things up ------------------------------------------------------------------------------


def test_paths_begin_with_a_place() -> None:
    assert WIRED.at("home/run/infer") == Path("/var/lib/boxmaker/run/infer")
    assert WIRED.at("etc/loopd.toml") == Path("/etc/boxmaker/loopd.toml")
    assert WIRED.at("home") == Path("/var/lib/boxmaker")
    with pytest.raises(KeyError):
        WIRED.at("elsewhere/x")


def test_a_wiring_that_is_moved_lies_elsewhere_and_is_the_same() -> None:
    moved = WIRED.moved(home=Path("/a b"), etc=Path("/c"))
    assert (moved.at("home/run"), moved.socket("infer")) == (Path("/a b/run"), Path("/a b/run/infer/infer.sock"))
    assert moved.moved(home=WIRED.at("home"), etc=WIRED.at("etc")) == WIRED


def test_a_party_is_a_user_or_a_person() -> None:
    assert WIRED.user(OWNER) is None
    assert WIRED.user(TOOLS) == WIRED.tools.user
    assert WIRED.user("loopd") == WIRED.roles["loopd"].user
    with pytest.raises(KeyError):
        WIRED.user("nobody")
    with pytest.raises(KeyError):
        WIRED.edge("nowhere")


# -- what must hold of it ---------------------------------------------------------------------------


def mounted(role: str) -> dict[str, bool]:
    return {mount.path: mount.writable for mount in WIRED.roles[role].mounts}


def test_users_are_distinct() -> None:
    uids = WIRED.users
    assert len(uids) == len(WIRED.roles) + 1
    assert len(set(uids.values())) == len(uids)


@pytest.mark.parametrize("edge", WIRED.edges, ids=lambda edge: edge.name)
def test_a_pair_meets_in_its_own_directory_and_no_third_role_sees_it(edge: wiring.Edge) -> None:
    assert [other.name for other in WIRED.edges if other.directory == edge.directory] == [edge.name]
    assert [other.name for other in WIRED.edges if other.group == edge.group] == [edge.name]
    seeing = {role: mounted(role)[edge.directory] for role in WIRED.roles if edge.directory in mounted(role)}
    # Who listens makes the socket; who calls can change nothing there.
    expected = {edge.listener: True, edge.client: False}
    assert seeing == {party: writable for party, writable in expected.items() if party in WIRED.roles}


@pytest.mark.parametrize("edge", WIRED.edges, ids=lambda edge: edge.name)
def test_a_pairs_directory_is_the_listeners_and_lets_the_client_in(edge: wiring.Edge) -> None:
    (directory,) = [one for one in WIRED.directories if one.path == edge.directory]
    client = WIRED.user(edge.client)
    assert (directory.user, directory.group, directory.mode) == (WIRED.user(edge.listener), edge.group, "2750")
    assert directory.enter == (() if client is None else (client,))
    assert directory.sockets


def test_what_a_role_keeps_is_its_alone() -> None:
    kept = [path for role in WIRED.roles.values() for path in role.keeps]
    assert len(set(kept)) == len(kept)
    for name, role in WIRED.roles.items():
        for path in role.keeps:
            (directory,) = [one for one in WIRED.directories if one.path == path]
            assert (directory.user, directory.group) == (role.user, role.user)
            assert mounted(name)[path]
            assert [other for other in WIRED.roles if path in mounted(other)] == [name]


def test_nothing_of_etc_is_writable_and_no_role_sees_anothers_settings() -> None:
    for name, role in WIRED.roles.items():
        assert [path for path, writable in mounted(name).items() if writable and path.startswith("etc")] == []
        assert [other for other in WIRED.roles if role.config in mounted(other)] == [name]


def test_inv_1_loopd_has_no_network_no_secret_and_no_grant() -> None:
    loopd = WIRED.roles["loopd"]
    assert (loopd.network, loopd.secrets, loopd.capabilities) == (Network.NONE, (), ())
    assert "etc/grants" not in mounted("loopd")


def test_only_who_reaches_the_model_server_or_the_chat_server_has_a_network() -> None:
    networks = {name: role.network for name, role in WIRED.roles.items() if role.network is not Network.NONE}
    assert networks == {"inferproxy": Network.UPSTREAM, "gatewayd": Network.OUTBOUND}


def test_only_who_speaks_to_the_chat_server_has_a_secret_and_it_may_be_left_out() -> None:
    assert {name: role.secrets for name, role in WIRED.roles.items() if role.secrets} == {
        "gatewayd": ("mattermost-token",)
    }
    assert set(WIRED.roles) - set(WIRED.running(())) == {"gatewayd"}
    assert WIRED.running({"gatewayd"}) == WIRED.roles


def test_a_role_that_may_be_left_out_leaves_the_users_and_directories_as_they_are() -> None:
    """Whoever is joined to it by a socket mounts the directory whether or not it runs."""
    role = WIRED.roles["gatewayd"]
    assert role.user in WIRED.users
    made = {one.path for one in WIRED.directories}
    assert {edge.directory for edge in WIRED.edges if "gatewayd" in (edge.listener, edge.client)} <= made
    assert {*role.keeps, "etc/gatewayd"} <= made


def test_every_directory_that_is_mounted_or_stored_in_is_made_parents_first() -> None:
    made = [one.path for one in WIRED.directories]
    assert len(set(made)) == len(made)
    for path in made:
        assert "/" not in path or path.rpartition("/")[0] in made[: made.index(path)]
    files = {file.path for file in WIRED.files}
    mounts = {mount.path for role in WIRED.roles.values() for mount in role.mounts}
    assert mounts <= set(made) | files
    assert {role.storage for role in WIRED.roles.values()} | {WIRED.tools.storage, WIRED.tools.calls} <= set(made)


def names(wired: Wiring) -> set[str]:
    return {*wired.users, *(edge.group for edge in wired.edges), "root", OWNER}


def test_every_name_is_one_that_is_made() -> None:
    used = {name for one in WIRED.directories for name in (one.user, one.group, *one.enter)}
    assert used | {file.group for file in WIRED.files} <= names(WIRED)


def test_nobody_else_may_enter_what_is_somebodys() -> None:
    for one in WIRED.directories:
        if one.user != "root":
            # Podman's storage is passed through by ids that own nothing; nobody lists it.
            allowed = {"0711"} if one.path.startswith("home/containers/") else {"0700", "0710", "2750"}
            assert one.mode in allowed, one.path


def test_owners_are_who_may_call_a_role_as_a_person() -> None:
    assert set(WIRED.owner_groups) == {"bx-loop-owner", "bx-admin", "bx-gateway-owner"}
