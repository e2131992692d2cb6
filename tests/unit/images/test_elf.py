"""What the image keeps of a program: what the loader uses, and no search path."""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from images import contents, elf

DT_RUNPATH = 29


def a_library() -> bytes:
    return contents.shared_libraries([contents.interpreter()])[0].read_bytes()


def with_search_path(content: bytes) -> bytes:
    """Put a search path at the end of the dynamic section."""
    image = bytearray(content)
    offset, size = next((at, size) for kind, at, size in elf._segments(content) if kind == elf._PT_DYNAMIC)
    for at in range(offset, offset + size, 16):
        if struct.unpack_from("<q", image, at)[0] == 0:  # the end: there is room behind it
            struct.pack_into("<qQ", image, at, DT_RUNPATH, 1)
            return bytes(image)
    raise AssertionError("no dynamic section")


def test_a_lean_interpreter_still_runs(tmp_path: Path) -> None:
    program = tmp_path / "true"
    program.write_bytes(elf.lean(Path(shutil.which("true") or "").read_bytes()))
    program.chmod(0o755)
    assert subprocess.run([program], check=False).returncode == 0


def test_a_lean_file_is_never_longer_and_stays_itself() -> None:
    content = Path(sys.executable).resolve().read_bytes()
    lean = elf.lean(content)
    assert elf.is_elf(lean)
    assert len(lean) <= len(content)
    assert elf.lean(lean) == lean


def test_a_search_path_is_taken_out() -> None:
    content = with_search_path(a_library())
    assert elf.search_paths(content) == 1
    assert elf.search_paths(elf.lean(content)) == 0


def test_the_other_entries_stay_in_their_order() -> None:
    content = a_library()
    spans = [(at, size) for kind, at, size in elf._segments(content) if kind == elf._PT_DYNAMIC]
    assert [elf._entries(elf.lean(content), *span) for span in spans] == [
        elf._entries(content, *span) for span in spans
    ]


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(60)], ids=["empty", "sh", "32 bit"]
)
def test_what_is_no_such_file_is_refused(content: bytes) -> None:
    assert not elf.is_elf(content)
    with pytest.raises(ValueError, match="ELF"):
        elf.lean(content)
