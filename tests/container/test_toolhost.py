"""The service of the tool user: what it is reached by, what becomes of it, and that nothing is left.

The tests that kill things use a service of their own. It has the image of the session's archive.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import podman, podmanconf, toolhost, toolplace, tooluser
from deploy.local.refusal import Refusal
from deploy.local.toolhost import ToolHost
from deploy.local.toolplace import Place
from tests.container.conftest import STATES

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def host(tool_host: ToolHost) -> Iterator[ToolHost]:
    """Start a service that these tests may kill, where the session's could be started."""
    with toolhost.start(STATES / f"{tool_host.place.path.name[-1]}-kept") as started:
        yield started


@pytest.fixture
def state(host: ToolHost) -> Path:
    """Name a home whose service is not running."""
    return STATES / f"{host.place.path.name[-1]}-ended"


def of_the_tool_user(host: ToolHost) -> list[str]:
    """Return the command lines of living processes that belong to this place."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
        except OSError:
            continue
        if str(host.place.path) in words:
            found.append(words)
    return found


def wait_until(condition: object) -> None:
    assert callable(condition)
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def sleeper(host: ToolHost) -> str:
    return host.podman("run", "--detach", "--network=none", host.image_id, "sleep", "1000")


def test_the_service_belongs_to_the_tool_user(host: ToolHost) -> None:
    owner = Path(f"/proc/{host.service_pid}").stat().st_uid
    assert owner == host.user.uid == host.api_socket.stat().st_uid
    if os.geteuid() == 0:
        assert pwd.getpwuid(owner).pw_name == "boxmaker-tools"


def test_whoever_runs_brokerd_reaches_it(host: ToolHost) -> None:
    assert podman.answers(host.api_socket)
    assert len(host.image_id) == 64


def test_it_holds_one_image_which_is_the_named_one(host: ToolHost) -> None:
    assert host.podman("images", "--quiet", "--no-trunc") == f"sha256:{host.image_id}"


def test_it_inherits_nothing_of_ours(host: ToolHost) -> None:
    environment = Path(f"/proc/{host.service_pid}/environ").read_bytes().split(b"\0")
    names = {entry.partition(b"=")[0].decode() for entry in environment if entry}
    assert names <= {
        "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "DBUS_SESSION_BUS_ADDRESS", "HOME", "LANG", "PATH", "TMPDIR",
        "XDG_RUNTIME_DIR",
    }  # fmt: skip


def test_a_second_service_of_a_home_is_refused(state: Path) -> None:
    with toolhost.start(state) as host:
        sleeper(host)
        with pytest.raises(toolhost.InUse, match="another launcher"):
            toolhost.start(state)
        assert podman.answers(host.api_socket)
        assert any("conmon" in words for words in of_the_tool_user(host))
    # When the first is closed nothing is left of it.
    wait_until(lambda: of_the_tool_user(host) == [])
    assert not host.api_socket.exists()


def test_a_killed_service_is_started_again_with_its_containers(host: ToolHost) -> None:
    container = sleeper(host)
    os.kill(host.service_pid, signal.SIGKILL)
    wait_until(lambda: not host.alive)
    assert host.tend()
    assert not host.tend()
    assert podman.answers(host.api_socket)
    assert host.podman("ps", "--quiet", "--no-trunc") == container


def test_what_a_killed_launcher_left_is_swept_by_the_next(state: Path) -> None:
    program = f"""
