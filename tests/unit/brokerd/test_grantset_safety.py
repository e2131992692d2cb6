"""Rows G4 and P8 of the bad-input list: what somebody else could have written, or is no small file, gives no set."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokerd import grantset
from brokerd.grantset import GrantFiles
from tests.fakes.grantfiles import OTHER, Later, NeverStill, faults, ids, put

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away; the same is tried with `owners` below")


@pytest.fixture
def clock() -> Later:
    return Later()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "grants"
    made.mkdir(mode=0o755)
    return made


@pytest.fixture(params=[None, NeverStill()], ids=["told by the kernel", "told nothing"])
def files(directory: Path, clock: Later, request: pytest.FixtureRequest) -> GrantFiles:
    return GrantFiles(directory, clock=clock, watch=request.param)


def test_a_missing_directory_is_a_fault(tmp_path: Path, clock: Later) -> None:
    assert faults(GrantFiles(tmp_path / "none", clock=clock)) == [f"{tmp_path / 'none'}: there is no such directory"]


def test_a_file_in_the_directorys_place_is_a_fault(tmp_path: Path, clock: Later) -> None:
    path = put(tmp_path / "grants")
    assert faults(GrantFiles(path, clock=clock)) == [f"{path}: not a directory, or only a link to one"]


def test_a_link_in_the_directorys_place_is_a_fault(tmp_path: Path, directory: Path, clock: Later) -> None:
    link = tmp_path / "link"
    link.symlink_to(directory)
    assert faults(GrantFiles(link, clock=clock)) == [f"{link}: not a directory, or only a link to one"]


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777], ids=oct)
def test_a_directory_that_others_may_write_is_a_fault(directory: Path, files: GrantFiles, mode: int) -> None:
    put(directory / "a.toml")
    directory.chmod(mode)
    assert faults(files) == [f"{directory}: others than its owner may write it (mode {mode:04o})"]
    directory.chmod(0o500)
    assert ids(files) == ["a"]


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o620], ids=oct)
def test_g4_a_file_that_others_may_write_is_a_fault(directory: Path, files: GrantFiles, mode: int) -> None:
    put(directory / "a.toml")
    put(directory / "b.toml", mode=mode)
    assert faults(files) == [f"b.toml: others than its owner may write it (mode {mode:04o})"]


def test_g4_a_file_of_somebody_else_is_a_fault(directory: Path, clock: Later) -> None:
    put(directory / "a.toml")
    uid = os.geteuid()
    [fault] = faults(GrantFiles(directory, clock=clock, owners=frozenset({uid + 1})))
    assert fault == f"{directory}: belongs to uid {uid}; expected one of {uid + 1}"


@needs_root
def test_g4_a_file_that_was_given_away_is_a_fault(directory: Path, files: GrantFiles) -> None:
    os.chown(put(directory / "a.toml"), 4711, 4711)
    assert faults(files) == ["a.toml: belongs to uid 4711; expected one of 0"]


@needs_root
def test_g4_an_owner_that_was_named_may_write(directory: Path, clock: Later) -> None:
    os.chown(put(directory / "a.toml"), 4711, 4711)
    assert ids(GrantFiles(directory, clock=clock, owners=frozenset({0, 4711}))) == ["a"]


def mounted_read_only(monkeypatch: pytest.MonkeyPatch, *, which: Callable[[int], bool]) -> None:
    """Let those descriptors look as if their mount were read-only; tests/container has real ones."""
    real = os.fstatvfs

    def fstatvfs(descriptor: int) -> Any:
        found = real(descriptor)
        flag = os.ST_RDONLY if which(descriptor) else 0
        return os.statvfs_result((*found[:8], found.f_flag & ~os.ST_RDONLY | flag, *found[9:]))

    monkeypatch.setattr(os, "fstatvfs", fstatvfs)


def _is_directory(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


NAMELESS = "belongs to a user whom brokerd's container does not know; expected a mount that is read-only in there"


def as_in_a_container(directory: Path, clock: Later) -> GrantFiles:
    """What brokerd has there: the owner's files, and the owner without a name."""
    return GrantFiles(directory, clock=clock, owners=frozenset(), stranger=os.geteuid(), watch=NeverStill())


