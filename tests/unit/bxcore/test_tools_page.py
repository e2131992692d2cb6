"""docs/tools.md names every tool, every argument with its limits, and every default."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from bxcore import tools
from bxcore.tools import Takes

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of each table row behind its first cell, by the name in that."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    return {first.strip("`"): rest for first, *rest in cells}


def unsaid(tool: str, page: str) -> list[str]:
    """Say what the page leaves out about a tool's arguments."""
    said, schema = rows(section(page, tool)), tools.schema(tool)
    properties: dict[str, Any] = schema["properties"]  # type: ignore[assignment]
    found = [f"{name} is no argument" for name in said.keys() - properties.keys()]
    for name, argument in properties.items():
        if name not in said:
            found.append(f"{name} is missing")
            continue
        rule, description = said[name]
        expected = ["required" if name in schema["required"] else "optional"]  # type: ignore[operator]
        expected += [f"{argument[key]:,}" for key in ("minimum", "maximum") if key in argument]
        expected += [f"default {argument['default']}"] if "default" in argument else []
        expected += [f"`{member}`" for member in argument.get("enum", [])]
        expected += ["not empty"] if argument.get("minLength") and name != "glob" else []
        found += [f"{name}: {word}" for word in expected if word not in rule]
        found += [f"{name}: {argument['description']}"] if description != argument["description"] else []
    return found


@pytest.mark.parametrize("tool", tools.TOOLS)
def test_every_argument_stands_on_the_page_as_the_schema_has_it(tool: str) -> None:
    assert unsaid(tool, PAGE) == []


def test_what_the_page_leaves_out_is_seen() -> None:
    page = "\n## write_file\n\n| `path` | optional | A file. |\n| `colour` | | Red. |\n\n## x\n| `content` | | |\n"
    assert unsaid("write_file", page) == [
        "colour is no argument",
        "path: required",
        "path: Absolute path of the file.",
        "content is missing",
    ]


def test_the_first_table_says_what_brokerd_judges_by() -> None:
    table = rows(PAGE.partition("\n## ")[0])
    assert list(table) == list(tools.TOOLS)
    for name, (constraints, mounted, auto, limit) in table.items():
        kind = tools.TOOLS[name]
        assert constraints == kind.takes.value
        assert (", writable" in mounted) == kind.writes
        assert (kind.takes is Takes.PATHS) == (", " in mounted)
        assert auto.startswith("yes") == kind.auto_allowed
        assert limit == f"{kind.default_ms // 1000} s"


def test_the_length_of_a_result_is_said() -> None:
    assert {kind.result_chars for kind in tools.TOOLS.values()} == {16_000}
    assert "at most 16,000 characters" in PAGE
    assert f"`{tools.CUT}`" in PAGE
    assert f"{tools.MAX_ARGUMENT_BYTES:,} bytes" in PAGE


def test_every_argument_class_is_frozen() -> None:
    for kind in tools.TOOLS.values():
        made = kind.arguments(**{field.name: "x" for field in attrs.fields(kind.arguments)})
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            made.path = "y"
