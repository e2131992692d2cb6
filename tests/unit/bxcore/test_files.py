"""Rows A5 and A6 of the bad-input list; each effect broken once (R37)."""

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore import files
from bxcore.files import AppendFile, DiskFiles, StateInUse, StateMissing, StateUnreadable, StateUnwritable
from tests.fakes.faulty_files import Fault, FaultyFiles

DISK = DiskFiles()


def append(path: Path, data: bytes, disk: DiskFiles = DISK) -> None:
    appender = disk.open_append(path)
    try:
        appender.append(data)
    finally:
        appender.close()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# -- what they do -----------------------------------------------------------------------------


def test_append_makes_the_file_and_adds_to_it(tmp_path: Path) -> None:
    append(tmp_path / "a", b"one")
    append(tmp_path / "a", b"two")
    assert DISK.read(tmp_path / "a") == b"onetwo"


def test_replace_gives_the_new_content_and_leaves_nothing_beside(tmp_path: Path) -> None:
    DISK.replace(tmp_path / "a", b"old content")
    DISK.replace(tmp_path / "a", b"new")
    assert DISK.read(tmp_path / "a") == b"new"
    assert names(tmp_path) == ["a"]


def test_make_dir_makes_a_directory_and_leaves_one_that_is_there(tmp_path: Path) -> None:
    DISK.make_dir(tmp_path / "d")
    append(tmp_path / "d" / "a", b"x")
    DISK.make_dir(tmp_path / "d")
    assert names(tmp_path / "d") == ["a"]


def test_a_file_of_no_bytes_can_be_written(tmp_path: Path) -> None:
    DISK.replace(tmp_path / "a", b"")
    append(tmp_path / "b", b"")
    assert [DISK.read(tmp_path / name) for name in "ab"] == [b"", b""]


def test_files_and_directories_belong_to_the_role_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        DISK.make_dir(tmp_path / "d")
        append(tmp_path / "a", b"x")
        DISK.replace(tmp_path / "b", b"x")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"a": 0o600, "b": 0o600, "d": 0o700}


def test_reading_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(StateMissing) as caught:
        DISK.read(tmp_path / "a")
    assert caught.value.code == "state_unreadable"


def test_reading_a_directory_is_an_error_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(StateUnreadable) as caught:
        DISK.read(tmp_path)
    assert not isinstance(caught.value, StateMissing)


# -- symbolic links ---------------------------------------------------------------------------


@pytest.fixture
def link(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_bytes(b"untouched")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    return tmp_path / "link"


def test_append_does_not_follow_a_link(link: Path) -> None:
    with pytest.raises(StateUnwritable):
        DISK.open_append(link)
    assert (link.parent / "outside").read_bytes() == b"untouched"


def test_append_does_not_make_the_target_of_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with pytest.raises(StateUnwritable):
        append(tmp_path / "link", b"x")
    assert names(tmp_path) == ["link"]


def test_replace_takes_the_place_of_a_link_and_leaves_its_target(link: Path) -> None:
    DISK.replace(link, b"new")
    assert not link.is_symlink()
    assert link.read_bytes() == b"new"
    assert (link.parent / "outside").read_bytes() == b"untouched"


def test_reading_does_not_follow_a_link(link: Path) -> None:
    with pytest.raises(StateUnreadable):
        DISK.read(link)


def test_a_link_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StateUnwritable):
        DISK.make_dir(tmp_path / "link")


def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"")
    with pytest.raises(StateUnwritable):
        DISK.make_dir(tmp_path / "d")


# -- what is no file ---------------------------------------------------------------------------


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


STRANGERS: dict[str, Callable[[Path], None]] = {"directory": Path.mkdir, "pipe": fifo, "socket": bound_socket}


@pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS.keys())
def test_what_is_no_file_is_neither_read_nor_appended_to_and_leaks_nothing(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "a")
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(StateUnreadable, match="not a regular file") as caught:
            files.open_read(tmp_path / "a")
        assert not isinstance(caught.value, StateMissing)
        with pytest.raises(StateUnwritable):
            DISK.open_append(tmp_path / "a")
    assert open_descriptors() <= before


