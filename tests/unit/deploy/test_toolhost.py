"""How the tools' place is settled, by what Podman answers. The real one is in tests/container/test_toolhost.py."""

import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from deploy.local import podman, toolhost, toolplace, tooluser
from deploy.local.refusal import Refusal
from deploy.local.toolplace import Place
from deploy.local.tooluser import ToolUser
from tests.fakes.scripted_podman import ScriptedPodman

MYSELF = ToolUser(name="me", uid=os.geteuid(), gid=os.getegid(), own=False)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(path=tmp_path / "tools", user=MYSELF)
    made.prepare()
    return made


def test_the_slow_storage_driver_is_said_to_be_slow() -> None:
    assert any("vfs" in note for note in toolhost._notes("vfs", MYSELF))
    assert not any("vfs" in note for note in toolhost._notes("overlay", MYSELF))


def test_the_tool_users_commands_drop_everything_of_roots(place: Place) -> None:
    stranger = ToolUser(name="x", uid=54_321, gid=54_322, own=True)
    tools = ScriptedPodman(Place(path=place.path, user=stranger), lambda _: (0, "", ""))
    assert tools.argv("ps") == [
        "setpriv", "--pdeathsig=KILL", "--reuid=54321", "--regid=54322", "--clear-groups", "--", "podman", "ps",
    ]  # fmt: skip
    own = ScriptedPodman(place, lambda _: (0, "", ""))
    assert own.argv("ps") == ["setpriv", "--pdeathsig=KILL", "--", "podman", "ps"]


@pytest.mark.parametrize(("mode", "may"), [(0o666, True), (0o660, False), (0o644, False), (0o600, False)])
def test_a_device_is_judged_for_everybody(tmp_path: Path, mode: int, *, may: bool) -> None:
    device = tmp_path / "tun"
    device.touch()
    device.chmod(mode)
    stranger = ToolUser(name="x", uid=54_321, gid=54_322, own=True)
    assert toolhost._may_open(device, stranger) is may
    assert not toolhost._may_open(tmp_path / "none", stranger)


def test_a_failure_says_podmans_last_line() -> None:
    assert podman.last_words("level=warning\nError: it is so\n\n") == "Error: it is so"
    assert podman.last_words("") == "it says nothing"


def test_nobody_listening_is_no_answer(tmp_path: Path) -> None:
    assert not podman.answers(tmp_path / "none.sock")


def test_only_this_sockets_service_is_a_leftover(tmp_path: Path) -> None:
    def process(*words: str) -> Path:
        directory = tmp_path / words[-1].replace("/", "-")
        directory.mkdir()
        (directory / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
        return directory

    ours = process("podman", "system", "service", "--time=0", "unix:///p/api.sock")
    others = process("podman", "system", "service", "--time=0", "unix:///q/api.sock")
    editor = process("vi", "unix:///p/api.sock.txt")
    found = [podman._is_service(each, "unix:///p/api.sock") for each in (ours, others, editor, tmp_path)]
    assert found == [True, False, False, False]


@pytest.fixture
def pause(place: Place) -> Path:
    """Where Podman notes the number of the process that keeps its namespaces."""
    made = place.runtime / "libpod" / "tmp" / "pause.pid"
    made.parent.mkdir(parents=True)
    return made


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_the_pause_process_is_ended_and_its_file_removed(
    place: Place, pause: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    pause.write_text(str(sleeper.pid))
    podman.end_pause_process(place)
    assert sleeper.wait(60) == -signal.SIGKILL
    assert not pause.exists()


def test_somebody_elses_process_is_not_ended(place: Place, pause: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    pause.write_text(str(sleeper.pid))
    stranger = ToolUser(name="x", uid=os.geteuid() + 1, gid=54_322, own=True)
    podman.end_pause_process(Place(path=place.path, user=stranger))
    assert sleeper.poll() is None
    assert not pause.exists()


ODD: dict[str, Callable[[Path], object]] = {
    "P8 a pipe": os.mkfifo,
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "no number": lambda path: path.write_text("one"),
    "a number too long": lambda path: path.write_text("9" * 5000),
    "a process that is gone": lambda path: path.write_text("4194305"),  # above the most that Linux gives
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD.keys())
def test_nothing_in_the_pause_files_place_is_waited_for(
    place: Place, pause: Path, make: Callable[[Path], object]
) -> None:
    """P8: the directory is the tool user's, and the launcher is root."""
    make(pause)
    podman.end_pause_process(place)
    assert not os.path.lexists(pause)


def test_a_folder_in_the_pause_files_place_stops_nothing(place: Place, pause: Path) -> None:
    pause.mkdir()
    podman.end_pause_process(place)
    assert pause.is_dir()


@pytest.mark.parametrize("linked", ["libpod", "libpod/tmp", "libpod/tmp/pause.pid"])
def test_no_link_leads_to_another_process_or_file(
    place: Place, tmp_path: Path, sleeper: "subprocess.Popen[bytes]", linked: str
) -> None:
    """P3: what a link leads to is neither believed nor removed."""
    there = tmp_path / "there" / "libpod" / "tmp" / "pause.pid"
    there.parent.mkdir(parents=True)
    there.write_text(str(sleeper.pid))
    (place.runtime / linked).parent.mkdir(parents=True, exist_ok=True)
    (place.runtime / linked).symlink_to(tmp_path / "there" / linked)
    podman.end_pause_process(place)
    assert sleeper.poll() is None
    assert there.exists()


def test_a_place_in_use_is_refused_and_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Place(path=tmp_path / "tools", user=MYSELF)
    chosen.prepare()
    monkeypatch.setattr(tooluser, "find", lambda: MYSELF)
    monkeypatch.setattr(toolplace, "choose", lambda *_: chosen)
    held = cast(BinaryIO, chosen.lock())
    with pytest.raises(Refusal, match="another launcher"):
        toolhost.start(tmp_path)
    held.close()


def test_a_start_that_fails_lets_the_next_one_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Place(path=tmp_path / "tools", user=MYSELF)

    def fail(*_: object) -> None:
        raise Refusal("no")

    monkeypatch.setattr(tooluser, "find", lambda: MYSELF)
    monkeypatch.setattr(toolplace, "choose", lambda *_: chosen)
    monkeypatch.setattr(toolhost, "_start", fail)
    with pytest.raises(Refusal, match="no"):
        toolhost.start(tmp_path)
    lock = chosen.lock()
    assert lock is not None
    lock.close()
