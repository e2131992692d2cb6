"""Podman's settings follow from the machine, and its environment from nothing of the caller's."""

import tomllib
from pathlib import Path

import pytest

from deploy.local import podmanconf
from deploy.local.podmanconf import Machine
from deploy.local.refusal import Refusal

OLD = Machine(runtime="runc", unified=False, bus=None)
SYSTEMD = Machine(runtime="crun", unified=True, bus=Path("/run/user/7/bus"))


def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, unified: bool, programs: tuple[str, ...]) -> Machine:
    for name in programs:
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(podmanconf, "_PROGRAMS", str(tmp_path))
    monkeypatch.setattr(podmanconf, "_UNIFIED", tmp_path if unified else tmp_path / "none")
    return podmanconf.look(54_321)


@pytest.mark.parametrize(
    ("unified", "programs", "runtime"),
    [
        (False, ("crun", "runc"), "runc"),
        (True, ("crun", "runc"), "crun"),
        (True, ("runc",), "runc"),
        (False, ("crun",), "crun"),
    ],
)
def test_the_runtime_follows_the_cgroups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, unified: bool, programs: tuple[str, ...], runtime: str
) -> None:
    assert machine(monkeypatch, tmp_path, unified=unified, programs=programs).runtime == runtime


def test_without_a_runtime_the_command_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"setup\.sh podman"):
        machine(monkeypatch, tmp_path, unified=True, programs=())


def test_where_there_is_no_systemd_of_the_users_podman_makes_cgroups_itself() -> None:
    assert tomllib.loads(podmanconf.containers(OLD))["engine"]["cgroup_manager"] == "cgroupfs"
    assert "cgroup_manager" not in tomllib.loads(podmanconf.containers(SYSTEMD))["engine"]


def test_two_services_of_one_user_share_no_locks() -> None:
    assert tomllib.loads(podmanconf.containers(OLD))["engine"]["lock_type"] == "file"


@pytest.mark.parametrize("driver", podmanconf.DRIVERS)
def test_each_driver_has_a_store_of_its_own(driver: str) -> None:
    storage = tomllib.loads(podmanconf.storage(driver, Path('/a "b"')))["storage"]
    assert storage["driver"] == driver
    assert storage["graphroot"] == storage["rootless_storage_path"] == f'/a "b"/{driver}'


def test_the_environment_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@proxy.example.org")
    monkeypatch.setenv("DOCKER_HOST", "unix:///else")
    places = {"home": Path("/h"), "runtime": Path("/r"), "settings": Path("/s")}
    assert set(podmanconf.environment(OLD, **places)) == {
        "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "HOME", "LANG", "PATH", "TMPDIR", "XDG_RUNTIME_DIR",
    }  # fmt: skip
    assert podmanconf.environment(SYSTEMD, **places)["DBUS_SESSION_BUS_ADDRESS"] == "unix:path=/run/user/7/bus"
