"""docs/tested-rows.md names tests that exist, and a test for each of its rows."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tested-rows.md").read_text(encoding="utf-8")

ROWS = {
    *(f"F{number}" for number in range(1, 16)),
    *(f"C{number}" for number in range(1, 12)),
    *(f"M{number}" for number in (1, 2, 3, 4, 5, 6, 8, 9)),
    *(f"P{number}" for number in range(1, 12)),
    *(f"E{number}" for number in (*range(1, 13), *range(14, 19))),
    *(f"G{number}" for number in (*range(1, 10), 11, 12, *range(14, 21))),
    *(f"A{number}" for number in (1, *range(4, 11))),
    *(f"S{number}" for number in (1, 2, *range(4, 9), 10, 11, *range(19, 33), 36, *range(39, 43))),
    *(f"N{number}" for number in range(1, 19)),
}
"""What has to be tried as long as the roles of today exist."""


def rows(page: str) -> dict[str, list[str]]:
    """Return the tests that each row names."""
    found = re.findall(r"^\| ([A-Z]\d+) \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    return {row: re.findall(r"`([^`]+)`", tests) for row, tests in found}


def missing(name: str) -> str | None:
    """Say what is wrong with the name of a test; None where there is such a test."""
    path, _, function = name.partition("::")
    file = ROOT / path
    if not file.is_file():
        return f"{name}: no such file"
    defined = {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}
    return None if function.startswith("test_") and function in defined else f"{name}: no such test"


def test_every_test_that_the_page_names_exists() -> None:
    assert [wrong for tests in rows(PAGE).values() for name in tests if (wrong := missing(name))] == []


def test_every_row_has_a_test() -> None:
    found = rows(PAGE)
    assert ROWS - found.keys() == set()
    assert [row for row, tests in found.items() if not tests] == []
    assert PAGE.count("::test_") == sum(len(tests) for tests in found.values())  # no row was misread


def test_a_test_that_is_gone_is_seen() -> None:
    page = "| F1 | a thing | `tests/unit/test_tested_rows.py::test_gone`, `tests/gone.py::test_x` |\n"
    assert [missing(name) for name in rows(page)["F1"]] == [
        "tests/unit/test_tested_rows.py::test_gone: no such test",
        "tests/gone.py::test_x: no such file",
    ]
