"""One loopd on a state directory, and one that it can write."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore.errors import StateError
from bxcore.files import DiskFiles, StateInUse, StateUnwritable
from loopd import statedir
from loopd.sessionlog import SessionStore
from tests.fakes.clocks import HandClock
from tests.fakes.faulty_files import Fault, FaultyFiles

DISK = DiskFiles()


def test_a_directory_is_taken_once_and_again_after_it_was_given_back(tmp_path: Path) -> None:
    first = statedir.take(tmp_path, DISK)
    with pytest.raises(StateInUse, match="another loopd keeps its sessions here; stop it") as refused:
        statedir.take(tmp_path, DISK)
    assert str(tmp_path) in refused.value.detail
    first.close()
    statedir.take(tmp_path, DISK).close()


def test_it_leaves_nothing_but_an_empty_lock_among_the_sessions(tmp_path: Path) -> None:
    statedir.take(tmp_path, DISK).close()
    assert [path.name for path in tmp_path.iterdir()] == ["sessions"]
    [lock] = (tmp_path / "sessions").iterdir()
    assert (lock.name, lock.stat().st_size) == (".loopd.lock", 0)


def test_nothing_is_made_around_sessions_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    read_only = FaultyFiles(Fault(call="mkdir", error=errno.EROFS, lasting=True))
    statedir.take(tmp_path, read_only).close()
    assert "mkdir" not in read_only.calls


def test_the_lock_is_no_session(tmp_path: Path) -> None:
    statedir.take(tmp_path, DISK).close()
    assert SessionStore(tmp_path / "sessions", files=DISK, clock=HandClock()).ids() == []


def link(lock: Path) -> None:
    lock.symlink_to(lock.with_name("elsewhere"))


STRANGERS: dict[str, Callable[[Path], None]] = {"a directory": os.mkdir, "a link": link, "a pipe": os.mkfifo}


@pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS.keys())
def test_what_is_no_file_in_the_place_of_the_lock_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "sessions").mkdir()
    make(tmp_path / "sessions" / ".loopd.lock")
    with pytest.raises(StateUnwritable):
        statedir.take(tmp_path, DISK)


PLACES: dict[str, Callable[[Path], None]] = {"is not there": lambda path: None, "is a file": Path.touch}


@pytest.mark.parametrize("make", PLACES.values(), ids=PLACES.keys())
def test_a_place_that_cannot_be_taken_is_refused_with_what_to_do(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    place = tmp_path / "state"
    make(place)
    with pytest.raises(StateUnwritable, match="must be a directory of loopd's user, mode 0700") as refused:
        statedir.take(place, DISK)
    assert refused.value.detail.startswith(f"{place}: no session can be kept here (state/sessions: ")


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.ENOSPC], ids=errno.errorcode.get)
def test_the_systems_reason_is_told(tmp_path: Path, error: int) -> None:
    with pytest.raises(StateError) as refused:
        statedir.take(tmp_path, FaultyFiles(Fault(call="open", error=error)))
    assert os.strerror(error) in refused.value.detail
