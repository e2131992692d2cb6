"""P3: a file is swapped for a link, and a directory for another, as fast as it goes: nothing escapes, ever."""

import errno
import subprocess
import sys
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
    (made / "sub" / "file").write_text("granted text\n")
    (made / "file").write_text("granted text\n")
    return made


# Alternates as fast as it goes, in a process of its own: a thread would wait for the lock of ours most of the time.
SWAPPER = """
import os, sys
what, name, target, text = sys.argv[1:]
beside, aside = name + ".beside", name + ".aside"
while True:
    if what == "file":
        os.symlink(target, beside)
        os.rename(beside, name)
        with open(beside, "w") as file:
            file.write(text)
        os.rename(beside, name)
    else:
        os.rename(name, aside)
        os.symlink(target, name)
        os.unlink(name)
        os.rename(aside, name)
"""


@contextmanager
def swapping(what: str, name: Path, target: str, text: str = "granted\n") -> Iterator[None]:
    """Swap a file, or a directory, for a link to `target` and back, over and over as long as the block runs."""
    swapper = subprocess.Popen([sys.executable, "-I", "-c", SWAPPER, what, str(name), target, text])
    try:
        yield
    finally:
        swapper.kill()
        swapper.wait()


def tried(call: Callable[[], str], *words: str) -> list[str]:
    """Call a thousand times, and on until each of the words was said. Return what was said, refusals included."""
    said: list[str] = []
    missing = set(words)
    while len(said) < ROUNDS or missing:
        try:
            said.append(call())
        except (ToolError, OSError, NotAsDecided) as error:
            said.append(f"refused: {type(error).__name__}")
        missing -= {word for word in missing if word in said[-1]}
    return said


def test_p3_reading_a_file_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = ReadFile(path=f"{room}/file")
    with swapping("file", room / "file", "../outside/file"):
        said = tried(lambda: readfile.run(asked, place), "granted", "refused")
    assert not any("SECRET" in text for text in said)


def test_p3_reading_below_a_directory_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = ReadFile(path=f"{room}/sub/file")
    with swapping("directory", room / "sub", "../outside"):
        said = tried(lambda: readfile.run(asked, place), "granted", "refused")
    assert not any("SECRET" in text for text in said)


def test_p3_reading_a_mounted_file_that_is_swapped(way: str, room: Path) -> None:
    place = orders.place(room / "file")
    asked = ReadFile(path=f"{room}/file")
    with swapping("file", room / "file", "../outside/file", "another\n"):
        said = tried(lambda: readfile.run(asked, place), "refused")
    assert not any("SECRET" in text or "another" in text for text in said)


def test_p3_writing_a_file_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = WriteFile(path=f"{room}/file", content="written\n")
    with swapping("file", room / "file", "../outside/file"):
        tried(lambda: writefile.run(asked, place), "written", "refused")
    assert (room.parent / "outside" / "file").read_text() == SECRET
    assert sorted(path.name for path in (room.parent / "outside").iterdir()) == ["file"]
    assert not [path for path in room.iterdir() if path.name.endswith(".new")]


def test_p3_writing_below_a_directory_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = WriteFile(path=f"{room}/sub/file", content="written\n")
    with swapping("directory", room / "sub", "../outside"):
        tried(lambda: writefile.run(asked, place), "written", "refused")
    assert (room.parent / "outside" / "file").read_text() == SECRET
    assert sorted(path.name for path in (room.parent / "outside").iterdir()) == ["file"]


def test_p3_editing_a_file_that_is_swapped_for_a_link(way: str, room: Path) -> None:
    place = orders.place(room)
    asked = EditFile(path=f"{room}/file", old_text="text", new_text="CHANGED")
    with swapping("file", room / "file", "../outside/file", "granted text\n"):
        said = tried(lambda: editfile.run(asked, place), "replaced", "refused")
    assert (room.parent / "outside" / "file").read_text() == SECRET
    assert all("replaced on line 1" in text or "refused" in text for text in said)


@pytest.mark.parametrize("tool", ["search", "list"])
def test_p3_walking_while_a_directory_is_swapped_for_a_link(way: str, room: Path, tool: str) -> None:
    place = orders.place(room)
    search = SearchFiles(path=str(room), query="text")
    names = ListDirectory(path=f"{room}/sub")
    (room / "sub" / "inner").mkdir()
    (room.parent / "outside" / "SECRET name").touch()

    def walk() -> str:
        return searchfiles.run(search, place) if tool == "search" else listdirectory.run(names, place)

    with swapping("directory", room / "sub", "../outside"):
        said = tried(walk, "found in 2" if tool == "search" else "inner")
    assert not any("SECRET" in text for text in said)


def test_the_swapper_does_swap(room: Path) -> None:
    """The races prove something: a plain open in their place is caught in the act."""
    with swapping("file", room / "file", "../outside/file"):
        tried((room / "file").read_text, "SECRET", "granted")
    with swapping("directory", room / "sub", "../outside"):
        tried((room / "sub" / "file").read_text, "SECRET", "granted")
