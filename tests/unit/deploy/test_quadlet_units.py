"""The checked-in units hold exactly what roleplan gives a role; what a machine adds is a drop-in."""

import json
import re
from pathlib import Path

import pytest

from bxcore import wiring as wiring_file
from deploy.appliance import roleplan
from deploy.quadlet import hostfiles, unitfile
from deploy.quadlet.installation import FILES
from tests.structure import sources

WIRING = wiring_file.load(sources.ROOT / "nix" / "roles.json")
SETTINGS = roleplan.Settings(
    upstream="http://model.example.com:8080",
    network="pasta",
    granted=(Path("/srv/notes"), Path("/srv/photos")),
    outbound="pasta",
)


class Lines(dict[str, list[str]]):
    """A section of a unit: keys may come again."""


def sections(text: str) -> dict[str, Lines]:
    found: dict[str, Lines] = {}
    for line in text.splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            here = found.setdefault(header[1], Lines())
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            here.setdefault(key, []).append(value)
    return found


def unit(role: str) -> dict[str, Lines]:
    name = f"etc/containers/systemd/users/{WIRING.roles[role].uid}/bx-{role}.container"
    return sections((FILES / name).read_text(encoding="utf-8"))


@pytest.fixture(params=WIRING.roles)
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def options(container: Lines) -> set[str]:
    """Return the options of `podman run` that the lines stand for, by a table of this test's own."""
    plain = {
        "AddCapability": "--cap-add={}", "DropCapability": "--cap-drop={}", "HostName": "--hostname={}",
        "Mask": "--security-opt=mask={}", "Mount": "--mount={}", "Network": "--network={}",
        "NoNewPrivileges": "--security-opt=no-new-privileges", "PidsLimit": "--pids-limit={}",
        "PodmanArgs": "{}", "Pull": "--pull={}", "ReadOnly": "--read-only", "ReadOnlyTmpfs": "--read-only-tmpfs={}",
        "SeccompProfile": "--security-opt=seccomp={}", "Ulimit": "--ulimit={}", "User": "--user={}",
    }  # fmt: skip
    return {plain[key].format(value) for key, values in container.items() if key in plain for value in values}


def test_a_role_is_given_what_the_plan_says_and_nothing_else(role: str) -> None:
    assert options(unit(role)["Container"]) == set(roleplan.options(WIRING, role, hostfiles.CLOSED))


def test_nothing_else_stands_in_a_unit_than_how_it_is_started(role: str) -> None:
    container = unit(role)["Container"]
    said = {key: values for key, values in container.items() if not options(Lines({key: values}))}
    assert said == {
        "Image": [f"localhost/boxmaker/{role}:not-installed"],
        "ContainerName": [f"bx-{role}"],
        "Exec": [" ".join(roleplan.command(WIRING, role))],
        "Notify": ["true"],
        "LogDriver": ["journald"],
        "StopTimeout": ["20"],
    }


def test_a_checked_in_unit_reaches_no_network(role: str) -> None:
    assert unit(role)["Container"]["Network"] == ["none"]


def test_a_role_starts_again_unless_the_owner_has_to_look(role: str) -> None:
    service = unit(role)["Service"]
    assert service["Restart"] == ["always"]
    assert service["RestartPreventExitStatus"] == ["74 78"]
    assert unit(role)["Unit"]["StartLimitIntervalSec"] == ["0"]
    assert unit(role)["Install"]["WantedBy"] == ["default.target"]


def waits(settings: roleplan.Settings) -> dict[str, Lines]:
    made = hostfiles.machine(WIRING, settings, owner="alice", tags=dict.fromkeys(WIRING.roles, ""))
    managers = {path: text for path, text in made.items() if path.startswith("/etc/systemd/system/")}
    return {path.split("/")[4]: sections(text)["Unit"] for path, text in managers.items()}


def test_only_what_has_a_network_waits_for_one() -> None:
    for role in WIRING.roles:
        assert unit(role)["Quadlet"] == {"DefaultDependencies": ["false"]}
    online = ["network-online.target"]
    wait = {"Wants": online, "After": online}
    assert waits(SETTINGS) == {"user@641.service.d": wait, "user@644.service.d": wait}
    on_a_socket = roleplan.Settings(upstream="unix:/srv/m/m.sock", network="pasta", outbound="pasta")
    assert waits(on_a_socket) == {"user@641.service.d": {}, "user@644.service.d": wait}


def test_the_socket_of_the_tools_podman_is_brokerds_alone() -> None:
    socket = sections((FILES / "etc/systemd/user/boxmaker-tools.socket").read_text(encoding="utf-8"))
    assert socket["Socket"] == {"ListenStream": [str(WIRING.socket("tool-runner"))], "SocketMode": ["0660"]}
    for kind in ("socket", "service"):
        text = (FILES / f"etc/systemd/user/boxmaker-tools.{kind}").read_text(encoding="utf-8")
        assert sections(text)["Unit"]["ConditionUser"] == ["boxmaker-tools"]


def drop_ins(settings: roleplan.Settings) -> dict[str, Lines]:
    tags = {name: f"tag-of-{name}" for name in WIRING.roles}
    made = hostfiles.machine(WIRING, settings, owner="alice", tags=tags)
    return {
        name: sections(made[f"/etc/containers/systemd/users/{role.uid}/bx-{name}.container.d/10-machine.conf"])[
            "Container"
        ]
        for name, role in WIRING.roles.items()
    }


