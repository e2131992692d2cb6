"""docs/protocol.md says what the classes say: every kind, every field in its order and type, every value."""

import re
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import attrs
import pytest

from bxcore.frame import MAX_FRAME
from bxcore.ids import CallId, Hash32, MattermostId, MessageKey, SessionId
from bxcore.strictjson import MAX_DEPTH
from bxcore.timestamp import Timestamp
from bxcore.wire.channel import MAX_TEXT_BYTES
from bxcore.wire.kinds import KIND_OF, KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")

WORDS: dict[Any, str] = {
    str: "text",
    int: "number",
    bool: "true/false",
    SessionId: "session id",
    MessageKey: "message key",
    CallId: "call number",
    Hash32: "hash",
    MattermostId: "Mattermost id",
    Timestamp: "time",
}


def heading_of(kind: type) -> str:
    """TurnEnding -> turn ending"""
    return " ".join(part.lower() for part in re.findall(r"[A-Z][a-z]+", kind.__name__))


def type_word(kind: Any) -> str:
    if kind in WORDS:
        return WORDS[kind]
    if isinstance(kind, type) and (issubclass(kind, Enum) or kind in KIND_OF):
        return heading_of(kind)
    if get_origin(kind) is tuple:
        return f"list of {type_word(get_args(kind)[0])}"
    assert get_origin(kind) in (Union, UnionType)
    return " or ".join("null" if part is NoneType else type_word(part) for part in get_args(kind))


def section(page: str, heading: str) -> str:
    """Return what stands below `### heading`, up to the next heading."""
    found = re.search(rf"^### {re.escape(heading)}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row of the tables in a section, without the heads."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return [row for row in cells if row[0] not in {"field", "value", "---"}]


def described(page: str, kind: str) -> list[tuple[str, str]]:
    return [(row[0].strip("`"), row[1]) for row in rows(section(page, f"`{kind}`"))]


def declared(cls: Any) -> list[tuple[str, str]]:
    attrs.resolve_types(cls)
    return [(field.name, type_word(field.type)) for field in attrs.fields(cls)]


def enums() -> list[type[Enum]]:
    found: dict[str, type[Enum]] = {}
    for cls in KINDS.values():
        attrs.resolve_types(cls)
        for field in attrs.fields(cls):
            if isinstance(field.type, type) and issubclass(field.type, Enum):
                found[field.type.__name__] = field.type
    return list(found.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_stands_in_the_page_with_its_fields_in_order(kind: str) -> None:
    assert f"### `{kind}`\n" in PAGE
    assert described(PAGE, kind) == declared(KINDS[kind])


@pytest.mark.parametrize("kind", enums(), ids=lambda kind: kind.__name__)
def test_every_value_of_a_vocabulary_stands_in_the_page_with_its_meaning(kind: type[Enum]) -> None:
    table = rows(section(PAGE, heading_of(kind)))
    assert [row[0].strip("`") for row in table] == [member.value for member in kind]
    assert all(row[1] for row in table)


def test_the_page_has_no_kind_that_does_not_exist() -> None:
    assert set(re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)) == set(KINDS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith("_end") or kind in {"error", "turn_ended"}])
def test_the_page_says_which_kinds_are_final(kind: str) -> None:
    assert "inal." in section(PAGE, f"`{kind}`")


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    assert f"N is 1 to {MAX_FRAME:,}" in PAGE
    assert f"more than {MAX_DEPTH} deep" in PAGE
    assert f"more than {MAX_TEXT_BYTES:,} bytes" in PAGE


def test_a_page_that_forgets_a_field_or_mistakes_a_type_is_seen() -> None:
    kind = "turn_cancel_noted"
    for page in (
        PAGE.replace("| `turn` | number or null |", "| `turn` | number |"),
        PAGE.replace("| `turn` | number or null | the turn that is being stopped; null: it was not running | |\n", ""),
        PAGE.replace(f"### `{kind}`", f"### {kind}"),
    ):
        assert described(page, kind) != declared(KINDS[kind])
