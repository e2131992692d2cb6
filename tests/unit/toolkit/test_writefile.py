"""write_file: the new text whole or the old one whole, its mode kept, and what was replaced named by its hash."""

import errno
import hashlib
import os
import stat
import subprocess
from pathlib import Path

import pytest

from bxcore.tools import WriteFile
from tests.unit.toolkit import orders
from toolkit import writefile
from toolkit.order import ToolError

NEW = "the new text\n"
NEW_HASH = hashlib.sha256(NEW.encode()).hexdigest()


def write(path: Path, content: str = NEW, *, entry: str = orders.ENTRY) -> orders.Ended:
    return orders.run("write_file", {"path": str(path), "content": content}, path.parent, entry=entry)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_new_file_says_that_it_is_new(tmp_path: Path) -> None:
    ended = write(tmp_path / "file")
    assert (ended.code, ended.lines) == (0, [f"written: 13 bytes, sha256 {NEW_HASH}", "before: no file"])
    assert (tmp_path / "file").read_text() == NEW
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_replaced_file_is_named_by_size_and_hash(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old\0\xff")
    ended = write(tmp_path / "file")
    assert ended.lines[1] == f"before: 5 bytes, sha256 {hashlib.sha256(b'old' + bytes([0, 255])).hexdigest()}"
    assert (tmp_path / "file").read_text() == NEW
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_an_empty_text_makes_an_empty_file(tmp_path: Path) -> None:
    assert write(tmp_path / "file", "").code == 0
    assert (tmp_path / "file").read_bytes() == b""


def test_text_is_written_byte_for_byte(tmp_path: Path) -> None:
    text = "\ufeffé\r\n\u202e\U0001f600\x1b[31m\ttail"
    write(tmp_path / "file", text)
    assert (tmp_path / "file").read_bytes() == text.encode()


@pytest.mark.parametrize("before", [0o600, 0o640, 0o755, 0o664])
def test_the_mode_is_kept(tmp_path: Path, before: int) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(before)
    assert write(tmp_path / "file").code == 0
    assert mode(tmp_path / "file") == before


def test_a_new_file_has_644_less_the_umask(tmp_path: Path) -> None:
    assert write(tmp_path / "plain", entry=f"import os; os.umask(0o022); {orders.ENTRY}").code == 0
    assert write(tmp_path / "private", entry=f"import os; os.umask(0o077); {orders.ENTRY}").code == 0
    assert (mode(tmp_path / "plain"), mode(tmp_path / "private")) == (0o644, 0o600)


def test_no_bit_that_lends_somebodys_rights_is_carried_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o6755)
    write(tmp_path / "file")
    assert mode(tmp_path / "file") == 0o755


def test_while_it_is_written_nobody_else_may_read_what_was_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o600)
    seen: list[int] = []
    real = os.write

    def watching(fd: int, data: bytes | memoryview) -> int:
        seen.append(stat.S_IMODE(os.fstat(fd).st_mode))
        return real(fd, data)

    monkeypatch.setattr(os, "write", watching)
    writefile.run(WriteFile(path=f"{tmp_path}/file", content=NEW), orders.place(tmp_path))
    assert seen == [0o600]


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root gives files away; that the rest goes on without is tested below"
)
def test_the_owner_is_kept_where_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    os.chown(tmp_path / "file", 1234, 2345)
    write(tmp_path / "file")
    found = (tmp_path / "file").stat()
    assert (found.st_uid, found.st_gid) == (1234, 2345)


def test_an_owner_that_may_not_be_kept_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    writefile.run(WriteFile(path=f"{tmp_path}/file", content=NEW), orders.place(tmp_path))
    assert ((tmp_path / "file").read_text(), mode(tmp_path / "file")) == (NEW, 0o640)


def test_an_access_list_is_carried_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for the two calls, since not every file system has access lists."""
    given: list[bytes] = []
    monkeypatch.setattr(os, "getxattr", lambda _fd, _name: b"a list")
    monkeypatch.setattr(os, "setxattr", lambda _fd, _name, value: given.append(value))
    (tmp_path / "file").write_text("old")
    writefile.run(WriteFile(path=f"{tmp_path}/file", content=NEW), orders.place(tmp_path))
    assert given == [b"a list"]


# -- what is refused ----------------------------------------------------------------------------


def test_p10_a_file_whose_directory_is_absent_is_refused_and_no_directory_is_made(tmp_path: Path) -> None:
    """Which absent paths may be written at all is policy's to say (brokerd); here nothing is made on the way."""
    ended = orders.run("write_file", {"path": f"{tmp_path}/.git/hooks/x", "content": NEW}, tmp_path)
    assert (ended.code, ended.text) == (1, "error: no such file or directory")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["../secret", "nowhere", "link", "here"])
