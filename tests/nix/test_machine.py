"""What NixOS is told around the containers: users, directories, files, units."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from bxcore import wiring
from bxcore.wiring import Directory
from deploy.quadlet import hostfiles
from nix.checks import chat
from tests.fakes.mattermost import Mattermost
from tests.nix.evaluation import CHAT, EVERY, GOOD, HERE, NIX, Evaluated, evaluate, needs_nix, run

pytestmark = needs_nix

DECLARED = wiring.load(NIX / "roles.json")
PLACES = ("/var/lib/boxmaker", "/etc/boxmaker")


@pytest.fixture(scope="module")
def good() -> Evaluated:
    return evaluate(EVERY)


def acl(entry: str) -> set[tuple[str, ...]]:
    """Return the entries of an access list with their permissions written out."""
    found = set()
    for part in entry.split(","):
        *subject, permissions = part.split(":")
        found.add((*subject, "".join(letter for letter in permissions if letter != "-")))
    return found


def wanted_acl(directory: Directory) -> str:
    """The contract: the client of a socket is let through, and may write the socket that is made there."""
    entries = [f"u:{user}:x" for user in directory.enter]
    if directory.sockets:
        entries += ["d:u::rwx", "d:g::rw", "d:m::rw", "d:o::-", *(f"d:u:{user}:rw" for user in directory.enter)]
    return ",".join(entries)


def test_the_directories_are_those_of_the_wiring_with_owner_mode_and_acl(good: Evaluated) -> None:
    rules = good.config["systemd"]["tmpfiles"]["settings"]["10-boxmaker"]
    assert sorted(rules) == sorted(str(DECLARED.at(each.path)) for each in DECLARED.directories)
    for directory in DECLARED.directories:
        rule = rules[str(DECLARED.at(directory.path))]
        user = "alice" if directory.user == "owner" else directory.user
        assert rule["d"] == {"mode": directory.mode, "user": user, "group": directory.group}
        if directory.enter or directory.sockets:
            assert acl(rule["a+"]["argument"]) == acl(wanted_acl(directory))
        else:
            assert "a+" not in rule


def test_the_files_are_those_of_the_wiring_and_only_their_group_reads_a_configuration(good: Evaluated) -> None:
    etc = good.config["environment"]["etc"]
    for file in DECLARED.files:
        entry = etc[str(DECLARED.at(file.path)).removeprefix("/etc/")]
        assert (entry["group"], entry["mode"]) == (file.group, file.mode)
    others = {"boxmaker/roles.json"}
    assert etc["boxmaker/roles.json"]["mode"] == "0644"
    assert set(etc) == {str(DECLARED.at(file.path)).removeprefix("/etc/") for file in DECLARED.files} | others


def test_the_wiring_of_the_machine_can_be_read_by_doctor(good: Evaluated) -> None:
    assert wiring.read(good.texts["boxmaker/roles.json"].encode()) == DECLARED
    moved = evaluate({**EVERY, "stateDir": "/srv/boxmaker"})
    read = wiring.read(moved.texts["boxmaker/roles.json"].encode())
    assert read == DECLARED.moved(home=Path("/srv/boxmaker"), etc=Path("/etc/boxmaker"))
    assert moved.config["environment"]["variables"] == {"BOXMAKER_HOME": "/srv/boxmaker"}


def test_each_party_has_a_user_that_is_a_member_of_nothing(good: Evaluated) -> None:
    users = good.config["users"]["users"]
    for name, uid in DECLARED.users.items():
        user = users[name]
        assert (user["uid"], user["group"], user["isSystemUser"]) == (uid, name, True)
        assert (user["autoSubUidGidRange"], user["linger"]) == (True, False)
        assert not set(user) & {"extraGroups", "shell", "password", "openssh"}
    assert set(users) == {*DECLARED.users}


def test_only_owners_are_members_and_only_of_the_owners_groups(good: Evaluated) -> None:
    groups = good.config["users"]["groups"]
    members = {name: group["members"] for name, group in groups.items() if "members" in group}
    assert members == {group: ["alice"] for group in DECLARED.owner_groups}
    assert {edge.group for edge in DECLARED.edges} <= set(groups)


def test_a_role_speaks_with_allowed_addresses_alone(good: Evaluated) -> None:
    for name in DECLARED.roles:
        service = good.unit(f"bx-{name}")["serviceConfig"]
        assert service["IPAddressDeny"] == "any"
        assert service.get("IPAddressAllow") == {"inferproxy": ["192.0.2.7"], "gatewayd": ["192.0.2.9"]}.get(name)


@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        ({"upstream": "http://[2001:db8::7]:8080"}, ["2001:db8::7"]),
        ({"upstream": "http://127.0.0.2:8080", "network": "host"}, ["127.0.0.2"]),
        ({"upstream": "http://127.0.0.1:8080", "network": "pasta:-T,8080"}, ["127.0.0.1"]),
        ({"upstream": "unix:/srv/model/model.sock"}, None),
        (
            {"upstream": "http://model.example.com", "allowedAddresses": {"inferproxy": ["192.0.2.0/24"]}},
            ["192.0.2.0/24"],
        ),
    ],
)
def test_the_allowed_addresses_follow_from_the_upstream_or_are_said(said: dict[str, Any], allowed: Any) -> None:
    evaluated = evaluate({**GOOD, **said})
    assert evaluated.refused == ()
    assert evaluated.unit("bx-inferproxy")["serviceConfig"].get("IPAddressAllow") == allowed


@pytest.mark.parametrize(
    ("url", "said", "allowed"),
    [
        ("https://[2001:db8::9]:8443", {}, ["2001:db8::9"]),
        ("http://127.0.0.1:8065", {}, ["127.0.0.1"]),
        ("https://chat.example.org", {"gatewayd": ["192.0.2.0/24"]}, ["192.0.2.0/24"]),
    ],
)
def test_gatewayds_addresses_follow_from_the_servers_or_are_said(url: str, said: dict[str, Any], allowed: Any) -> None:
    evaluated = evaluate({**GOOD, "mattermost": {**CHAT, "url": url}, "allowedAddresses": said})
    assert evaluated.refused == ()
    assert evaluated.unit("bx-gatewayd")["serviceConfig"]["IPAddressAllow"] == allowed
    assert evaluated.unit("bx-inferproxy")["serviceConfig"]["IPAddressAllow"] == ["192.0.2.7"]


def test_the_token_is_an_encrypted_credential_of_gatewayds_unit_alone(good: Evaluated) -> None:
    credentials = {
        name: good.unit(f"bx-{name}")["serviceConfig"].get("LoadCredentialEncrypted") for name in DECLARED.roles
    }
    assert {name: found for name, found in credentials.items() if found} == {
        "gatewayd": [f"mattermost-token:{CHAT['tokenCredential']}"]
    }


def test_an_authority_of_ones_own_lies_where_gatewayd_reads_it_and_starts_it_anew() -> None:
    evaluated = evaluate({**GOOD, "mattermost": {**CHAT, "caFile": "/etc/ssl/mine.pem"}})
    entry = evaluated.config["environment"]["etc"]["boxmaker/gatewayd/ca.pem"]
    assert entry == {"source": "/etc/ssl/mine.pem", "mode": "0440", "group": "bx-gatewayd"}
    assert "/etc/ssl/mine.pem" in evaluated.unit("bx-gatewayd")["restartTriggers"]
    assert "/etc/ssl/mine.pem" not in evaluated.unit("bx-brokerd")["restartTriggers"]


def test_an_optional_role_that_is_not_enabled_has_its_user_and_its_places_and_nothing_that_runs() -> None:
    evaluated = evaluate(GOOD)
    assert "bx-gatewayd" not in evaluated.config["systemd"]["services"]
    assert "boxmaker/gatewayd.toml" not in evaluated.config["environment"]["etc"]
    assert "bx-gatewayd" in evaluated.config["users"]["users"]
    places = evaluated.config["systemd"]["tmpfiles"]["settings"]["10-boxmaker"]
    assert {str(DECLARED.at(each.path)) for each in DECLARED.directories} == set(places)


def test_no_unit_has_a_setting_that_would_keep_newuidmap_from_working(good: Evaluated) -> None:
    """systemd.exec(5): for a unit with User= each of these implies NoNewPrivileges, and newuidmap is setuid."""
    implying = {
        "NoNewPrivileges", "SystemCallFilter", "SystemCallArchitectures", "SystemCallLog", "RestrictAddressFamilies",
        "RestrictNamespaces", "PrivateDevices", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs",
        "ProtectClock", "ProtectHostname", "MemoryDenyWriteExecute", "RestrictRealtime", "RestrictSUIDSGID",
        "DynamicUser", "LockPersonality",
    }  # fmt: skip
    for unit in good.config["systemd"]["services"].values():
        assert not set(unit["serviceConfig"]) & implying


def test_a_role_starts_after_whom_it_calls_and_is_not_stopped_with_it(good: Evaluated) -> None:
    for name in DECLARED.roles:
        unit = good.unit(f"bx-{name}")
        # One that may be left out is not waited for: brokerd calls gatewayd, which calls loopd, which calls brokerd.
        called = [
            edge.listener
            for edge in DECLARED.edges
            if edge.client == name and (edge.listener == "tools" or not DECLARED.roles[edge.listener].optional)
        ]
        units = sorted("boxmaker-tools.service" if each == "tools" else f"bx-{each}.service" for each in called)
        assert sorted(unit["wants"]) == units
        assert set(units) <= set(unit["after"])
        assert "requires" not in unit


def test_no_role_waits_for_one_that_waits_for_it(good: Evaluated) -> None:
    """systemd would drop one of them from the start."""
    after = {name: unit["after"] for name, unit in good.config["systemd"]["services"].items()}
    waiting = [[name] for name in after]
    while waiting:
        way = waiting.pop()
        following = [unit.removesuffix(".service") for unit in after.get(way[-1], [])]
        assert not set(way).intersection(following), way
        waiting += [[*way, name] for name in following if name in after]


def test_a_role_starts_again_however_often_unless_the_owner_has_to_look(good: Evaluated) -> None:
    """As where Quadlet starts it; Restart=always is oci-containers' own."""
    for name in DECLARED.roles:
        unit = good.unit(f"bx-{name}")
        assert unit["startLimitIntervalSec"] == 0
        assert unit["serviceConfig"]["RestartPreventExitStatus"] == hostfiles.FOR_THE_OWNER
    assert good.unit("boxmaker-tools")["startLimitIntervalSec"] == 0


