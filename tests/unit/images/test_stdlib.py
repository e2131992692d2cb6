"""What an image lacks of the standard library is what nothing in it needs, or asks for in vain with a reason."""

import sys
from pathlib import Path

import pytest

from images import stdlib, table
from images.table import Image
from tests.unit.images import reach
from tests.unit.images.archive import LIBRARY, Opened

START = ["abc", "codecs", "encodings", "encodings.ascii", "encodings.latin_1", "encodings.utf_8", "io", "os", "runpy"]
"""What the interpreter imports by itself; the codec of a name is not imported by a statement."""


def excuse(asker: str, part: str) -> bool:
    return any(part == excused and f"{asker}.".startswith(f"{module}.") for module, excused in stdlib.IN_VAIN)


def test_every_import_in_an_image_finds_its_module_or_has_an_excuse(stated: Image, opened: Opened) -> None:
    files = {name: opened.read(f"{LIBRARY}{name}") for suffix in (".py", ".so") for name in opened.library(suffix)}
    held = reach.modules(files)
    starts = [*START, *(name for name in held if name.split(".")[0] == stated.program)]
    pairs = reach.asked(held, starts)
    assert len(pairs) > 500
    lost = {(asker, part) for asker, name in pairs if name not in held and (part := stdlib.part_of(name))}
    # A module of a part that this interpreter has built in is there nevertheless: pyexpat in Debian's.
    assert {(asker, part) for asker, part in lost if part not in stated.parts and not excuse(asker, part)} == set()


def test_the_check_sees_a_late_import_of_a_part() -> None:
    held = reach.modules({"role/__init__.py": b"", "role/a.py": b"def late():\n    from xml.dom import minidom\n"})
    assert ("role.a", "xml.dom") in reach.asked(held, ["role.a"])
    assert stdlib.part_of("xml.dom") == "xml"
    assert not excuse("role.a", "xml")


def test_the_check_follows_relative_imports_and_extensions() -> None:
    files = {"p/__init__.py": b"from .a import b\n", "p/a.py": b"from . import c\n", "p/c.py": b"import _x\n"}
    held = reach.modules({**files, "lib-dynload/_x.cpython-311-x86_64-linux-gnu.so": b"\x7fELF"})
    assert {("p", "p.a"), ("p.a", "p.c"), ("p.c", "_x")} <= reach.asked(held, ["p"])
    assert "_x" in held


@pytest.mark.parametrize(
    ("path", "parts", "expected"),
    [
        ("os.py", [], True),
        ("ssl.py", [], False),
        ("ssl.py", ["tls"], True),
        ("lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so", [], False),
        ("lib-dynload/_codecs_jp.cpython-311-x86_64-linux-gnu.so", [], False),
        ("xml/dom/minidom.py", ["tls"], False),
        ("xml/dom/minidom.py", ["xml"], True),
        ("http/client.py", [], True),
        ("http/server.py", [], False),
        ("concurrent/futures/thread.py", [], True),
        ("concurrent/futures/process.py", [], False),
        ("encodings/utf_8.py", [], True),
        ("encodings/latin_1.py", [], True),
        ("encodings/cp1252.py", [], False),
        ("zipfile.py", [], True),
        ("codecs.py", [], True),
        ("test/support/__init__.py", stdlib.PARTS, False),
        ("site-packages/pip/__init__.py", stdlib.PARTS, False),
        ("config-3.11-x86_64-linux-gnu/python-config.py", stdlib.PARTS, False),
        ("ensurepip/__init__.py", stdlib.PARTS, False),
        ("sitecustomize.py", stdlib.PARTS, False),
        ("lib-dynload/_tkinter.cpython-311-x86_64-linux-gnu.so", stdlib.PARTS, False),
    ],
)
def test_what_is_wanted(path: str, parts: list[str], expected: bool) -> None:
    assert stdlib.wanted(Path(path), parts) is expected


def test_each_part_and_each_excuse_says_why() -> None:
    assert set(stdlib.WHY) == set(stdlib.PARTS)
    assert {part for _, part in stdlib.IN_VAIN} <= set(stdlib.PARTS)
    assert all([*stdlib.WHY.values(), *stdlib.IN_VAIN.values()])


def test_every_part_is_one_of_this_interpreter() -> None:
    for part, modules in stdlib.PARTS.items():
        tops = {each.split(".")[0] for each in modules}
        assert tops & {*sys.stdlib_module_names, "_codecs_jp"}, part


def test_only_the_role_that_dials_tls_has_tls_and_who_may_be_believed() -> None:
    assert [image.name for image in table.roles().values() if "tls" in image.parts] == ["gatewayd"]
    assert [image.name for image in table.roles().values() if image.certificates] == ["gatewayd"]