def test_what_belongs_to_somebody_without_a_name_is_believed_where_it_is_mounted_read_only(
    directory: Path, clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(directory / "a.toml")
    files = as_in_a_container(directory, clock)
    mounted_read_only(monkeypatch, which=lambda _: True)
    assert ids(files) == ["a"]
    mounted_read_only(monkeypatch, which=lambda _: False)
    assert faults(files) == [f"{directory}: {NAMELESS}"]


def test_a_file_that_is_mounted_writable_in_such_a_directory_is_a_fault(
    directory: Path, clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(directory / "a.toml")
    mounted_read_only(monkeypatch, which=_is_directory)
    assert faults(as_in_a_container(directory, clock)) == [f"a.toml: {NAMELESS}"]


@pytest.mark.parametrize("mode", [0o664, 0o646], ids=oct)
def test_g4_a_read_only_mount_makes_no_file_good_that_others_may_write(
    directory: Path, clock: Later, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    put(directory / "a.toml", mode=mode)
    mounted_read_only(monkeypatch, which=lambda _: True)
    assert faults(as_in_a_container(directory, clock)) == [
        f"a.toml: others than its owner may write it (mode {mode:04o})"
    ]


def test_g4_on_a_read_only_mount_a_user_with_a_name_still_has_to_be_the_owner(
    directory: Path, clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(directory / "a.toml")
    mounted_read_only(monkeypatch, which=lambda _: True)
    uid = os.geteuid()
    files = GrantFiles(directory, clock=clock, owners=frozenset({uid + 1}), stranger=uid + 2)
    assert faults(files) == [f"{directory}: belongs to uid {uid}; expected one of {uid + 1}"]


def test_g4_a_link_is_a_fault_even_to_a_good_file(directory: Path, files: GrantFiles, tmp_path: Path) -> None:
    put(tmp_path / "good.toml")
    (directory / "a.toml").symlink_to(tmp_path / "good.toml")
    (directory / "b.toml").symlink_to("nowhere")
    assert faults(files) == [f"{name}.toml: a symbolic link; expected the file itself" for name in "ab"]


def test_a_file_with_a_second_name_is_a_fault_unless_nobody_may_write_it(
    directory: Path, files: GrantFiles, tmp_path: Path, clock: Later
) -> None:
    path = put(tmp_path / "elsewhere")
    (directory / "a.toml").hardlink_to(path)
    [fault] = faults(files)
    assert fault.startswith("a.toml: has a second name somewhere")
    path.chmod(0o444)  # as in a package store that keeps equal files once
    clock.beyond_ms += 1_000  # the kernel does not tell what happens under another name
    assert ids(files) == ["a"]


def _stretch(path: Path, size: int) -> None:
    os.truncate(path, size)


STRANGE: dict[str, Callable[[Path], object]] = {
    "G4 directory": lambda path: path.mkdir(),
    "P8 pipe": lambda path: os.mkfifo(path, 0o644),
    "P8 sparse file of a terabyte": lambda path: _stretch(put(path, ""), 2**40),
}


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE.keys())
def test_what_is_no_small_regular_file_is_a_fault_at_once(
    directory: Path, files: GrantFiles, make: Callable[[Path], object]
) -> None:
    make(directory / "a.toml")
    [fault] = faults(files)
    assert fault in {"a.toml: not a regular file", "a.toml: longer than the 65536 bytes that are read"}


SWAPS: dict[str, tuple[Callable[[Path], object], str]] = {
    "P8 pipe": (lambda path: os.mkfifo(path, 0o644), "a.toml: not a regular file"),
    "P3 link": (lambda path: path.symlink_to("../wide.toml"), "a.toml: a symbolic link; expected the file itself"),
}


@pytest.mark.parametrize(("swap", "fault"), SWAPS.values(), ids=SWAPS.keys())
def test_what_takes_a_files_place_while_it_is_looked_at_is_neither_followed_nor_waited_for(
    directory: Path, clock: Later, tmp_path: Path, swap: Callable[[Path], object], fault: str
) -> None:
    path = put(directory / "a.toml")
    put(tmp_path / "wide.toml", OTHER)
    opened: list[object] = []

    def swapped(*args: Any, **more: Any) -> int:
        opened.append(args)
        if len(opened) == 1:
            path.unlink()
            swap(path)
        return os.open(*args, **more)

    assert faults(GrantFiles(directory, clock=clock, opener=swapped)) == [fault]
    assert len(opened) == 1


def test_g7_ten_thousand_files_are_read_and_one_more_is_too_many(
    directory: Path, files: GrantFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert grantset.MOST_FILES == 10_000
    monkeypatch.setattr(grantset, "MOST_FILES", 20)  # the rule; how long the real number takes is for the bench
    for number in range(20):
        put(directory / f"a{number}.toml")
    assert len(ids(files)) == 20
    put(directory / "one-more.toml", "no TOML = ")
    assert faults(files) == [f"{directory}: holds more than 20 grants"]


def test_a_file_that_may_not_be_read_is_a_fault_and_is_tried_again(directory: Path, clock: Later) -> None:
    put(directory / "a.toml")
    clock.beyond_ms = 3_600_000
    refuse = [True]

    def opener(*args: Any, **more: Any) -> int:
        if refuse[0]:
            raise PermissionError(13, "Permission denied")
        return os.open(*args, **more)

    files = GrantFiles(directory, clock=clock, opener=opener)
    assert faults(files) == ["a.toml: cannot be read: Permission denied"]
    refuse[0] = False
    clock.beyond_ms += 1_000
    assert ids(files) == ["a"]
