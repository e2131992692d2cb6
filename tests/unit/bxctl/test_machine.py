"""The real machine, as far as a test may have one: its files, its sockets, its own users."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bxcore import acl
from bxctl import machine
from bxctl.machine import Group, Kind, Machine

HERE = Machine()
WAITS = "print(flush=True); input()"


def under_its_own_words(process: subprocess.Popen[bytes]) -> None:
    """Wait until a program that WAITS runs: for a moment after it is started it has no command line."""
    assert process.stdout is not None
    process.stdout.readline()


def test_what_lies_at_a_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch(mode=0o640)
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    kinds = {name: HERE.look(tmp_path / name) for name in ("", "file", "link", "pipe")}
    assert [seen.kind for seen in kinds.values() if seen] == [Kind.DIRECTORY, Kind.FILE, Kind.LINK, Kind.OTHER]
    assert HERE.look(tmp_path / "none") is None
    assert HERE.look(tmp_path / "file" / "none") is None
    file = kinds["file"]
    assert file is not None
    assert (file.uid, file.mode, file.listed) == (os.geteuid(), file.mode & 0o777, False)
    assert file.acl == acl.of_mode(file.mode)


def test_a_text_that_is_none_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "holes").touch()
    os.truncate(tmp_path / "holes", 10**12)
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name in ("pipe", "holes", "zeros", "none", ""):
        with pytest.raises(OSError, match=r"regular file|too large|such file|directory"):
            HERE.text(tmp_path / name)


def test_a_link_to_itself_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    assert HERE.real(tmp_path / "link").name == "link"


@pytest.mark.skipif(shutil.which("setfacl") is None, reason="setfacl is not installed")
def test_a_list_is_seen(tmp_path: Path) -> None:
    subprocess.run(["setfacl", "-m", "u:2102:x,d:u:2102:rw", str(tmp_path)], check=True, timeout=20)
    seen = HERE.look(tmp_path)
    assert seen is not None
    assert seen.default is not None
    assert (seen.listed, seen.acl.named(acl.Tag.USER)) == (True, {2102: acl.ENTER})
    assert seen.default.named(acl.Tag.USER) == {2102: acl.READ | acl.WRITE}


def test_who_is_in_a_group_by_its_list_or_as_its_own() -> None:
    me = pwd.getpwuid(os.geteuid())
    group = Group(name="g", gid=me.pw_gid, members=frozenset({"eve"}))
    assert {"eve", me.pw_name} <= HERE.within(group)


def test_control_groups_of_a_process_are_its_own_and_those_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, "-c", WAITS, str(tmp_path)]
    monkeypatch.setattr(machine, "CONTROL_GROUPS", tmp_path)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        under_its_own_words(process)
        assert HERE.control_groups(os.geteuid(), words) == [], "nothing of version 2"
        (tmp_path / "cgroup.controllers").touch()
        found = HERE.control_groups(os.geteuid(), words)
        assert HERE.control_groups(os.geteuid(), [*words, "x"]) is None
        process.communicate(b"\n", timeout=20)
    assert found is not None
    assert found[-1] == tmp_path


def test_whether_somebody_listens(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    assert HERE.silence(path) == "No such file or directory"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert HERE.silence(path) == "nobody listens"
        listener.listen()
        assert HERE.silence(path) is None


def test_users_and_groups() -> None:
    me = pwd.getpwuid(os.getuid())
    found = HERE.user(me.pw_name)
    assert found is not None
    assert (found.uid, found.gid, found.home) == (me.pw_uid, me.pw_gid, me.pw_dir)
    assert me.pw_gid in found.groups
    assert HERE.uids()[me.pw_uid] == me.pw_name
    assert HERE.user("no-such-user") is None
    assert HERE.group("no-such-group") is None


def test_the_mounts_of_a_program_are_found_by_its_user_and_its_command() -> None:
    command = (sys.executable, "-I", "-c", WAITS)
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        under_its_own_words(program)
        points = HERE.mount_points(os.getuid(), command)
        assert points is not None
        assert "/proc" in points  # which is where they were read; in a chroot nothing is mounted on /
        assert HERE.mount_points(os.getuid(), command[:-1]) is None
        assert HERE.mount_points(os.getuid() + 1, command) is None
    finally:
        program.kill()
        program.communicate()


def test_the_clock_and_the_disk_are_asked_without_being_changed(tmp_path: Path) -> None:
    assert HERE.synchronised() in {True, False, None}
    assert HERE.space(tmp_path).free_bytes > 0
