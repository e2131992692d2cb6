"""What `make appliance` writes and whom it takes for whom, without a container."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from bxcore import config, wiring
from bxcore.settings.brokerd import BrokerdSettings
from bxcore.settings.gatewayd import GatewaydSettings
from bxcore.settings.inferproxy import InferproxySettings
from bxcore.settings.loopd import LoopdSettings
from bxcore.wiring import Wiring
from deploy.appliance import appliance, roleconfigs, roleplan, users
from deploy.appliance.roleplan import Settings
from deploy.local import plan, tooluser
from deploy.local.configs import Served
from deploy.local.home import ROLES, Home
from deploy.local.mattermost import Wish
from deploy.local.refusal import Refusal

ROOT = Path(__file__).resolve().parents[3]
HOME, ETC = Path("/place/home"), Path("/place/etc")


@pytest.fixture
def wired() -> Wiring:
    return wiring.load(ROLES).moved(home=HOME, etc=ETC)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "role.toml"
    path.write_text(text)
    return path


def test_brokerd_guards_all_of_boxmakers_own(tmp_path: Path, wired: Wiring) -> None:
    text = roleconfigs.brokerd(wired, egress_network="host")
    found = config.load(written(tmp_path, text), BrokerdSettings)
    assert found.protect == (HOME, ETC)
    assert (found.grants, found.audit, found.state) == (ETC / "grants", HOME / "audit", HOME / "broker")
    assert found.listen.broker == wired.socket("broker")
    assert found.listen.admin == wired.socket("admin")
    assert found.podman.socket == wired.socket("tool-runner")


def test_loopd_and_inferproxy_meet_on_their_edge(tmp_path: Path, wired: Wiring) -> None:
    served = Served(model="m", n_ctx=8_192, slots=2)
    loopd = config.load(written(tmp_path, roleconfigs.loopd(wired, served, small_model=True)), LoopdSettings)
    proxy = config.load(written(tmp_path, roleconfigs.inferproxy(wired, "unix:/m/m.sock")), InferproxySettings)
    assert loopd.infer.socket == proxy.listen == wired.socket("infer")
    assert loopd.broker.socket == wired.socket("broker")
    assert loopd.state == HOME


def test_gatewayd_meets_loopd_and_brokerd_and_gets_its_token_as_a_credential(tmp_path: Path, wired: Wiring) -> None:
    wanted = Wish(url="https://chat.example.org", users=("a" * 26,), channels=(), token=Path("/t"), ca_file=Path("/c"))
    text = roleconfigs.gatewayd(wired, wanted)
    found = config.load(written(tmp_path, text), GatewaydSettings)
    assert found.secrets == {}
    assert "/t" not in text
    assert found.mattermost.ca_file == ETC / "gatewayd" / "ca.pem"
    assert (found.listen.gateway, found.listen.owner) == (wired.socket("gateway"), wired.socket("gateway-owner"))
    served = Served(model="m", n_ctx=8_192, slots=2)
    loopd = roleconfigs.loopd(wired, served, small_model=True, gateway=True)
    assert config.load(written(tmp_path, loopd), LoopdSettings).listen.gateway == found.loop.socket
    brokerd = roleconfigs.brokerd(wired, egress_network="host", gateway=True)
    assert config.load(written(tmp_path, brokerd), BrokerdSettings).gateway.socket == found.listen.gateway
    mounted = " ".join(roleplan.mounts(wired, "gatewayd", Settings(upstream="unix:/m/m.sock", network="host")))
    for path in (found.mattermost.ca_file.parent, found.loop.socket.parent, found.state, found.listen.owner.parent):
        assert f"dst={path}," in mounted


def test_what_a_role_reads_by_its_settings_its_container_shows(wired: Wiring) -> None:
    settings = Settings(upstream="unix:/m/m.sock", network="host")
    shown = " ".join(roleplan.mounts(wired, "inferproxy", settings))
    assert "src=/m,dst=/m,ro=true" in shown
    assert "--network=none" in roleplan.options(wired, "inferproxy", settings)


@pytest.mark.parametrize(
    "directory",
    [
        "/", "/etc", "/usr", "/usr/bin", "/usr/lib/x", "/bin", "/proc", "/proc/1", "/sys/x", "/dev", "/dev/shm",
        "/run", "/tmp", "/etc/ssl/x", "/lib64", "relative", "/srv/../etc",
        "/place", "/place/home", "/place/home/run/infer", "/place/etc", "/place/etc/grants",
        "/var/tmp", "/var", "/home", "/home/somebody", "/root", "/run/user", "/run/user/1000", "/run/systemd",
    ],
)  # fmt: skip
def test_a_socket_among_other_things_is_refused(wired: Wiring, directory: str) -> None:
    said = roleplan.unfit_socket_directory(Path(directory), wired)
    assert said is not None
    assert directory in said


@pytest.mark.parametrize(
    "directory", ["/run/llama", "/srv/llama", "/home/somebody/llama", "/var/lib/llama", "/place/model"]
)
def test_a_socket_in_a_directory_of_its_own_may_be_shown(wired: Wiring, directory: str) -> None:
    assert roleplan.unfit_socket_directory(Path(directory), wired) is None


def test_a_granted_folder_inside_another_is_mounted_with_that_one(wired: Wiring) -> None:
    granted = tuple(map(Path, ("/srv/a/inner", "/srv/a", "/srv/ab")))
    settings = Settings(upstream="http://127.0.0.1:8080", network="pasta", granted=granted)
    mounted = [words for words in roleplan.mounts(wired, "brokerd", settings) if "src=/srv" in words]
    assert [words.split(",")[1] for words in mounted] == ["src=/srv/a", "src=/srv/ab"]


def test_a_folder_that_is_granted_twice_is_mounted_once(wired: Wiring) -> None:
    granted = tuple(map(Path, ("/srv/a", "/srv/b", "/srv/a")))
    settings = Settings(upstream="http://127.0.0.1:8080", network="pasta", granted=granted)
    mounted = [words for words in roleplan.mounts(wired, "brokerd", settings) if "src=/srv" in words]
    assert [words.split(",")[1] for words in mounted] == ["src=/srv/a", "src=/srv/b"]


def test_another_command_runs_in_the_same_container(wired: Wiring) -> None:
    settings = Settings(upstream="unix:/m/m.sock", network="host")
    usual = roleplan.run(wired, "loopd", settings, container="c", image="i")
    other = roleplan.run(wired, "loopd", settings, container="c", image="i", instead=("probe", "-x"))
    words = len(roleplan.command(wired, "loopd"))
    assert other == (*usual[:-words], "probe", "-x")


def test_everybody_is_the_caller_where_that_is_not_root(wired: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    monkeypatch.setattr(tooluser, "need_ids", lambda _: None)
    found = users.find(wired)
    assert {user.uid for user in found.users.values()} == {1}
    assert not found.own
    assert found.warning is not None
    assert found.users["bx-loopd"].name in found.warning


def test_a_missing_user_is_told_with_the_command(wired: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(name: str) -> None:
        raise KeyError(f"getpwnam(): name not found: {name!r}")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", nobody)
    with pytest.raises(Refusal, match=r"setup\.sh appliance"):
        users.find(wired)


def test_the_set_up_makes_the_users_and_groups_of_the_wiring(wired: Wiring) -> None:
    """The script has no JSON parser; the file's form is ours."""
    functions = "source <(sed '$d' deploy/local/setup.sh)"
    said = subprocess.run(
        ["bash", "-c", f"{functions}; cd {ROOT}; appliance_users; echo --; edge_groups"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    made, _, groups = said.stdout.partition("--\n")
    assert dict(line.split() for line in made.splitlines()) == {name: str(uid) for name, uid in wired.users.items()}
    assert set(groups.split()) >= {edge.group for edge in wired.edges}
    assert set(groups.split()) | set(wired.users) == set(users.group_names(wired))


def test_coming_back_names_the_same_command() -> None:
    options = appliance._options(["--say=hi", "--session=s", "--", "--verbose"])
    assert options.chat == ("--say=hi", "--session=s", "--verbose")
    assert options.come_back == "make appliance SESSION={session}"
    other = appliance._options(["--home", "/other"])
    assert other.come_back == "make appliance ARGS='--home /other' SESSION={session}"
    assert options.small_model


def test_two_models_are_one_too_many(tmp_path: Path) -> None:
    assert appliance.main(["--upstream", "http://box:1", "--model", str(tmp_path)]) == 2


def test_the_model_servers_socket_is_made_for_its_group() -> None:
    options = appliance._options([])
    part = appliance._model_server(options, Path("/place/model/model.sock"))
    assert part.umask == 0o007
    assert "/place/model/model.sock" in part.argv
    assert plan.model_server(Home(Path("/h")), None).umask == -1
    assert not part.network
