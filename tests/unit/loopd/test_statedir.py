"""One loopd on a state directory, and one that it can write."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore.errors import StateError
from bxcore.files import DiskFiles, StateInUse, StateUnwritable
from loopd import statedir
from tests.fakes.faulty_files import Fault, FaultyFiles

DISK = DiskFiles()


def test_a_directory_is_taken_once_and_again_after_it_was_given_back(tmp_path: Path) -> None:
    first = statedir.take(tmp_path, DISK)
    with pytest.raises(StateInUse, match="another loopd keeps its sessions here; stop it") as refused:
        statedir.take(tmp_path, DISK)
    assert str(tmp_path) in refused.value.detail
    first.close()
    statedir.take(tmp_path, DISK).close()


def test_it_leaves_nothing_but_an_empty_lock(tmp_path: Path) -> None:
    statedir.take(tmp_path, DISK).close()
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [(".loopd.lock", 0)]


def link(lock: Path) -> None:
    lock.symlink_to(lock.with_name("elsewhere"))


STRANGERS: dict[str, Callable[[Path], None]] = {"a directory": os.mkdir, "a link": link, "a pipe": os.mkfifo}


@pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS.keys())
def test_what_is_no_file_in_the_place_of_the_lock_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / ".loopd.lock")
    with pytest.raises(StateUnwritable):
        statedir.take(tmp_path, DISK)


PLACES: dict[str, Callable[[Path], None]] = {"is not there": lambda path: None, "is a file": Path.touch}


@pytest.mark.parametrize("make", PLACES.values(), ids=PLACES.keys())
def test_a_place_that_cannot_be_taken_is_refused_with_what_to_do(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    place = tmp_path / "state"
    make(place)
    with pytest.raises(StateUnwritable, match="must be a directory that loopd's user may write") as refused:
        statedir.take(place, DISK)
    assert refused.value.detail.startswith(f"{place}: no session can be kept here (state/.loopd.lock: ")


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.ENOSPC], ids=errno.errorcode.get)
def test_the_systems_reason_is_told(tmp_path: Path, error: int) -> None:
    with pytest.raises(StateError) as refused:
        statedir.take(tmp_path, FaultyFiles(Fault(call="open", error=error)))
    assert os.strerror(error) in refused.value.detail
