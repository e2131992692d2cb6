"""brokerd believes its own files only where nobody else can have written them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd import ownfile
from bxcore.files import StateMissing, StateUnreadable


def ordinary(path: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0o600)


def link(path: Path) -> None:
    ordinary(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def long(path: Path) -> None:
    ordinary(path)
    path.write_bytes(b"x" * 5)


def open_to_all(path: Path) -> None:
    ordinary(path)
    path.chmod(0o602)


def open_to_the_group(path: Path) -> None:
    ordinary(path)
    path.chmod(0o620)


STRANGE: dict[str, Callable[[Path], None]] = {
    "a link": link,
    "a directory": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "longer than may be": long,
    "others may write": open_to_all,
    "the group may write": open_to_the_group,
}


def test_an_ordinary_file_is_read(tmp_path: Path) -> None:
    ordinary(tmp_path / "f")
    assert ownfile.read(tmp_path / "f", most=1) == b"x"


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StateMissing):
        ownfile.read(tmp_path / "f", most=4)


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE.keys())
def test_a_strange_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "f")
    with pytest.raises(StateUnreadable) as refused:
        ownfile.read(tmp_path / "f", most=4)
    assert not isinstance(refused.value, StateMissing)
    assert "/f: " in refused.value.detail


@pytest.mark.parametrize(("mode", "user", "why"), [(0o100600, 7, "another user"), (0o100666, 8, "others may write")])
def test_anothers_file_is_strange(mode: int, user: int, why: str) -> None:
    status = os.stat_result((mode, 1, 1, 1, user, 8, 0, 0, 0, 0))
    assert why in str(ownfile.strange(status, user=8))


def test_ones_own_file_is_not_strange() -> None:
    assert ownfile.strange(os.stat_result((0o100644, 1, 1, 1, 8, 8, 0, 0, 0, 0)), user=8) is None


def test_a_directory_of_ours_is_let_through(tmp_path: Path) -> None:
    ownfile.check_directory(tmp_path)


def open_directory(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def linked_directory(path: Path) -> None:
    path.with_name("real").mkdir()
    path.symlink_to(path.with_name("real"))


DIRECTORIES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,
    "a file": ordinary,
    "open to all": open_directory,
    "a link": linked_directory,
}


@pytest.mark.parametrize("make", DIRECTORIES.values(), ids=DIRECTORIES.keys())
def test_a_strange_directory_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "d")
    with pytest.raises(StateUnreadable):
        ownfile.check_directory(tmp_path / "d")