def test_a_pipe_that_somebody_reads_is_not_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    reader = os.open(tmp_path / "a", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(StateUnwritable, match="not a regular file"):
            DISK.open_append(tmp_path / "a")
    finally:
        os.close(reader)


# -- the lock ---------------------------------------------------------------------------------


def test_a_file_is_open_for_appending_once(tmp_path: Path) -> None:
    first = DISK.open_append(tmp_path / "a")
    with pytest.raises(StateInUse) as caught:
        DISK.open_append(tmp_path / "a")
    assert caught.value.code == "state_in_use"
    first.append(b"still ours")
    first.close()
    second = DISK.open_append(tmp_path / "a")
    second.append(b" and now theirs")
    second.close()
    assert DISK.read(tmp_path / "a") == b"still ours and now theirs"


def test_another_process_finds_the_file_locked(tmp_path: Path) -> None:
    first = DISK.open_append(tmp_path / "a")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            DISK.open_append(tmp_path / "a")
            os.write(writing, b"opened")
        except StateInUse:
            os.write(writing, b"in use")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    assert os.read(reading, 100) == b"in use"
    os.close(reading)
    first.close()


# -- failures ---------------------------------------------------------------------------------


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


OPERATIONS: dict[str, Callable[[DiskFiles, Path], None]] = {
    "append": lambda disk, home: append(home / "a", b"more", disk),
    "append to a new file": lambda disk, home: append(home / "new", b"more", disk),
    "replace": lambda disk, home: disk.replace(home / "a", b"more"),
    "make_dir": lambda disk, home: disk.make_dir(home / "new"),
}


def calls_of(operation: str, home: Path) -> dict[str, int]:
    counting = FaultyFiles(None)
    OPERATIONS[operation](counting, home)
    return counting.calls


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT], ids=errno.errorcode.get)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_call_that_fails_is_reported_and_leaks_nothing(tmp_path: Path, operation: str, error: int) -> None:
    (tmp_path / "count").mkdir()
    (tmp_path / "count" / "a").write_bytes(b"old")
    for call, count in calls_of(operation, tmp_path / "count").items():
        for at in range(count):
            home = tmp_path / f"{call}-{at}"
            home.mkdir()
            (home / "a").write_bytes(b"old")
            before = open_descriptors()
            with pytest.raises(StateUnwritable) as caught:
                OPERATIONS[operation](FaultyFiles(Fault(call=call, at=at, error=error, after_bytes=2)), home)
            assert open_descriptors() <= before
            assert os.strerror(error) in caught.value.detail
            assert caught.value.code == "state_unwritable"


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_a_replace_that_fails_leaves_the_old_content_or_the_new(tmp_path: Path, call: str) -> None:
    for at in range(calls_of("replace", tmp_path).get(call, 0)):
        (tmp_path / "a").write_bytes(b"old")
        with pytest.raises(StateUnwritable):
            FaultyFiles(Fault(call=call, at=at, after_bytes=3)).replace(tmp_path / "a", b"new content")
        assert (tmp_path / "a").read_bytes() in {b"old", b"new content"}
        assert names(tmp_path) == ["a"]  # a full disk is not filled by attempts


def test_a_leftover_of_a_crash_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".a.0badcafe.new").write_bytes(b"half")
    DISK.replace(tmp_path / "a", b"whole")
    DISK.replace(tmp_path / "a", b"again")
    assert DISK.read(tmp_path / "a") == b"again"


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_an_appender_is_broken_for_ever_after_one_failure(tmp_path: Path, call: str) -> None:
    disk = FaultyFiles(Fault(call=call, at=2, error=errno.EIO, after_bytes=1))
    appender = disk.open_append(tmp_path / "a")
    appender.append(b"one\n")
    if call == "write":
        appender.append(b"two\n")
    with pytest.raises(StateUnwritable):
        appender.append(b"three\n")  # the third write, or the third fsync (one is the directory's)
    before = (tmp_path / "a").read_bytes()
    for _ in range(3):
        with pytest.raises(StateUnwritable, match="closed after a failed write"):
            appender.append(b"four\n")
    assert (tmp_path / "a").read_bytes() == before