def test_p2_a_link_is_refused_and_stays(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").write_text("secret")
    room = tmp_path / "room"
    room.mkdir()
    (room / "here").write_text("here")
    (room / "link").symlink_to(target)
    ended = write(room / "link")
    assert ended.code == 1
    assert "links are not followed" in ended.text
    assert (room / "link").is_symlink()
    assert ((tmp_path / "secret").read_text(), (room / "here").read_text()) == ("secret", "here")
    assert sorted(path.name for path in room.iterdir()) == ["here", "link"]


@pytest.mark.parametrize("kind", ["a directory", "a pipe"])
def test_p8_what_is_no_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    (tmp_path / "odd").mkdir() if kind == "a directory" else os.mkfifo(tmp_path / "odd")
    ended = write(tmp_path / "odd")
    assert (ended.code, ended.text) == (1, f"error: that is {kind}, not a file")
    assert len(list(tmp_path.iterdir())) == 1


def test_p8_a_hard_link_is_cut_and_the_other_name_keeps_its_text(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    room = tmp_path / "room"
    room.mkdir()
    os.link(tmp_path / "secret", room / "file")
    write(room / "file")
    assert ((tmp_path / "secret").read_text(), (room / "file").read_text()) == ("secret", NEW)


def test_a_file_that_changed_since_it_was_looked_at_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    real = os.fsync

    def somebody_writes(fd: int) -> None:
        real(fd)
        path.write_text("from somebody else")

    monkeypatch.setattr(os, "fsync", somebody_writes)
    with pytest.raises(ToolError, match="changed by someone else"):
        writefile.run(WriteFile(path=str(path), content=NEW), orders.place(tmp_path))
    assert path.read_text() == "from somebody else"
    assert list(tmp_path.iterdir()) == [path]


# -- the disk and the end of the world ------------------------------------------------------------

STEPS = ("open", "write", "fchmod", "fchown", "setxattr", "fsync", "close", "stat", "rename", "unlink")

# Runs the tool with the k-th of its steps on the disk replaced by what `{fault}` does.
BROKEN = """
import os, signal, errno
from toolkit import replace
count = 0
def stepped(name):
    real = getattr(os, name)
    def step(*given, **named):
        global count
        count += 1
        if count == {at}:
            {fault}
        return real(*given, **named)
    return step
put = replace.put
def counted(*given):
    for name in {steps}:
        setattr(os, name, stepped(name))
    put(*given)
replace.put = counted
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
FULL = "raise OSError(errno.ENOSPC, 'No space left on device')"


def broken(at: int, fault: str) -> str:
    steps = BROKEN.format(at=at, fault=fault, steps=STEPS)
    head, _, tail = orders.ENTRY.partition("; from ")
    return f"{head}\n{steps}\nfrom {tail}"


def outcomes(tmp_path: Path, fault: str, old: str | None) -> list[tuple[int, str | None]]:
    """Break one step after another, and return exit code and content of each time. The last finds none to break."""
    found = []
    for at in range(1, 16):
        room = tmp_path / str(at)
        room.mkdir()
        if old is not None:
            (room / "file").write_text(old)
        ended = write(room / "file", entry=broken(at, fault))
        found.append((ended.code, (room / "file").read_text() if (room / "file").exists() else None))
    assert found[-1] == (0, NEW)
    return found


@pytest.mark.parametrize("old", ["the old text", None], ids=["replaced", "new"])
def test_killed_at_any_step_the_old_or_the_new_file_is_there_whole(tmp_path: Path, old: str | None) -> None:
    found = outcomes(tmp_path, KILL, old)
    assert {code for code, _ in found} == {-9, 0}
    contents = [content for _, content in found]
    change = contents.index(NEW)
    assert contents == [old] * change + [NEW] * (len(contents) - change)
    assert change >= 6
    assert (-9, NEW) in found


@pytest.mark.parametrize("old", ["the old text", None], ids=["replaced", "new"])
def test_a_step_that_fails_leaves_the_old_or_the_new_file_and_nothing_beside_it(
    tmp_path: Path, old: str | None
) -> None:
    found = outcomes(tmp_path, FULL, old)
    assert {content for _, content in found} == {old, NEW}
    assert {code for code, content in found if content == old} == {1}
    for room in tmp_path.iterdir():
        assert [path.name for path in room.iterdir()] in ([], ["file"])


def test_s6_a_file_beyond_the_limit_of_sizes_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)); {orders.ENTRY}"
    ended = write(tmp_path / "file", "x" * 20_000, entry=limited)
    assert (ended.code, ended.text) == (1, "error: file too large")
    assert (tmp_path / "file").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_s6_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", room], capture_output=True, check=False
    ).returncode:
        pytest.skip("no mounts here; a disk that is full at each step is tested above")
    try:
        (room / "file").write_text("old")
        ended = write(room / "file", "x" * 200_000)
        assert (ended.code, ended.text) == (1, "error: no space left on device")
        assert ((room / "file").read_text(), len(list(room.iterdir()))) == ("old", 1)
    finally:
        subprocess.run(["umount", room], check=True)
