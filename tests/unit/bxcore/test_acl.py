"""Access lists: read as setfacl wrote them, and judged as the kernel judges."""

import os
import shutil
import stat
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import acl
from bxcore.acl import ENTER, READ, WRITE, Acl, Entry, NoAcl, Tag

with_setfacl = pytest.mark.skipif(shutil.which("setfacl") is None, reason="setfacl is not installed")

# As the kernel returned it for `setfacl -m u:2102:x DIR`, where DIR had mode 2750.
STORED = bytes.fromhex(
    "02000000"  # version
    "01000700ffffffff"
    "0200010036080000"
    "04000500ffffffff"
    "10000500ffffffff"
    "20000000ffffffff"
)


def test_stored_bytes_are_read() -> None:
    found = acl.parse(STORED)
    assert found.entries == (
        Entry(tag=Tag.OWNER, allowed=7),
        Entry(tag=Tag.USER, allowed=ENTER, who=2102),
        Entry(tag=Tag.OWNING_GROUP, allowed=READ | ENTER),
        Entry(tag=Tag.MASK, allowed=READ | ENTER),
        Entry(tag=Tag.OTHERS, allowed=0),
    )


BAD = {
    "nothing": b"",
    "half a version": b"\x02\x00",
    "another version": b"\x01\x00\x00\x00",
    "cut off": STORED[:-1],
    "an unknown kind": STORED[:4] + struct.pack("<HHI", 3, 7, 0),
    "unknown permissions": STORED[:4] + struct.pack("<HHI", 1, 8, 0),
}


@pytest.mark.parametrize("stored", BAD.values(), ids=BAD.keys())
def test_what_is_no_list_is_refused(stored: bytes) -> None:
    with pytest.raises(NoAcl):
        acl.parse(stored)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_refused(stored: bytes) -> None:
    try:
        assert len(acl.parse(stored).entries) == (len(stored) - 4) // 8
    except NoAcl:
        pass


bits = st.integers(0, 7)
ids = st.integers(0, 5)
modes = st.integers(0, 0o777)


@given(mode=modes, wanted=bits, uid=ids, groups=st.frozensets(ids), owner=ids, group=ids)
def test_a_mode_without_a_list_is_judged_by_one_class(
    mode: int, wanted: int, uid: int, groups: frozenset[int], owner: int, group: int
) -> None:
    shift = 6 if uid == owner else 3 if group in groups else 0
    expected = mode >> shift & wanted == wanted
    assert acl.of_mode(mode).may(wanted, uid=uid, groups=groups, owner=owner, group=group) is expected


@st.composite
def lists(draw: st.DrawFn) -> Acl:
    named = [
        Entry(tag=tag, allowed=draw(bits), who=who)
        for tag in (Tag.USER, Tag.GROUP)
        for who in sorted(draw(st.frozensets(ids, max_size=3)))
    ]
    entries = [Entry(tag=tag, allowed=draw(bits)) for tag in (Tag.OWNER, Tag.OWNING_GROUP, Tag.MASK, Tag.OTHERS)]
    return Acl(entries=tuple(sorted([*entries, *named], key=lambda entry: (entry.tag, entry.who or 0))))


@given(listed=lists(), wanted=st.sampled_from([READ, WRITE, ENTER]), uid=ids, groups=st.frozensets(ids), owner=ids)
def test_nobody_but_the_owner_may_what_others_may_not(
    listed: Acl, wanted: int, uid: int, groups: frozenset[int], owner: int
) -> None:
    if not listed.others_may(wanted) and uid != owner:
        assert not listed.may(wanted, uid=uid, groups=groups, owner=owner, group=0)


@given(listed=lists())
def test_what_was_written_is_what_is_read(listed: Acl) -> None:
    packed = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", entry.tag, entry.allowed, 2**32 - 1 if entry.who is None else entry.who)
        for entry in listed.entries
    )
    assert acl.parse(packed) == listed


def test_a_file_without_a_list_has_none(tmp_path: Path) -> None:
    assert acl.of(tmp_path) is None
    with pytest.raises(FileNotFoundError):
        acl.of(tmp_path / "nowhere")


def setfacl(path: Path, text: str) -> None:
    subprocess.run(["setfacl", "-m", text, str(path)], check=True, timeout=20)


@with_setfacl
def test_what_setfacl_writes_is_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    setfacl(tmp_path, "u:2102:x,g:7:rw,d:u::rwx,d:g::rw,d:u:2102:rw,d:m::rw,d:o::-")
    access, default = acl.of(tmp_path), acl.of(tmp_path, acl.DEFAULT)
    assert access is not None
    assert default is not None
    assert (access.named(Tag.USER), access.named(Tag.GROUP)) == ({2102: ENTER}, {7: READ | WRITE})
    assert access.mask == 7
    assert default.named(Tag.USER) == {2102: READ | WRITE}
    assert default.mask == READ | WRITE


@with_setfacl
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize(
    "text", ["u:2102:x", "u:2102:-,g:2110:x", "g::x,m::-", "g:2110:rx,m::r", "o::x,u:2102:r", "g:2110:-,o::x"]
)
def test_the_kernel_judges_the_same(tmp_path: Path, text: str) -> None:
    """A user with one group tries to enter, list and write a directory of root's."""
    top = Path("/var/tmp") / f"acl-{os.getpid()}"  # nobody else may pass through tmp_path
    top.mkdir(mode=0o700)
    try:
        top.chmod(0o750)
        setfacl(top, text)
        listed = acl.of(top)
        assert listed is not None
        found = top.stat()
        told = {
            wanted: listed.may(wanted, uid=2102, groups={2110}, owner=found.st_uid, group=found.st_gid)
            for wanted in (READ, WRITE, ENTER)
        }
        flags = {READ: "-r", WRITE: "-w", ENTER: "-x"}
        become = ["setpriv", "--reuid=2102", "--regid=2110", "--clear-groups", "test"]
        done = {
            wanted: subprocess.run([*become, flag, str(top)], check=False, timeout=20).returncode == 0
            for wanted, flag in flags.items()
        }
        assert told == done
    finally:
        top.rmdir()


@with_setfacl
def test_the_bits_of_a_group_are_the_mask(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    setfacl(tmp_path, "u:2102:x,m::rwx")
    listed = acl.of(tmp_path)
    assert listed is not None
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o2770
    assert not listed.others_may(WRITE)
    setfacl(tmp_path, "u:2102:rwx")
    listed = acl.of(tmp_path)
    assert listed is not None
    assert listed.others_may(WRITE)
