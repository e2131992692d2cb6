"""Nothing outside a mount is opened, by openat2 or, where there is none, component by component."""

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.toolkit import orders
from toolkit import beneath
from toolkit.beneath import Root
from toolkit.order import Misuse


class NoOpenat2:
    """A C library on a kernel, or behind a filter, without openat2."""

    def __init__(self, fault: int) -> None:
        self.fault, self.asked = fault, 0

    def syscall(self, *_: Any) -> int:
        self.asked += 1
        ctypes.set_errno(self.fault)
        return -1


@pytest.fixture(params=["openat2", "ENOSYS", "EPERM"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with openat2 and with both ways of not having it."""
    if request.param != "openat2":
        monkeypatch.setattr(beneath, "_libc", NoOpenat2(getattr(errno, request.param)))
    return str(request.param)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A mounted directory with a secret beside it, and every kind of link to that in it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("stolen")
    made = tmp_path / "room"
    (made / "sub" / "deep").mkdir(parents=True)
    (made / "sub" / "file").write_text("granted")
    links: dict[str, str | Path] = {
        "absolute": tmp_path / "secret" / "file",
        "relative": "../secret/file",
        "dangling": "../nowhere",
        "loop": "loop",
        "inside": "sub/file",
        "folder": "../secret",
        "inner": "sub",
        "root": "/",
        "magic": "/proc/self/root",
        "sub/deep/up": "../../../secret/file",
    }
    for name, target in links.items():
        (made / name).symlink_to(target)
    return made


def opened(room: Path, inside: str, flags: int = os.O_RDONLY) -> bytes:
    root = beneath.open_root(orders.mount(room))
    try:
        fd = beneath.open_path([root], f"{room}/{inside}" if inside else str(room), flags)
    finally:
        os.close(root.fd)
    try:
        return b"" if flags & os.O_DIRECTORY else os.read(fd, 100)
    finally:
        os.close(fd)


def test_a_file_below_is_opened(way: str, room: Path) -> None:
    assert opened(room, "sub/file") == b"granted"


def test_the_root_itself_is_opened(way: str, room: Path) -> None:
    assert opened(room, "", os.O_RDONLY | os.O_DIRECTORY) == b""
    assert opened(room, "sub/deep", os.O_RDONLY | os.O_DIRECTORY) == b""


LINKS = ["absolute", "relative", "dangling", "loop", "inside", "folder", "root", "sub/deep/up"]
THROUGH = ["folder/file", "inner/file", "root/etc/passwd", "magic/etc/passwd", "loop/file"]


@pytest.mark.parametrize("name", [*LINKS, *THROUGH])
def test_p2_no_link_is_followed_wherever_it_leads(way: str, room: Path, name: str) -> None:
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the number is what is looked at
        opened(room, name)
    assert refused.value.errno in {errno.ELOOP, errno.ENOTDIR}


def test_what_is_created_lies_below(way: str, room: Path) -> None:
    root = beneath.open_root(orders.mount(room))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    os.close(beneath.open_path([root], f"{room}/sub/new", flags, mode=0o600))
    assert (room / "sub" / "new").is_file()
    with pytest.raises(FileExistsError):
        beneath.open_path([root], f"{room}/dangling", flags, mode=0o600)
    assert not (room.parent / "nowhere").exists()
    os.close(root.fd)


def test_a_pipe_holds_nobody(way: str, room: Path) -> None:
    os.mkfifo(room / "pipe")
    assert opened(room, "pipe") == b""


def test_a_root_that_is_a_file_is_opened_only_as_itself(way: str, room: Path) -> None:
    file = room / "sub" / "file"
    root = beneath.open_root(orders.mount(file))
    os.close(beneath.open_path([root], str(file), os.O_RDONLY))
    with pytest.raises(NotADirectoryError):
        beneath.open_path([root], f"{file}/x", os.O_RDONLY)
    file.unlink()
    file.write_text("another")
    with pytest.raises(beneath.NotAsDecided):
        beneath.open_path([root], str(file), os.O_RDONLY)
    os.close(root.fd)


def test_p1_a_neighbour_with_the_same_beginning_is_outside(room: Path) -> None:
    root = Root(path=str(room), fd=-1, directory=True)
    for path in (f"{room}-evil/file", f"{room}x", str(room.parent), "/"):
        with pytest.raises(Misuse):
            beneath.root_of([root], path)


def test_the_innermost_root_counts() -> None:
    outer, inner = Root(path="/a", fd=-1, directory=True), Root(path="/a/b", fd=-1, directory=True)
    assert beneath.root_of([outer, inner], "/a/b/c") is inner
    assert beneath.root_of([inner, outer], "/a/bc") is outer
    assert beneath.root_of([Root(path="/", fd=-1, directory=True)], "/x").path == "/"


def test_an_open_that_is_told_to_try_again_does_not_try_for_ever(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = NoOpenat2(errno.EAGAIN)
    monkeypatch.setattr(beneath, "_libc", busy)
    with pytest.raises(BlockingIOError):
        opened(room, "sub/file")
    assert busy.asked == 64


def test_no_descriptor_is_left_open(way: str, room: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    for name in ["sub/file", "sub/deep/up", "folder/file", "nothing/there", "sub/deep/nothing"]:
        try:
            opened(room, name)
        except OSError:
            pass
    assert descriptors() == before
