"""P3: a file is swapped for a link, and a directory for another, as fast as it goes: nothing escapes, ever."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bxcore.tools import EditFile, ListDirectory, ReadFile, SearchFiles, WriteFile
from tests.unit.toolkit import orders
from tests.unit.toolkit.test_beneath import NoOpenat2
from toolkit import beneath, editfile, listdirectory, readfile, searchfiles, writefile
from toolkit.beneath import NotAsDecided
from toolkit.order import ToolError

ROUNDS = 1_000
SECRET = "SECRET text that no tool may show or change\n"


@pytest.fixture(params=["openat2", "without"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without":
        monkeypatch.setattr(beneath, "_libc", NoOpenat2(errno.ENOSYS))
    return str(request.param)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text(SECRET)
    made = tmp_path / "room"
    (made / "sub").mkdir(parents=True)
    (made / "sub" / "file").write_text("granted\n")
    (made / "file").write_text("granted\n")
    return made


@contextmanager
def swapping(*swaps: Callable[[], None]) -> Iterator[None]:
    """Do the swaps over and over in another thread as long as the block runs."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for one in swaps:
                one()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def to_link(name: Path, target: str) -> Callable[[], None]:
    beside = name.with_name(f"{name.name}.link")

    def swap() -> None:
        beside.symlink_to(target)
        beside.rename(name)

    return swap


def to_file(name: Path, text: str) -> Callable[[], None]:
    beside = name.with_name(f"{name.name}.file")

    def swap() -> None:
        beside.write_text(text)
        beside.rename(name)

    return swap


def to_linked_directory(name: Path, target: str) -> Callable[[], None]:
    """Put a link in the place of a directory, then the directory back."""
    aside = name.with_name(f"{name.name}.aside")

    def swap() -> None:
        name.rename(aside)
        name.symlink_to(target)
        name.unlink()
        aside.rename(name)

    return swap


def tried(call: Callable[[], str]) -> list[str]:
    """Call so many times, and return what was said each time, refusals included."""
    said = []
    for _ in range(ROUNDS):
        try:
            said.append(call())
        except (ToolError, OSError, NotAsDecided) as error:
            said.append(f"refused: {type(error).__name__}")
    return said


def test_p3_reading_a_file_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = ReadFile(path=f"{room}/file")
    swaps = to_link(room / "file", "../outside/file"), to_file(room / "file", "granted\n")
    with swapping(*swaps):
        said = tried(lambda: readfile.run(asked, place))
    assert not any("SECRET" in text for text in said)
    assert sum("granted" in text for text in said) > 0
    assert sum("refused" in text for text in said) > 0


def test_p3_reading_below_a_directory_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = ReadFile(path=f"{room}/sub/file")
    with swapping(to_linked_directory(room / "sub", "../outside")):
        said = tried(lambda: readfile.run(asked, place))
    assert not any("SECRET" in text for text in said)
    assert sum("refused" in text for text in said) > 0


def test_p3_reading_a_mounted_file_that_is_swapped(way: str, room: Path) -> None:
    place = orders.place(room / "file")
    asked = ReadFile(path=f"{room}/file")
    with swapping(to_link(room / "file", "../outside/file"), to_file(room / "file", "another\n")):
        said = tried(lambda: readfile.run(asked, place))
    assert not any("SECRET" in text or "another" in text for text in said)


def test_p3_writing_a_file_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = WriteFile(path=f"{room}/file", content="written\n")
    with swapping(to_link(room / "file", "../outside/file"), to_file(room / "file", "granted\n")):
        said = tried(lambda: writefile.run(asked, place))
    assert (room.parent / "outside" / "file").read_text() == SECRET
    assert sorted(path.name for path in (room.parent / "outside").iterdir()) == ["file"]
    assert not [path for path in room.iterdir() if path.name.endswith(".new")]
    assert sum("refused" in text for text in said) > 0


def test_p3_writing_below_a_directory_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = WriteFile(path=f"{room}/sub/file", content="written\n")
    with swapping(to_linked_directory(room / "sub", "../outside")):
        tried(lambda: writefile.run(asked, place))
    assert (room.parent / "outside" / "file").read_text() == SECRET
    assert sorted(path.name for path in (room.parent / "outside").iterdir()) == ["file"]


def test_p3_editing_a_file_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = EditFile(path=f"{room}/file", old_text="text", new_text="CHANGED")
    with swapping(to_link(room / "file", "../outside/file"), to_file(room / "file", "granted text\n")):
        said = tried(lambda: editfile.run(asked, place))
    assert (room.parent / "outside" / "file").read_text() == SECRET
    assert all("replaced on line 1" in text or "refused" in text for text in said)
    assert sum("refused" in text for text in said) > 0


@pytest.mark.parametrize("tool", ["search", "list"])
def test_p3_walking_while_a_directory_is_swapped_for_a_link(way: str, room: Path, tool: str) -> None:
    place = orders.place(room)
    search = SearchFiles(path=str(room), query="text")
    names = ListDirectory(path=f"{room}/sub")
    (room / "sub" / "inner").mkdir()
    (room.parent / "outside" / "SECRET name").touch()

    def walk() -> str:
        return searchfiles.run(search, place) if tool == "search" else listdirectory.run(names, place)

    with swapping(to_linked_directory(room / "sub", "../outside")):
        said = tried(walk)
    assert not any("SECRET" in text for text in said)


def test_the_swapper_does_swap(room: Path) -> None:
    """The races prove something: a plain open in their place is caught in the act."""
    stolen = 0
    with swapping(to_link(room / "file", "../outside/file"), to_file(room / "file", "granted\n")):
        for _ in range(ROUNDS):
            fd = os.open(room / "file", os.O_RDONLY)
            stolen += os.read(fd, 100) == SECRET.encode()
            os.close(fd)
    assert stolen > 0