def test_a_role_starts_again_when_a_file_of_its_own_has_changed(good: Evaluated) -> None:
    for name in DECLARED.roles:
        assert f"/nix/store/{name}.toml" in good.unit(f"bx-{name}")["restartTriggers"]
    assert "/nix/store/tool-image-id" in good.unit("bx-brokerd")["restartTriggers"]
    assert "/nix/store/tool-image-id" not in good.unit("bx-loopd")["restartTriggers"]


def test_the_tools_podman_is_started_by_its_socket_which_brokerd_alone_may_write(good: Evaluated) -> None:
    listening = good.config["systemd"]["sockets"]["boxmaker-tools"]
    assert listening["listenStreams"] == [str(DECLARED.socket("tool-runner"))]
    assert listening["socketConfig"]["SocketMode"] == "0660"
    assert listening["socketConfig"]["SocketUser"] == DECLARED.tools.user
    assert listening["socketConfig"]["SocketGroup"] == DECLARED.edge("tool-runner").group
    service = good.unit("boxmaker-tools")
    assert service["requires"] == ["boxmaker-tools.socket"]
    assert service["serviceConfig"]["User"] == DECLARED.tools.user
    assert service["environment"]["HOME"] == str(DECLARED.at(DECLARED.tools.storage))


def test_grants_that_the_configuration_brings_are_copies_that_brokerd_may_read() -> None:
    grant = NIX.parent / "deploy" / "example" / "grants" / "read-notes.toml"
    evaluated = evaluate({**GOOD, "grants": {"read-notes": str(grant)}})
    entry = evaluated.config["environment"]["etc"]["boxmaker/grants/read-notes.toml"]
    assert (entry["mode"], entry["group"]) == ("0640", "bx-brokerd")
    assert entry["source"].endswith("-read-notes.toml")


