"""Strict JSON: anything readable is written back the same; any bytes give a value or a BadMessage."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import strictjson
from bxcore.errors import BadMessage
from bxcore.ids import MAX_SAFE_INTEGER
from bxcore.strictjson import JsonValue

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | TEXTS
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5), max_leaves=30
)
JSON_LIKE = st.lists(
    st.sampled_from([*'[]{},:"\\0123456789-+.eEtrufalsn \t\n', '"a"', "\\u", "d800", "\\ud83d\\ude00", "é", "\0"]),
    max_size=40,
).map("".join)


@given(VALUES)
def test_a_value_survives_writing_and_reading(value: JsonValue) -> None:
    raw = strictjson.dumps(value)
    assert repr(strictjson.loads(raw)) == repr(value)
    assert strictjson.dumps(strictjson.loads(raw)) == raw


@given(st.binary(max_size=300) | JSON_LIKE.map(str.encode))
def test_any_bytes_give_a_value_or_a_bad_message(raw: bytes) -> None:
    try:
        value = strictjson.loads(raw)
    except BadMessage:
        return
    assert json.loads(raw) == value
    assert repr(strictjson.loads(strictjson.dumps(value))) == repr(value)


@given(VALUES, st.integers(0, 3000))
def test_a_value_that_is_cut_off_is_no_value(value: JsonValue, cut: int) -> None:
    raw = strictjson.dumps([value])
    with pytest.raises(BadMessage):
        strictjson.loads(raw[: min(cut, len(raw) - 1)])


@given(VALUES, st.binary(min_size=1, max_size=5))
def test_nothing_may_follow_a_value(value: JsonValue, rest: bytes) -> None:
    raw = strictjson.dumps([value]) + rest
    try:
        read = strictjson.loads(raw)
    except BadMessage:
        return
    assert rest.strip(b" \t\r\n") == b""
    assert read == [value]


@given(st.integers())
def test_an_integer_is_exact_or_refused(number: int) -> None:
    raw = str(number).encode()
    if abs(number) <= MAX_SAFE_INTEGER:
        assert strictjson.loads(raw) == number
    else:
        with pytest.raises(BadMessage):
            strictjson.loads(raw)
