"""The page on architecture names every module of the roles that it describes room by room, and none that is gone."""

import re

import pytest

from tests.structure import sources

PAGE = (sources.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(role: str) -> str:
    found = re.search(rf"^## Modules of {role}\b.*?\n(.*?)(?=^## |^`toolkit` )", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def named(text: str) -> set[str]:
    """Return the words in code marks, several of which may share one pair."""
    return {word for marked in re.findall(r"`([^`]+)`", text) for word in marked.split()}


@pytest.mark.parametrize("role", ["brokerd", "gatewayd", "loopd"])
def test_every_module_has_its_room(role: str) -> None:
    modules = {path.stem for path in (sources.PYTHON / role).glob("*.py")} - {"__init__"}
    assert named(section(role)) == modules


def test_a_module_without_a_room_is_seen() -> None:
    assert named("| a room | `one two` `three` |") == {"one", "two", "three"}
