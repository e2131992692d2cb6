"""Rows F1 to F6, F8 and F15 of the bad-input list: what strict JSON refuses, and what it keeps exact."""

import json

import pytest

from bxcore import strictjson
from bxcore.errors import BadMessage, WireError
from bxcore.ids import MAX_SAFE_INTEGER
from bxcore.strictjson import MAX_DEPTH, JsonValue

ACCEPTED: dict[str, tuple[bytes, JsonValue]] = {
    "empty object": (b"{}", {}),
    "empty list": (b"[]", []),
    "text alone": (b'"alone"', "alone"),
    "whole number alone": (b"42", 42),
    "true": (b"true", True),
    "false": (b"false", False),
    "null": (b"null", None),
    "every kind of white space": (b" \t\r\n[ 1 ,\n2\t]\r\n ", [1, 2]),
    "keys that differ in case": (b'{"a":1,"A":2}', {"a": 1, "A": 2}),
    "empty key": (b'{"":0}', {"": 0}),
    "key with an escaped NUL": (b'{"a\\u0000b":0}', {"a\0b": 0}),
    "same key in two objects": (b'[{"a":1},{"a":2}]', [{"a": 1}, {"a": 2}]),
    "every short escape": (b'"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\/\b\f\n\r\t'),
    "escaped control character": (b'"\\u0012"', "\x12"),
    "escaped surrogate pair": (b'"\\uD83D\\ude00"', "\N{GRINNING FACE}"),
    "backslash before a u that is no escape": (b'"\\\\uD800"', "\\uD800"),
    "noncharacters": (b'["\\uFFFE","\\uFDD0","\xf4\x8f\xbf\xbf"]', ["\ufffe", "\ufdd0", "\U0010ffff"]),
    "delete and line separator unescaped": ('"\x7f\u2028\u2029"'.encode(), "\x7f\u2028\u2029"),
    "letters of every length": ('"é€\N{GRINNING FACE}"'.encode(), "é€\N{GRINNING FACE}"),
    "zero": (b"0", 0),
    "largest number": (b"9007199254740991", MAX_SAFE_INTEGER),
    "smallest number": (b"-9007199254740991", -MAX_SAFE_INTEGER),
    "brackets inside a text": (b'"' + b"[{" * 200 + b'"', "[{" * 200),
    "a quote inside a text, then brackets": (b'["\\"' + b"[" * 100 + b'"]', ['"' + "[" * 100]),
}

REFUSED: dict[str, bytes] = {
    # F1
    "duplicate key": b'{"tool":"fs.read","tool":"fs.write"}',
    "duplicate key with the same value": b'{"a":1,"a":1}',
    "duplicate key spelled differently": b'{"a":1,"\\u0061":2}',
    "duplicate key deep inside": b'{"x":[{"b":0,"a":1,"a":2}]}',
    # F2
    "NaN": b"[NaN]",
    "Infinity": b"[Infinity]",
    "minus Infinity": b"[-Infinity]",
    "minus NaN": b"[-NaN]",
    "1e999": b"[1e999]",
    # F3
    "5,000 digits": b"9" * 5000,
    "minus 5,000 digits": b"-" + b"9" * 5000,
    "2^63": b"9223372036854775808",
    "2^53": b"9007199254740992",
    "2^53+1": b"9007199254740993",
    "-2^53": b"-9007199254740992",
    "minus zero": b"-0",
    "1.0": b"1.0",
    "0.5": b"[0.5]",
    "exponent": b"1E2",
    "minus zero with a fraction": b"-0.0",
    # F6
    "stray continuation byte": b'"\x80"',
    "overlong NUL": b'"\xc0\x80"',
    "overlong slash": b'"\xe0\x80\xaf"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "beyond Unicode": b'"\xf4\x90\x80\x80"',
    "Latin-1": b'"\xe9"',
    "cut letter": b'"\xe2\x82',
    "UTF-16 little end first": '["é"]'.encode("utf-16-le"),
    "UTF-16 big end first": '["é"]'.encode("utf-16-be"),
    "UTF-16 with a mark": "{}".encode("utf-16"),
    "UTF-32": "{}".encode("utf-32-le"),
    "UTF-8 byte-order mark": b"\xef\xbb\xbf{}",
    "byte-order mark inside": b"[\xef\xbb\xbf]",
    # F8
    "trailing word": b"{} x",
    "two values": b"{}{}",
    "two values, comma": b"1,2",
    "trailing NUL": b"{}\0",
    "leading NUL": b"\0{}",
    "trailing comma outside": b"[],",
    "trailing bracket": b"[]]",
    # the rest of the grammar
    "nothing": b"",
    "only white space": b" \n",
    "no-break space": b"\xc2\xa0{}",
    "form feed as white space": b"[\x0c]",
    "vertical tab as white space": b"[\x0b]",
    "open list": b"[1",
    "open object": b'{"a":1',
    "open text": b'"abc',
    "open text of escaped quotes": b'"' + b'\\"' * 1000,
    "lone backslash at the end": b'"\\',
    "trailing comma in a list": b"[1,]",
    "trailing comma in an object": b'{"a":1,}',
    "leading comma": b"[,1]",
    "double comma": b"[1,,2]",
    "missing comma": b"[1 2]",
    "missing colon": b'{"a" 1}',
    "double colon": b'{"a"::1}',
    "missing value": b'{"a":}',
    "missing key": b"{:1}",
    "number as key": b"{1:1}",
    "null as key": b"{null:1}",
    "key without quotes": b"{a:1}",
    "single quotes": b"{'a':1}",
    "brackets crossed": b"[{]}",
    "comment": b"[1/* no */]",
    "line comment": b"[1]// no",
    "capital True": b"True",
    "capital NULL": b"NULL",
    "word cut short": b"[tru]",
    "word run together": b"[truefalse]",
    "leading zero": b"[01]",
    "minus leading zero": b"[-01]",
    "plus sign": b"[+1]",
    "lone minus": b"[-]",
    "double minus": b"[--1]",
    "minus space": b"[- 1]",
    "hexadecimal": b"[0x1]",
    "number with an underscore": b"[1_000]",
    "point without digits after": b"[1.]",
    "point without digits before": b"[.5]",
    "exponent without digits": b"[1e]",
    "full-width digit": "[１]".encode(),
    "newline inside a text": b'"a\nb"',
    "tab inside a text": b'"a\tb"',
    "NUL inside a text": b'"a\0b"',
    "escape that does not exist": b'"\\x41"',
    "escaped emoji": '"\\\N{GRINNING FACE}"'.encode(),
    "capital U escape": b'"\\U0041"',
    "short escape": b'"\\u004"',
    "escape with a sign": b'"\\u+041"',
    "escape with a space": b'"\\u 041"',
    "escape with a prefix": b'"\\u0x41"',
}