def test_after_a_failure_the_file_can_be_opened_again(tmp_path: Path) -> None:
    appender = FaultyFiles(Fault(at=0)).open_append(tmp_path / "a")
    with pytest.raises(StateUnwritable):
        appender.append(b"one\n")
    again = DISK.open_append(tmp_path / "a")
    again.append(b"two\n")
    again.close()
    appender.close()
    assert DISK.read(tmp_path / "a") == b"two\n"


def test_a_closed_appender_takes_nothing_and_says_so(tmp_path: Path) -> None:
    appender = DISK.open_append(tmp_path / "a")
    appender.close()
    appender.close()
    with pytest.raises(StateUnwritable, match="closed"):
        appender.append(b"x")


class Sip:
    """An `os` whose write takes three bytes at a time: a short write is no failure."""

    def __init__(self) -> None:
        self.writes = 0

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        self.writes += 1
        return os.write(fd, data[:3])

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)


def test_a_short_write_is_carried_on(tmp_path: Path) -> None:
    system = Sip()
    disk = DiskFiles(system)  # type: ignore[arg-type]  # the other calls are those of os
    append(tmp_path / "a", b"0123456789", disk)
    disk.replace(tmp_path / "b", b"0123456789")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"0123456789"
    assert system.writes == 8


def test_a_disk_without_space_is_told_by_name_and_reason(tmp_path: Path) -> None:
    with pytest.raises(StateUnwritable) as caught:
        append(tmp_path / "0.jsonl", b"x", FaultyFiles(Fault(error=errno.ENOSPC)))
    assert caught.value.detail == f"{tmp_path.name}/0.jsonl: No space left on device"


class Order:
    """An `os` that writes down what is called, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        def call(*arguments: object) -> object:
            if name == "open":
                flags = arguments[1]
                assert isinstance(flags, int)
                self.calls.append("open directory" if flags & os.O_DIRECTORY else "open")
            elif name != "close":
                self.calls.append(name)
            return getattr(os, name)(*arguments)

        return call


def test_the_content_is_durable_before_its_name_and_the_name_before_the_return(tmp_path: Path) -> None:
    system = Order()
    DiskFiles(system).replace(tmp_path / "a", b"x")  # type: ignore[arg-type]  # it is os in effect
    assert system.calls == ["open", "write", "fsync", "rename", "open directory", "fsync"]


def test_a_new_file_is_durable_by_name_before_anything_is_in_it(tmp_path: Path) -> None:
    system = Order()
    appender = DiskFiles(system).open_append(tmp_path / "a")  # type: ignore[arg-type]  # it is os in effect
    appender.append(b"x")
    appender.append(b"y")
    appender.close()
    assert system.calls == ["open", "open directory", "fsync", "write", "fsync", "write", "fsync"]


def test_a_directory_is_durable_also_where_it_was_there(tmp_path: Path) -> None:
    for expected in (["mkdir", "open directory", "fsync"], ["open directory", "fsync"]):
        system = Order()
        DiskFiles(system).make_dir(tmp_path / "d")  # type: ignore[arg-type]  # it is os in effect
        assert system.calls == expected


def test_streaming_names_the_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StateMissing, match=r"gone\.jsonl: not there"):
        files.open_read(tmp_path / "gone.jsonl")


def test_an_append_file_is_an_appender(tmp_path: Path) -> None:
    appender: files.Appender = AppendFile(tmp_path / "a", os)
    appender.append(b"x")
    appender.close()
    assert DISK.read(tmp_path / "a") == b"x"


# -- a directory of one process's own -----------------------------------------------------------


def test_a5_a_directory_is_locked_by_its_own_descriptor(tmp_path: Path) -> None:
    held = files.lock_directory(tmp_path)
    for _ in range(2):
        with pytest.raises(StateInUse):
            files.lock_directory(tmp_path)
    assert names(tmp_path) == []  # no lock file that somebody could delete
    held.close()
    held.close()
    files.lock_directory(tmp_path).close()


def test_only_a_real_directory_can_be_locked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link", "missing"):
        with pytest.raises(StateUnreadable):
            files.lock_directory(tmp_path / name)
