import errno
import os
import shutil
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bxcore import acl, listener
from bxcore.errors import ConfigError
from bxcore.listener import AlreadyRunning, Entrance, Listening, SocketPathTaken, UnsafeDirectory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir(mode=0o750)
    return directory / "loop.sock"


@pytest.fixture
def listening(path: Path) -> Iterator[Listening]:
    with closing(listener.open_socket(path)) as opened:
        yield opened


@pytest.fixture
def entrance(listening: Listening) -> Iterator[Entrance]:
    with closing(Entrance([listening])) as opened:
        yield opened


def dial(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


# -- taking the socket -------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o177])
def test_the_socket_has_its_mode_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with closing(listener.open_socket(path)):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            assert stat.S_ISSOCK(path.stat().st_mode)
    finally:
        os.umask(before)


def test_a_second_start_is_refused_and_the_first_goes_on(path: Path, listening: Listening) -> None:
    with pytest.raises(AlreadyRunning) as caught:
        listener.open_socket(path)
    assert caught.value.code == "already_running"
    dial(path).close()


def test_a_stale_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with closing(listener.open_socket(path)):
        dial(path).close()


def test_what_is_given_up_can_be_taken_again(path: Path) -> None:
    for _ in range(3):
        opened = listener.open_socket(path)
        opened.close()
        opened.close()
    assert not path.exists()


def test_a_refusing_listener_still_holds_its_lock(path: Path, listening: Listening) -> None:
    listening.refuse()
    with pytest.raises(FileNotFoundError):
        dial(path)
    with pytest.raises(AlreadyRunning):
        listener.open_socket(path)


def test_a_failed_start_keeps_no_lock(path: Path) -> None:
    path.write_text("not a socket")
    with pytest.raises(SocketPathTaken):
        listener.open_socket(path)
    path.unlink()
    listener.open_socket(path).close()


def test_a_file_in_the_sockets_place_is_left_alone(path: Path) -> None:
    path.write_text("the owner's")
    with pytest.raises(SocketPathTaken):
        listener.open_socket(path)
    assert path.read_text() == "the owner's"


def test_a_link_in_the_sockets_place_is_refused(path: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as elsewhere:
        elsewhere.bind(str(tmp_path / "elsewhere"))
        path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(SocketPathTaken):
            listener.open_socket(path)
    assert path.is_symlink()


def test_a_link_in_the_locks_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    (path.parent / ".loop.sock.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError):
        listener.open_socket(path)
    assert not (tmp_path / "victim").exists()


def test_a_path_that_no_client_could_dial_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="107 bytes"):
        listener.open_socket(path.parent / ("x" * 120))


# -- unsafe directories ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o752])
def test_a_directory_where_others_may_write_is_refused(path: Path, mode: int) -> None:
    path.parent.chmod(mode)
    with pytest.raises(UnsafeDirectory, match=f"mode is {mode:04o}"):
        listener.open_socket(path)
    assert list(path.parent.iterdir()) == []


def test_the_mode_of_the_design_is_accepted(path: Path) -> None:
    path.parent.chmod(0o2750)
    listener.open_socket(path).close()


# As deploy/appliance and NixOS set it: who calls may pass, and write the socket that is made there.
LIST = "u:2102:x,d:u::rwx,d:g::rw,d:u:2102:rw,d:m::rw,d:o::-"
with_setfacl = pytest.mark.skipif(shutil.which("setfacl") is None, reason="setfacl is not installed")


def setfacl(directory: Path, text: str) -> None:
    subprocess.run(["setfacl", "-m", text, str(directory)], check=True, timeout=20)


@with_setfacl
def test_a_client_of_another_user_is_let_in_by_a_list(path: Path) -> None:
    path.parent.chmod(0o2750)
    setfacl(path.parent, LIST)
    with closing(listener.open_socket(path)):
        listed = acl.of(path)
        assert listed is not None
        assert listed.named(acl.Tag.USER) == {2102: acl.READ | acl.WRITE}
        assert stat.S_IMODE(path.stat().st_mode) == listener.SOCKET_MODE
        assert not (acl.of(path.with_name(".loop.sock.lock")) or acl.of_mode(0)).others_may(acl.READ)


@with_setfacl
def test_the_mask_of_a_list_is_not_taken_for_a_right_of_others(path: Path) -> None:
    path.parent.chmod(0o2750)
    setfacl(path.parent, f"{LIST},m::rwx")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o2770
    listener.open_socket(path).close()


@with_setfacl
@pytest.mark.parametrize("text", ["u:2102:wx", "g:7:rwx", "g::rwx", "o::wx"])
def test_a_directory_where_a_list_lets_others_write_is_refused(path: Path, text: str) -> None:
    path.parent.chmod(0o2750)
    setfacl(path.parent, f"u:2102:x,{text}")
    with pytest.raises(UnsafeDirectory, match="others may write"):
        listener.open_socket(path)


def test_a_directory_that_is_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path.parent)
    with pytest.raises(UnsafeDirectory):
        listener.open_socket(tmp_path / "link" / "loop.sock")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750


def test_a_file_for_a_directory_is_refused(path: Path) -> None:
    (path.parent / "file").touch()
    with pytest.raises(UnsafeDirectory):
        listener.open_socket(path.parent / "file" / "loop.sock")


def test_a_missing_directory_is_refused_and_not_made(path: Path) -> None:
    with pytest.raises(UnsafeDirectory, match="create it"):
        listener.open_socket(path.parent / "missing" / "loop.sock")
    assert not (path.parent / "missing").exists()


@pytest.mark.parametrize("root", ["/loop.sock", "/../loop.sock"])
def test_the_root_directory_is_refused(root: str) -> None:
    with pytest.raises(UnsafeDirectory, match="directory of its own"):
        listener.open_socket(Path(root))


def test_somebody_elses_directory_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1 if path.exists() else 12345)
    with pytest.raises(UnsafeDirectory, match="must be uid 12345"):
        listener.open_socket(path)