import pathlib, signal, sys
from deploy.local import toolhost
host = toolhost.start(pathlib.Path({str(state)!r}))
host.podman("run", "--detach", "--network=none", host.image_id, "sleep", "1000")
print(host.service_pid, flush=True)
signal.pause()
"""
    search = os.pathsep.join([str(STATES.parents[1]), str(STATES.parents[1] / "python")])
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": search}, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        service = int(launcher.stdout.readline())
        launcher.kill()
    wait_until(lambda: not Path(f"/proc/{service}").exists())  # it died with its launcher
    with toolhost.start(state) as host:
        assert host.podman("ps", "--all", "--quiet") == ""
        assert not [words for words in of_the_tool_user(host) if "conmon" in words]


@pytest.fixture
def place(state: Path) -> Place:
    """Make the directory of a home whose service is not running."""
    chosen = toolplace.choose(state, tooluser.find())
    chosen.prepare()
    return chosen


def test_a_stale_socket_and_a_damaged_store_are_no_obstacles(host: ToolHost, state: Path, place: Place) -> None:
    """Both are what a machine that went down leaves."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(os.fspath(place.api_socket))
    database = place.storage / host.conditions.driver / "libpod" / "bolt_state.db"
    for directory in reversed(database.relative_to(place.storage).parents):
        (place.storage / directory).mkdir(exist_ok=True)
        place.give(place.storage / directory)
    database.write_bytes(b"no database")
    place.give(database)
    with toolhost.start(state) as started:
        assert podman.answers(started.api_socket)
        assert started.conditions.driver == host.conditions.driver
        assert started.podman("image", "inspect", "--format={{.Id}}", started.image_id) == host.image_id
        assert list(place.storage.glob("*.damaged-*")) == []


def test_a_store_of_another_driver_is_no_obstacle(host: ToolHost, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """libpod remembers the driver that a store began with, and insists on it."""
    monkeypatch.setattr(podmanconf, "DRIVERS", ("vfs",))
    with toolhost.start(state) as slow:
        assert slow.conditions.driver == "vfs"
        assert any("vfs" in note for note in slow.conditions.notes)
        assert slow.podman("run", "--rm", "--network=none", slow.image_id, "echo", "vfs too") == "vfs too"
    monkeypatch.undo()
    with toolhost.start(state) as again:
        assert again.conditions.driver == host.conditions.driver


def test_the_place_of_a_home_that_is_gone_is_removed(tmp_path: Path, state: Path) -> None:
    home = tmp_path / ("long" * 10)
    with toolhost.start(home) as host:
        assert host.place.path.parent == toolplace.ELSEWHERE
        shutil.rmtree(home)
        (host.shared_dir / "letter").write_text("to keep")
        # Nothing is taken away from what still runs.
        with toolhost.start(state):
            assert podman.answers(host.api_socket)
    assert host.image_id_file.exists()
    with toolhost.start(state):
        assert list(host.place.path.rglob("*")) == [host.shared_dir, host.shared_dir / "letter"]
    shutil.rmtree(host.place.path)


def test_podman_that_does_not_work_says_why(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podmanconf, "containers", lambda _: "[engine]\nruntime = 7\n")
    with pytest.raises(Refusal, match="podman does not work for"):
        toolhost.start(state)


def test_a_tool_sees_the_folder_that_was_given(tool_host: ToolHost, open_dir: Path) -> None:
    inside = open_dir / "folder"
    inside.mkdir()
    (inside / "file").write_text("seen\n")
    mount = f"--mount=type=bind,src={inside},dst={inside},ro=true"
    told = tool_host.podman("run", "--rm", "--network=none", mount, tool_host.image_id, "cat", str(inside / "file"))
    assert told == "seen"


def test_a_tool_can_write_where_the_folder_was_given(tool_host: ToolHost, open_dir: Path) -> None:
    flags = ("--userns=keep-id:uid=1000,gid=1000",) if "uid=" in tool_host.podman("run", "--help") else ("--user=0",)
    mount = f"--mount=type=bind,src={open_dir},dst={open_dir}"
    command = ("sh", "-c", f"echo by the tool >{open_dir}/new")
    tool_host.podman("run", "--rm", "--network=none", *flags, mount, tool_host.image_id, *command)
    assert (open_dir / "new").read_text() == "by the tool\n"
    assert (open_dir / "new").stat().st_uid == tool_host.user.uid