# What other readers decide differently; RFC 8259 leaves it open. Our decision is: refused, each of them.
OPEN_QUESTIONS: dict[str, bytes] = {
    "high surrogate alone": b'["\\uD800"]',
    "high surrogate, then a letter": b'["\\ud800abc"]',
    "high surrogate, then another escape": b'["\\uD800\\n"]',
    "high surrogate, then an ordinary \\u escape": b'["\\uD888\\u1234"]',
    "two high surrogates": b'["\\uD800\\uD800"]',
    "two high surrogates, then a newline": b'["\\uD800\\uD800\\n"]',
    "surrogate pair the wrong way round": b'["\\uDd1e\\uD834"]',
    "surrogate pair cut by a letter": b'["\\uDd1ea"]',
    "low surrogate alone": b'["\\uDFAA"]',
    "low surrogate in a key": b'{"\\uDFAA":0}',
    "high surrogate in a key, deep inside": b'[{"a":[{"\\udbff":0}]}]',
    "pair whose first half is doubled": b'["\\ud83d\\ud83d\\ude00"]',
    "integer beyond 64 bits": b"[100000000000000000000]",
    "negative integer beyond 64 bits": b"[-123123123123123123123123123123]",
    "fraction that rounds to zero": b"[123.456e-789]",
    "exponent that overflows": b"[1.5e+9999]",
    "negative exponent that overflows": b"[-1e+9999]",
    "exponent of 60 digits": b"[0.4e00" + b"6" * 60 + b"]",
    "exponent that underflows": b"[123e-10000000]",
    "500 lists inside one another": b"[" * 500 + b"]" * 500,
    "byte-order mark and an object": b"\xef\xbb\xbf{}",
    "UTF-16 without a mark": '["é"]'.encode("utf-16-le"),
    "six-byte overlong form": b'["\xfc\x83\xbf\xbf\xbf\xbf"]',
    "lone continuation byte": b'["\x81"]',
    "letter cut by another": b'["\xe0\xff"]',
}


