import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopd import arguments
from loopd.arguments import MAX_ARGUMENT_BYTES, MAX_DEPTH, BadArguments

# Each of the first group makes a llama.cpp server answer 500 to every request that carries it.
UNREADABLE = {
    "nothing": "",
    "white space": " \n",
    "cut off": '{"a": 31,',
    "cut inside a text": '{"a": "x',
    "two objects": "{}{}",
    "trailing words": "{} and so on",
    "trailing comma": '{"a":1,}',
    "single quotes": "{'a':1}",
    "comment": '{"a":1/*x*/}',
    "not a number": '{"a":NaN}',
    "infinity": '{"a":-Infinity}',
    "a number beyond all numbers": '{"a":1e999}',
    "the same, negative and nested": '{"a":[-1e999]}',
    "an integer beyond all numbers": f'{{"a":1{"0" * 400}}}',
    "an integer that no reader takes": f'{{"a":1{"0" * 5_000}}}',
    "half a surrogate pair": '{"a":"\\ud800"}',
    "the other half, in a key": '{"\\udfff":1}',
    "raw half of a pair": '{"a":"\ud800"}',
    "raw newline in a text": '{"a":"x\ny"}',
    "byte-order mark": "\ufeff{}",
    "NUL at the end": "{}\x00",
}
MISLEADING = {
    "text": '"{}"',
    "list": "[]",
    "number": "5",
    "null": "null",
    "true": "true",
    "a key twice": '{"a":1,"a":2}',
    "a key twice, deep": '{"x":[{"a":1,"a":1}]}',
}
BAD = {**UNREADABLE, **MISLEADING}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_m1_what_is_not_one_clear_object_is_refused(text: str) -> None:
    with pytest.raises(BadArguments):
        arguments.parse(text)


GOOD: dict[str, tuple[str, dict[str, Any]]] = {
    "empty": ("{}", {}),
    "spaces": (' { "a" : 1 }\n', {"a": 1}),
    "fraction": ('{"a":1.5e3}', {"a": 1500.0}),
    "a large integer": (f'{{"a":{10**30}}}', {"a": 10**30}),
    "a number that is too small to tell from none": ('{"a":1e-999}', {"a": 0.0}),
    "a whole surrogate pair": ('{"a":"\\ud83e\\udd9e"}', {"a": "🦞"}),
    "control characters, escaped": ('{"a":"\\u0000\\u001b"}', {"a": "\x00\x1b"}),
    "the same key in two objects": ('{"a":{"b":1},"c":{"b":1}}', {"a": {"b": 1}, "c": {"b": 1}}),
}


@pytest.mark.parametrize(("text", "value"), GOOD.values(), ids=GOOD.keys())
def test_an_object_is_read(text: str, value: dict[str, Any]) -> None:
    assert arguments.parse(text) == value


def nested(depth: int, *, opening: str = "[", closing: str = "]") -> str:
    """An object and lists inside it, `depth` levels in all."""
    return '{"a":' + opening * (depth - 1) + closing * (depth - 1) + "}"


def test_the_deepest_nesting_that_is_read() -> None:
    arguments.parse(nested(MAX_DEPTH))
    with pytest.raises(BadArguments, match="nested"):
        arguments.parse(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize("opening", ["[", '{"a":'], ids=["lists", "objects"])
def test_f4_a_hundred_thousand_levels_are_refused(opening: str) -> None:
    with pytest.raises(BadArguments):
        arguments.parse('{"a":' + opening * 40_000)


def test_the_longest_text_that_is_read() -> None:
    padding = " " * (MAX_ARGUMENT_BYTES - 2)
    assert arguments.parse("{}" + padding) == {}
    with pytest.raises(BadArguments, match=str(MAX_ARGUMENT_BYTES)):
        arguments.parse("{}" + padding + " ")


def test_the_length_is_counted_in_bytes() -> None:
    with pytest.raises(BadArguments, match="bytes long"):
        arguments.parse('{"a":"' + "é" * (MAX_ARGUMENT_BYTES // 2) + '"}')


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_the_reason_is_one_line_and_quotes_nothing(text: str) -> None:
    with pytest.raises(BadArguments) as refused:
        arguments.parse(text)
    reason = str(refused.value)
    assert reason.isprintable()
    assert len(reason) < 120
    assert reason.startswith(("the arguments", "NaN"))


def finite(value: Any) -> bool:
    json.dumps(value, allow_nan=False).encode()
    return True


@given(st.text(max_size=200) | st.text('{}[]",:aeE0.19-+\\u d', max_size=60))
def test_any_text_is_an_object_or_refused(text: str) -> None:
    try:
        value = arguments.parse(text)
    except BadArguments:
        return
    assert type(value) is dict
    assert finite(value)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=5), json_values, max_size=4)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in reversed(value.items())}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(objects)
def test_m2_key_order_and_white_space_do_not_make_another_call(value: dict[str, Any]) -> None:
    spaced = arguments.parse(json.dumps(reordered(value), indent=3))
    tight = arguments.parse(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    assert arguments.canonical("echo", spaced) == arguments.canonical("echo", tight)


DIFFERENT = {
    "name": (("a", {}), ("b", {})),
    "value": (("a", {"x": 1}), ("a", {"x": 2})),
    "type": (("a", {"x": 1}), ("a", {"x": "1"})),
    "boolean and number": (("a", {"x": True}), ("a", {"x": 1})),
    "nesting": (("a", {"x": {"y": 1}}), ("a", {"x.y": 1})),
    "name that runs into the arguments": (("a", {"b": 1}), ('a",{"b":1}', {})),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_calls_that_differ_stay_apart(one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]) -> None:
    assert arguments.canonical(*one) != arguments.canonical(*other)