def test_a_disabled_module_says_nothing() -> None:
    evaluated = evaluate({"enable": False})
    assert (evaluated.refused, evaluated.config, evaluated.texts) == ((), {}, {})


def test_the_person_of_the_vm_test_is_the_one_of_its_chat_server() -> None:
    with Mattermost(control=True) as server:
        people, token = chat.populated(server)
    assert len({people.alice, people.bot, people.direct, token}) == 4
    assert f'alice = "{people.alice}";' in (NIX / "checks" / "vm.nix").read_text(encoding="utf-8")


@pytest.fixture
def with_a_secret(tmp_path: Path) -> Path:
    """The wiring with one more role that has a secret, as a later one will: one row, and nothing else."""
    for name in ("nix", "images"):
        shutil.copytree(NIX.parent / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    roles = tmp_path / "nix" / "roles.nix"
    row = 'courier = { uid = 649; network = "upstream"; secrets = [ "token" ]; memory_mb = 64; processes = 64; };'
    text = roles.read_text(encoding="utf-8")
    anchor = "    loopd = {\n      uid"
    assert text.count(anchor) == 1
    roles.write_text(text.replace(anchor, f"    {row}\n\n{anchor}"), encoding="utf-8")
    return tmp_path / "nix"


def test_a_new_role_is_one_row_and_its_secret_an_encrypted_credential(with_a_secret: Path) -> None:
    said = {**GOOD, "credentials": {"courier": {"token": "/etc/boxmaker/credentials/token.cred"}}}
    evaluated = evaluate(said, nix=with_a_secret)
    assert evaluated.refused == ()
    service = evaluated.unit("bx-courier")["serviceConfig"]
    assert service["LoadCredentialEncrypted"] == ["token:/etc/boxmaker/credentials/token.cred"]
    place = "/run/credentials/bx-courier.service"
    assert evaluated.container("bx-courier")["extraOptions"][-2:] == [
        f"--env=CREDENTIALS_DIRECTORY={place}",
        f"--mount=type=bind,src={place},dst={place},ro=true,noexec,nosuid,nodev",
    ]
    assert "LoadCredentialEncrypted" not in evaluated.unit("bx-loopd")["serviceConfig"]


def test_a_secret_that_nobody_brought_is_asked_for(with_a_secret: Path) -> None:
    refused = evaluate(GOOD, nix=with_a_secret).refused
    assert [message for message in refused if "credentials.courier.token is missing" in message]


def test_without_a_role_that_has_secrets_there_is_no_option_for_them() -> None:
    ended = run(HERE / "evaluate.nix", said='{"enable": true, "credentials": {}}')
    assert ended.returncode != 0
    assert "there is no option credentials" in ended.stderr