@pytest.mark.parametrize(("raw", "value"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_strict_json_reads(raw: bytes, value: JsonValue) -> None:
    read = strictjson.loads(raw)
    assert read == value
    assert repr(read) == repr(value)  # also where == would let True pass for 1


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
def test_strict_json_refuses(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        strictjson.loads(raw)


@pytest.mark.parametrize("raw", OPEN_QUESTIONS.values(), ids=OPEN_QUESTIONS.keys())
def test_strict_json_refuses_what_readers_disagree_on(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        strictjson.loads(raw)


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + closing * depth


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_nesting_is_read_up_to_the_limit_and_refused_one_deeper(opening: bytes, closing: bytes) -> None:
    inner = b"" if opening == b"[" else b"0"
    levels = len([byte for byte in opening if byte in b"[{"])
    depth = MAX_DEPTH // levels
    strictjson.loads(opening * depth + inner + closing * depth)
    with pytest.raises(BadMessage, match="levels of nesting"):
        strictjson.loads(opening * depth + b"[" + inner + b"]" + closing * depth)


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_nesting_is_bounded_before_recursion_is_reached(raw: bytes) -> None:
    with pytest.raises(BadMessage, match="levels of nesting"):
        strictjson.loads(raw)


def test_brackets_are_counted_by_depth_and_not_by_number() -> None:
    assert strictjson.loads(b"[" + b"[]," * 500 + b"[]]") == [[]] * 501
    deepest = nested(b"[", b"]", MAX_DEPTH - 1)
    strictjson.loads(b"[" + deepest + b"," + deepest + b"]")
    with pytest.raises(BadMessage, match="levels of nesting"):
        strictjson.loads(b"[" + deepest + b",[" + deepest + b"]]")


def test_brackets_after_an_open_text_do_not_hide_the_depth_before_it() -> None:
    with pytest.raises(BadMessage, match="levels of nesting"):
        strictjson.loads(b"[" * 65 + b'"' + b"]" * 65)


@pytest.mark.parametrize(
    "raw",
    [b'{"hunter2":1,"hunter2":2}', b'["hunter2" 3]', b'"hunter2\\x"', b'["hunter2\\ud800"]', b'{"hunter2":1.5}'],
)
def test_no_error_quotes_what_came(raw: bytes) -> None:
    with pytest.raises(WireError) as caught:
        strictjson.loads(raw)
    assert "hunter2" not in str(caught.value)


def test_every_error_carries_the_code_of_a_bad_message() -> None:
    with pytest.raises(WireError) as caught:
        strictjson.loads(b"[")
    assert caught.value.code == "bad_message"
    assert str(caught.value) == "expected JSON: Expecting value (character 1) [bad_message]"


WRITTEN: dict[str, tuple[JsonValue, bytes]] = {
    "keys keep their order": ({"b": 1, "a": [True, None, False]}, b'{"b":1,"a":[true,null,false]}'),
    "letters stay letters": ("é\u2028\x7f/", '"é\u2028\x7f/"'.encode()),
    "quotes and control characters": ('"\\\0\n\x1f', b'"\\"\\\\\\u0000\\n\\u001f"'),
    "empty": ({"a": [], "b": {}, "": ""}, b'{"a":[],"b":{},"":""}'),
    "numbers": ([0, -1, MAX_SAFE_INTEGER], b"[0,-1,9007199254740991]"),
}


@pytest.mark.parametrize(("value", "raw"), WRITTEN.values(), ids=WRITTEN.keys())
def test_writing_gives_these_bytes(value: JsonValue, raw: bytes) -> None:
    assert strictjson.dumps(value) == raw


class Text(str):
    __slots__ = ()


UNWRITABLE: dict[str, tuple[object, type[Exception]]] = {
    "float": ([1.5], TypeError),
    "NaN": (float("nan"), TypeError),
    "tuple": ((1, 2), TypeError),
    "bytes": (b"x", TypeError),
    "number as key": ({1: 2}, TypeError),
    "subclass of str": (Text("x"), TypeError),
    "2^53": (MAX_SAFE_INTEGER + 1, ValueError),
    "-2^53": (-MAX_SAFE_INTEGER - 1, ValueError),
    "lone surrogate": (["\ud800"], ValueError),
    "lone surrogate in a key": ({"\udc00": 1}, ValueError),
}


@pytest.mark.parametrize(("value", "error"), UNWRITABLE.values(), ids=UNWRITABLE.keys())
def test_writing_refuses(value: JsonValue, error: type[Exception]) -> None:
    with pytest.raises(error):
        strictjson.dumps(value)


def lists(depth: int) -> JsonValue:
    value: JsonValue = 0
    for _ in range(depth):
        value = [value]
    return value


def test_writing_stops_where_reading_would() -> None:
    assert strictjson.loads(strictjson.dumps(lists(MAX_DEPTH))) == lists(MAX_DEPTH)
    with pytest.raises(ValueError, match="levels of nesting"):
        strictjson.dumps(lists(MAX_DEPTH + 1))


def test_the_standard_reader_agrees_with_what_is_written() -> None:
    value: JsonValue = {"text": "é\0\n\u2028", "list": [1, True, None, {"x": []}]}
    assert json.loads(strictjson.dumps(value)) == value