# -- accepting ---------------------------------------------------------------------------------


def test_each_connection_comes_with_its_listener(path: Path, listening: Listening) -> None:
    other_path = path.with_name("other.sock")
    with (
        closing(listener.open_socket(other_path)) as other,
        closing(Entrance([listening, other])) as entrance,
        dial(other_path),
    ):
        found, connection = next(entrance.connections())
        connection.close()
    assert found is other


def test_stop_ends_a_wait_for_connections(entrance: Entrance) -> None:
    came: list[object] = []
    waiting = threading.Thread(target=lambda: came.extend(entrance.connections()))
    waiting.start()
    entrance.stop()
    waiting.join()
    assert came == []


def test_stop_before_the_wait_and_stop_again_are_harmless(entrance: Entrance) -> None:
    for _ in range(10_000):  # more than the wake socket holds
        entrance.stop()
    assert list(entrance.connections()) == []
    entrance.close()
    entrance.stop()


def test_stop_ends_a_pause(entrance: Entrance) -> None:
    pausing = threading.Thread(target=lambda: entrance.pause(3600))
    pausing.start()
    entrance.stop()
    pausing.join()


class ShortOfDescriptors(socket.socket):
    """A listener whose accept() fails with the given errors first."""

    failures: list[int]
    attempts = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.attempts += 1
        if self.failures:
            raise OSError(self.failures.pop(0), "made up")
        return super().accept()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_out_of_descriptors_it_pauses_for_each_attempt_and_goes_on(
    number: int, path: Path, listening: Listening, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    short = ShortOfDescriptors(fileno=listening.socket.detach())
    short.settimeout(0)
    short.failures = [number] * 3
    listening.socket = short
    pauses: list[float] = []
    with closing(Entrance([listening])) as entrance, dial(path):
        monkeypatch.setattr(entrance, "pause", pauses.append)
        _, connection = next(entrance.connections())
        connection.close()
    assert (short.attempts, pauses) == (4, [listener.EXHAUSTED_PAUSE_SECONDS] * 3)
    assert caplog.text.count("accept paused") == 1


def test_another_failure_of_accept_is_not_hidden(path: Path, listening: Listening) -> None:
    short = ShortOfDescriptors(fileno=listening.socket.detach())
    short.settimeout(0)
    short.failures = [errno.EINVAL]
    listening.socket = short
    with closing(Entrance([listening])) as entrance, dial(path), pytest.raises(OSError, match="made up"):
        next(entrance.connections())
