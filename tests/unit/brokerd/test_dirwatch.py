"""The kernel's word about a directory: still means that nothing at all happened since the last `begin`."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerd import dirwatch
from brokerd.dirwatch import DirectoryWatch


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "grants"
    made.mkdir()
    (made / "a").write_text("one")
    return made


@pytest.fixture
def watch(directory: Path) -> Iterator[DirectoryWatch]:
    made = DirectoryWatch(directory)
    begin(made, directory)
    if not made.still():
        pytest.skip("this kernel, or what is left of its watches, gives no inotify: nothing is ever still here")
    yield made
    if made._close is not None:
        made._close()


def begin(watch: DirectoryWatch, directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        watch.begin(descriptor)
    finally:
        os.close(descriptor)


def test_nothing_is_still_before_it_began(directory: Path) -> None:
    assert not DirectoryWatch(directory).still()


def test_reading_changes_nothing(directory: Path, watch: DirectoryWatch) -> None:
    assert (directory / "a").read_text() == "one"
    assert [path.name for path in directory.iterdir()] == ["a"]
    assert (directory / "a").stat()
    assert watch.still()
    assert watch.still()


def _write_on(path: Path) -> None:
    with path.open("rb+", buffering=0) as file:
        file.write(b"t")


def _own(path: Path) -> None:
    os.chown(path, os.geteuid(), os.getegid())


def _set_back(path: Path) -> None:
    os.utime(path, ns=(0, 0))


def _replace(directory: Path) -> None:
    directory.rename(directory.parent / "away")
    directory.mkdir()


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda directory: _write_on(directory / "a"),
    "emptied": lambda directory: (directory / "a").write_text(""),
    "mode": lambda directory: (directory / "a").chmod(0o600),
    "owner": lambda directory: _own(directory / "a"),
    "times": lambda directory: _set_back(directory / "a"),
    "created": lambda directory: (directory / "b").touch(),
    "removed": lambda directory: (directory / "a").unlink(),
    "renamed": lambda directory: (directory / "a").rename(directory / "b"),
    "moved out": lambda directory: (directory / "a").rename(directory.parent / "b"),
    "linked": lambda directory: (directory / "b").hardlink_to(directory / "a"),
    "mode of the directory": lambda directory: directory.chmod(0o700),
    "directory renamed": lambda directory: directory.rename(directory.parent / "away"),
    "directory replaced": _replace,
    "link in its place": lambda directory: directory.symlink_to(directory.rename(directory.parent / "away")),
    "directory above renamed": lambda directory: directory.parent.rename(directory.parent.with_name("moved")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_any_change_ends_the_stillness(
    directory: Path, watch: DirectoryWatch, change: Callable[[Path], object]
) -> None:
    change(directory)
    assert not watch.still()
    assert not watch.still()  # also when asked again


def test_a_new_beginning_is_still_again(directory: Path, watch: DirectoryWatch) -> None:
    for number in range(3):
        (directory / "a").write_text(str(number))
        assert not watch.still()
        begin(watch, directory)
        assert watch.still()


def test_what_happened_before_the_beginning_does_not_count(directory: Path, watch: DirectoryWatch) -> None:
    for name in ("a", "b") * 10:
        (directory / name).write_text("x")
    begin(watch, directory)
    assert watch.still()


def test_more_events_than_the_kernel_keeps_end_the_stillness(directory: Path, watch: DirectoryWatch) -> None:
    with (directory / "a").open("ab", buffering=0) as one, (directory / "b").open("ab", buffering=0) as other:
        for _ in range(9_000):  # two events each; the kernel keeps 16,384
            one.write(b".")
            other.write(b".")
    assert not watch.still()
    begin(watch, directory)
    assert watch.still()


def test_another_directory_is_watched_from_its_beginning(directory: Path, watch: DirectoryWatch) -> None:
    directory.rename(directory.with_name("away"))
    directory.mkdir()
    begin(watch, directory)
    assert watch.still()
    (directory / "new").touch()
    assert not watch.still()


def test_a_new_directory_that_gets_the_number_of_the_old_one_is_watched(directory: Path, watch: DirectoryWatch) -> None:
    (directory / "a").unlink()
    number = directory.stat().st_ino
    for _ in range(50):  # most file systems hand a number out again at once; where not, any other new directory will do
        directory.rmdir()
        directory.mkdir()
        if directory.stat().st_ino == number:
            break
    begin(watch, directory)
    assert watch.still()
    (directory / "new").touch()
    assert not watch.still()


def test_without_a_queue_nothing_is_still(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirwatch, "_queue", lambda: -1)
    watch = DirectoryWatch(directory)
    begin(watch, directory)
    assert not watch.still()


def test_no_descriptor_is_left_behind(directory: Path, watch: DirectoryWatch) -> None:
    def open_now() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_now()
    for _ in range(5):
        one = DirectoryWatch(directory)
        begin(one, directory)
        directory.rename(directory.with_name("away"))
        directory.mkdir()
        begin(one, directory)
        directory.with_name("away").rename(directory.with_name(f"away-{id(one)}-{os.urandom(4).hex()}"))
        del one
    assert open_now() == before
