"""Class and schema of each tool agree, and parsed arguments have one spelling.

What a schema makes is read; what breaks a schema is refused by both; what is read fits the schema.
The reader may refuse more, and those few rules are written here as narrower strategies.
"""

import json
import re
from collections.abc import Mapping
from enum import Enum
from types import UnionType
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import tools
from bxcore.tools import BadArguments

NAMES = sorted(tools.TOOLS)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
ONE_LINE = TEXT.filter(lambda text: text and not set("\r\n") & set(text))
COMPONENT = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="/"), min_size=1, max_size=20
).filter(lambda name: name not in {".", ".."})
PATH = st.lists(COMPONENT, min_size=1, max_size=5).map(lambda names: "/" + "/".join(names))
URL = st.builds(
    "{}://{}.example.org{}{}".format,
    st.sampled_from(["http", "https"]),
    st.from_regex(r"[a-z][a-z0-9]{0,10}", fullmatch=True),
    st.sampled_from(["", ":8443"]),
    st.sampled_from(["", "/", "/a/b?c=d&e", "/%20"]),
)
# What the reader asks for beyond the schema (docs/tools.md, "What the schema does not say").
NARROWER = {"query": ONE_LINE, "glob": ONE_LINE.filter(lambda text: "/" not in text)}


def value_of(name: str, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if name in NARROWER:
        return NARROWER[name]
    if schema["type"] == "integer":
        return st.integers(schema["minimum"], schema["maximum"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "uri":
        return URL
    if schema.get("pattern") == "^/":
        return PATH
    return TEXT.filter(lambda text: len(text) >= schema.get("minLength", 0))


@st.composite
def instances(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A tool and arguments that its schema allows, in any order, with any of the optional ones."""
    tool = draw(st.sampled_from(NAMES))
    schema: Mapping[str, Any] = tools.schema(tool)
    optional = [name for name in schema["properties"] if name not in schema["required"]]
    chosen = [*schema["required"], *draw(st.lists(st.sampled_from(optional), unique=True) if optional else st.just([]))]
    return tool, {name: draw(value_of(name, schema["properties"][name])) for name in draw(st.permutations(chosen))}


def fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Say whether a JSON value fits a schema: the words of JSON schema that ours use, and no others."""
    known = {"type", "description", "default", "minimum", "maximum", "minLength", "pattern", "format", "enum"}
    assert schema.keys() <= known | {"properties", "required", "additionalProperties"}
    if schema["type"] == "object":
        properties = schema["properties"]
        return (
            type(value) is dict
            and value.keys() <= properties.keys()
            and value.keys() >= set(schema["required"])
            and all(fits(properties[name], item) for name, item in value.items())
        )
    if schema["type"] == "integer":
        return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
    return (
        type(value) is str
        and len(value) >= schema.get("minLength", 0)
        and re.search(schema.get("pattern", ""), value) is not None
        and value in schema.get("enum", [value])
    )


@given(instances())
def test_what_a_schema_allows_is_read(made: tuple[str, dict[str, Any]]) -> None:
    tool, given_arguments = made
    assert fits(tools.schema(tool), given_arguments)
    read = tools.parse(tool, json.dumps(given_arguments))
    for field in attrs.fields(type(read)):  # type: ignore[arg-type]
        value = getattr(read, field.name)
        plain = value.value if isinstance(value, Enum) else value
        assert plain == given_arguments.get(field.name)
        assert type(value) in (get_args(field.type) if isinstance(field.type, UnionType) else (field.type,))


JUNK: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2) | st.just({})
)


@given(instances(), st.data())
def test_what_breaks_a_schema_is_refused_by_both(made: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    tool, broken = made
    schema: Mapping[str, Any] = tools.schema(tool)
    match data.draw(st.sampled_from(["missing", "unknown", "another value"])):
        case "missing":
            del broken[data.draw(st.sampled_from(schema["required"]))]
        case "unknown":
            broken[data.draw(st.text(max_size=8).filter(lambda name: name not in schema["properties"]))] = "x"
        case _:
            name = data.draw(st.sampled_from(sorted(schema["properties"])))
            broken[name] = data.draw(JUNK.filter(lambda value: not fits(schema["properties"][name], value)))
    assert not fits(schema, broken)
    with pytest.raises(BadArguments):
        tools.parse(tool, json.dumps(broken))


@given(instances(), st.data())
def test_what_is_read_fits_the_schema(made: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    tool, arguments = made
    name = data.draw(st.sampled_from([*tools.schema(tool)["properties"], "x"]))  # type: ignore[misc]
    arguments[name] = data.draw(JUNK | PATH | URL)
    try:
        tools.parse(tool, json.dumps(arguments))
    except BadArguments as refused:
        said = refused.detail
    else:
        assert fits(tools.schema(tool), arguments)
        return
    assert len(said) <= 300
    assert said.isprintable()


@given(st.sampled_from(NAMES), st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_read_or_refused(tool: str, text: str) -> None:
    with pytest.raises(BadArguments):
        tools.parse(tool, text)


@given(instances(), instances())
def test_g8_different_arguments_are_spelled_differently(
    one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]
) -> None:
    spelled = [
        tools.canonical(tools.parse(tool, json.dumps(given_arguments))) for tool, given_arguments in (one, other)
    ]
    assert (spelled[0] == spelled[1]) == (one[1] == other[1])
    assert json.loads(spelled[0]) == one[1]


@given(instances(), st.data())
def test_g8_order_white_space_and_escapes_do_not_count(made: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    tool, arguments = made
    shuffled = {name: arguments[name] for name in data.draw(st.permutations(sorted(arguments)))}
    indent, ascii_only = data.draw(st.sampled_from([None, 0, 2])), data.draw(st.booleans())
    text = json.dumps(shuffled, indent=indent, ensure_ascii=ascii_only)
    spelled = tools.canonical(tools.parse(tool, text))
    assert spelled == tools.canonical(tools.parse(tool, json.dumps(arguments)))
    assert len(spelled) <= len(text.encode())
    assert tools.parse(tool, spelled.decode()) == tools.parse(tool, text)


@given(instances(), st.data())
def test_g8_one_changed_character_is_another_call(made: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    tool, arguments = made
    before = tools.canonical(tools.parse(tool, json.dumps(arguments)))
    name = data.draw(st.sampled_from([key for key, value in arguments.items() if type(value) is str]))
    arguments[name] += data.draw(st.sampled_from([" ", "\u200b", "x", "\u0301"]))
    try:
        after = tools.canonical(tools.parse(tool, json.dumps(arguments)))
    except BadArguments:
        return
    assert after != before