def test_a_drop_in_adds_what_the_machines_settings_ask_for(role: str) -> None:
    added = drop_ins(SETTINGS)[role]
    fixed = options(unit(role)["Container"])
    wanted = set(roleplan.options(WIRING, role, SETTINGS))
    if added.get("Network"):
        assert added["Network"][0] == ""  # empties the list first
        fixed.remove("--network=none")
    assert (fixed | options(added)) - {"--network="} == wanted
    assert added["Image"] == [f"localhost/boxmaker/{role}:tag-of-{role}"]


def test_a_model_server_on_a_socket_needs_no_network() -> None:
    added = drop_ins(roleplan.Settings(upstream="unix:/srv/model/model.sock", network="pasta"))["inferproxy"]
    assert "Network" not in added
    assert added["Mount"] == ["type=bind,src=/srv/model,dst=/srv/model,ro=true,noexec,nosuid,nodev"]


def test_only_brokerd_sees_granted_folders() -> None:
    added = drop_ins(SETTINGS)
    assert {name for name, lines in added.items() if "Mount" in lines} == {"brokerd"}
    assert len(added["brokerd"]["Mount"]) == len(SETTINGS.granted)


def test_a_role_that_is_left_out_has_no_file_of_this_machine() -> None:
    tags = dict.fromkeys(WIRING.running(()), "")
    made = hostfiles.machine(WIRING, SETTINGS, owner="alice", tags=tags)
    assert not [path for path in made if "644" in path]


def test_a_secret_reaches_its_role_as_a_credential_of_its_users_systemd() -> None:
    sealed = "/etc/boxmaker/gatewayd/mattermost-token.cred"
    tags = dict.fromkeys(WIRING.roles, "")
    made = hostfiles.machine(WIRING, SETTINGS, owner="alice", tags=tags, credentials={"mattermost-token": sealed})
    texts = {path: text for path, text in made.items() if "mattermost-token" in text}
    (path,) = texts
    assert path == "/etc/containers/systemd/users/644/bx-gatewayd.container.d/10-machine.conf"
    unit_of_it = sections(texts[path])
    assert unit_of_it["Service"] == {"LoadCredentialEncrypted": [f"mattermost-token:{sealed}"]}
    place = Path("/run/user/644/credentials/bx-gatewayd.service")
    assert set(roleplan.secrets(WIRING, "gatewayd", place)) <= options(unit_of_it["Container"])


def test_only_a_role_with_secrets_is_shown_some() -> None:
    shown = {name for name in WIRING.roles if roleplan.secrets(WIRING, name, Path("/run/x"))}
    assert shown == {"gatewayd"}


def test_the_owner_enters_what_the_wiring_lets_a_person_enter() -> None:
    made = hostfiles.machine(WIRING, SETTINGS, owner="alice", tags=dict.fromkeys(WIRING.roles, ""))
    members = ["m alice bx-admin", "m alice bx-gateway-owner", "m alice bx-loop-owner"]
    assert made["/etc/sysusers.d/boxmaker-owner.conf"].splitlines()[1:] == members
    assert made["/etc/tmpfiles.d/boxmaker-owner.conf"].splitlines()[1:] == [
        "d /etc/boxmaker/grants 2750 alice bx-brokerd -"
    ]


@pytest.mark.parametrize("folder", ["/a b", "/a%h", "/a$HOME", '/a"', "/a'", "/a\\", "/a\nb", "/a,b", "/a\x7f"])
def test_what_a_unit_would_change_is_not_written(folder: str) -> None:
    settings = roleplan.Settings(upstream="", network="none", granted=(Path(folder),))
    with pytest.raises(unitfile.Unwritable):
        drop_ins(settings)


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--read-only", ("ReadOnly", "true")),
        ("--read-only-tmpfs=false", ("ReadOnlyTmpfs", "false")),
        ("--security-opt=no-new-privileges", ("NoNewPrivileges", "true")),
        ("--security-opt=mask=/a:/b", ("Mask", "/a:/b")),
        ("--cap-add=net_raw", ("AddCapability", "net_raw")),
        ("--something=new", ("PodmanArgs", "--something=new")),
    ],
)
def test_an_option_has_its_key_or_stays_an_option(option: str, line: tuple[str, str]) -> None:
    assert unitfile.line(option) == line


def test_a_new_role_is_one_row_of_data() -> None:
    value = json.loads((sources.ROOT / "nix" / "roles.json").read_text(encoding="utf-8"))
    value["roles"]["newd"] = {
        **value["roles"]["loopd"], "user": "bx-newd", "uid": 649, "capabilities": ["NET_BIND_SERVICE"],
        "image": "localhost/boxmaker/newd", "config": "etc/newd.toml", "storage": "home/containers/newd",
    }  # fmt: skip
    made = hostfiles.fixed(wiring_file.read(json.dumps(value).encode()))
    container = sections(made["/etc/containers/systemd/users/649/bx-newd.container"])["Container"]
    assert container["AddCapability"] == ["NET_BIND_SERVICE"]
    assert 'u bx-newd 649 "Boxmaker" /var/lib/boxmaker/containers/newd' in made["/etc/sysusers.d/boxmaker.conf"]
