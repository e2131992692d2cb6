"""Compiled code has the same bytes whatever the process that asks for it holds, and is never checked."""

import importlib.util
import marshal
import sys
from types import CodeType

import pytest

from images import bytecode

NAME = "a_name_that_nobody_else_has"
SOURCE = f"""
SINGLE = "\\x7f"
FLAGS = {{"one", "two", "three", "four"}}

class Outer:
    class {NAME}:
        def method(self): return self.{NAME} in {{"one", "two", "three", "four"}}
""".encode()


def body(content: bytes) -> CodeType:
    code = marshal.loads(content[16:])
    assert isinstance(code, CodeType)
    return code


def test_who_else_uses_a_name_does_not_show() -> None:
    """The compiler of this process would write other bytes the second time, which is what the bare one is for."""
    before = bytecode.compiled({"/a.py": SOURCE})
    held = [sys.intern(text) for text in (NAME, f"Outer.{NAME}", "\x7f", SOURCE.decode())]
    assert bytecode.compiled({"/a.py": SOURCE}) == before
    assert len(held) == 4


def test_the_order_in_which_they_are_named_does_not_matter() -> None:
    one, other = ("/a.py", SOURCE), ("/b.py", b"import os\n")
    assert bytecode.compiled(dict([one, other])) == bytecode.compiled(dict([other, one]))


def test_it_is_the_code_of_its_source_under_its_own_path_with_docstrings_and_asserts() -> None:
    (content,) = bytecode.compiled({"/usr/lib/a.py": b'"""Words."""\nfound = __doc__\nassert found\n'}).values()
    found: dict[str, object] = {}
    exec(body(content), found)
    assert found["found"] == "Words."
    assert body(content).co_filename == "/usr/lib/a.py"


def test_it_is_taken_for_its_source_without_being_compared() -> None:
    (content,) = bytecode.compiled({"/a.py": SOURCE}).values()
    assert content[:8] == importlib.util.MAGIC_NUMBER + b"\x01\0\0\0"
    assert content[8:16] == importlib.util.source_hash(SOURCE)


def test_a_source_that_is_none_is_named() -> None:
    with pytest.raises(bytecode.Uncompilable, match=r"/broken\.py"):
        bytecode.compiled({"/a.py": SOURCE, "/broken.py": b"def\n"})
