"""Rows F3 and F13 of the bad-input list: exact types, every key known, every key there."""

from enum import Enum
from typing import Any

import attrs
import pytest

from bxcore import convert
from bxcore.errors import BadMessage
from bxcore.ids import MAX_SAFE_INTEGER, CallId, Hash32, MessageKey, SessionId
from bxcore.strictjson import JsonValue
from bxcore.timestamp import Timestamp


class Colour(Enum):
    RED = "red"
    GREEN = "green"


@attrs.frozen(kw_only=True)
class Inner:
    number: int
    flag: bool


@attrs.frozen(kw_only=True)
class Outer:
    text: str
    colour: Colour
    inner: Inner
    many: tuple[Inner, ...]
    named: dict[str, int]
    maybe: str | None
    maybe_inner: Inner | None
    session: SessionId
    key: MessageKey
    call: CallId
    hash: Hash32
    time: Timestamp
    keys: tuple[MessageKey, ...]


OUTER = Outer(
    text="é\0",
    colour=Colour.GREEN,
    inner=Inner(number=-1, flag=True),
    many=(Inner(number=1, flag=False), Inner(number=2, flag=True)),
    named={"b": 1, "a": 2},
    maybe=None,
    maybe_inner=Inner(number=3, flag=False),
    session=SessionId("s-1"),
    key=MessageKey("K_1"),
    call=CallId(7),
    hash=Hash32("0" * 64),
    time=Timestamp(1_789_632_300_000),
    keys=(MessageKey("a"), MessageKey("b")),
)


def value() -> dict[str, Any]:
    return {
        "text": "é\0",
        "colour": "green",
        "inner": {"number": -1, "flag": True},
        "many": [{"number": 1, "flag": False}, {"number": 2, "flag": True}],
        "named": {"b": 1, "a": 2},
        "maybe": None,
        "maybe_inner": {"number": 3, "flag": False},
        "session": "s-1",
        "key": "K_1",
        "call": 7,
        "hash": "0" * 64,
        "time": "2026-09-17T08:05:00.000Z",
        "keys": ["a", "b"],
    }


def test_the_whole_alphabet_is_read() -> None:
    assert convert.structure(value(), Outer) == OUTER


def test_the_whole_alphabet_is_written_in_the_order_of_the_class() -> None:
    written = convert.unstructure(OUTER)
    assert written == value()
    assert isinstance(written, dict)
    assert list(written) == list(value())
    assert list(written["named"]) == ["b", "a"]  # type: ignore[arg-type]  # an object


# key, what to put there, the message
WRONG: dict[str, tuple[str, Any, str]] = {
    "true for a number": (
        "inner",
        {"number": True, "flag": True},
        "inner.number: expected a whole number, got true or",
    ),
    "number for a flag": ("inner", {"number": 1, "flag": 1}, "inner.flag: expected true or false, got a whole number"),
    "text for a number": ("inner", {"number": "5", "flag": True}, "inner.number: expected a whole number, got text"),
    "number out of range": ("call", MAX_SAFE_INTEGER + 1, "call: expected a whole number of 1 or more"),
    "number for text": ("text", 5, "text: expected text, got a whole number"),
    "null for text": ("text", None, "text: expected text, got null"),
    "list for an object": ("inner", [1, True], "inner: expected an object, got a list"),
    "list of pairs for an object": ("inner", [["number", 1], ["flag", True]], "inner: expected an object, got a list"),
    "text for a list": ("keys", "abc", "keys: expected a list, got text"),
    "object for a list": ("keys", {"a": 1}, "keys: expected a list, got an object"),
    "null for a list": ("keys", None, "keys: expected a list, got null"),
    "list for a map": ("named", [["a", 1]], "named: expected an object, got a list"),
    "bad item of a list": ("keys", ["a", "b c"], "keys[1]: expected 1 to 64 characters"),
    "bad field of an item": ("many", [value()["inner"], {"number": 1}], "many[1].flag: missing"),
    "bad value of a map": ("named", {"a": 1, "b": "x"}, "named.b: expected a whole number, got text"),
    "bad value under a strange key": ("named", {"hunter2 \n": "x"}, "named.(a key of 9 characters): expected a whole"),
    "unknown key": ("inner", {"number": 1, "flag": True, "more": 1}, "inner.more: unknown key"),
    "unknown key with an odd name": (
        "inner",
        {"number": 1, "flag": True, "hunter2!": 1},
        "(a key of 8 characters): unknown",
    ),
    "very long unknown key": (
        "inner",
        {"number": 1, "flag": True, "x" * 10_000: 1},
        "(a key of 10000 characters): unknown",
    ),
    "missing key": ("inner", {"flag": True}, "inner.number: missing"),
    "enum in capitals": ("colour", "GREEN", "colour: expected one of red, green, got something else"),
    "enum by number": ("colour", 0, "colour: expected one of red, green"),
    "list for an enum": ("colour", ["red"], "colour: expected one of red, green"),
    "empty session": ("session", "", "session: expected 1 to 64 characters"),
    "session of 10 kB": ("session", "a" * 10_000, "session: expected 1 to 64 characters"),
    "session with a newline": ("session", "a\n", "session: expected 1 to 64 characters"),
    "session that is a path": ("session", "../x", "session: expected 1 to 64 characters"),
    "number as a session": ("session", 1, "session: expected 1 to 64 characters"),
    "hash in capitals": ("hash", "A" * 64, "hash: expected 64 lowercase"),
    "call number zero": ("call", 0, "call: expected a whole number of 1 or more"),
    "true as a call number": ("call", True, "call: expected a whole number of 1 or more"),
    "time as a number": ("time", 1_789_632_300_000, "time: expected a time of the form"),
    "time with an offset": ("time", "2026-09-17T08:05:00.000+00:00", "time: expected a time of the form"),
    "time that does not exist": ("time", "2026-02-30T00:00:00.000Z", "time: "),
    "number where text or null": ("maybe", 1, "maybe: expected text, got a whole number"),
    "list where an object or null": ("maybe_inner", [], "maybe_inner: expected an object, got a list"),
}


@pytest.mark.parametrize(("key", "wrong", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_refused_with_its_path(key: str, wrong: JsonValue, message: str) -> None:
    with pytest.raises(BadMessage) as caught:
        convert.structure(value() | {key: wrong}, Outer)
    assert message in caught.value.detail
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", list(value()))
def test_every_key_has_to_be_there(key: str) -> None:
    with pytest.raises(BadMessage, match=f"{key}: missing"):
        convert.structure({name: item for name, item in value().items() if name != key}, Outer)


@pytest.mark.parametrize("whole", [None, True, 1, "x", [], [value()]], ids=repr)
def test_only_an_object_is_an_object(whole: JsonValue) -> None:
    with pytest.raises(BadMessage, match="expected an object"):
        convert.structure(whole, Outer)


def test_the_first_fault_is_named_and_the_object_itself_where_it_is_the_fault() -> None:
    with pytest.raises(BadMessage) as caught:
        convert.structure([], Inner)
    assert caught.value.detail == "expected an object, got a list"


@attrs.frozen(kw_only=True)
class Older:
    kept: str
    added: int = 5


def test_a_default_makes_a_key_optional_when_reading_and_never_when_writing() -> None:
    assert convert.structure({"kept": "x"}, Older) == Older(kept="x", added=5)
    assert convert.unstructure(Older(kept="x")) == {"kept": "x", "added": 5}


@attrs.frozen(kw_only=True)
class Ranged:
    number: int = attrs.field(validator=attrs.validators.ge(1))


def test_a_validator_of_the_class_is_asked_and_its_value_not_quoted() -> None:
    with pytest.raises(BadMessage) as caught:
        convert.structure({"number": -8765}, Ranged)
    assert "8765" not in str(caught.value)


class Shade(str, Enum):  # noqa: UP042 - the kind of class that is meant
    DARK = "dark"


@attrs.frozen(kw_only=True)
class Shaded:
    shade: Shade


def test_an_enum_that_is_also_a_text_is_still_an_enum() -> None:
    assert convert.structure({"shade": "dark"}, Shaded).shade is Shade.DARK
    with pytest.raises(BadMessage):
        convert.structure({"shade": "light"}, Shaded)


class Level(Enum):
    ONE = 1


def alphabet_breakers() -> dict[str, type]:
    kinds: dict[str, Any] = {
        "float": float,
        "bytes": bytes,
        "list": list[str],
        "pair": tuple[str, int],
        "bare tuple": tuple,
        "map by number": dict[int, str],
        "set": set[str],
        "union": str | int,
        "union with null": str | int | None,
        "any": Any,
        "object": object,
        "enum of numbers": Level,
    }
    return {
        name: attrs.make_class("Strange", {"x": attrs.field(type=kind)}, frozen=True) for name, kind in kinds.items()
    }


@pytest.mark.parametrize("cls", alphabet_breakers().values(), ids=alphabet_breakers().keys())
def test_a_class_outside_the_alphabet_cannot_be_used(cls: type) -> None:
    with pytest.raises(TypeError, match="outside the alphabet"):
        convert.structure({"x": 1}, cls)
    with pytest.raises(TypeError, match="outside the alphabet"):
        convert.unstructure(cls(1))


MISDECLARED: dict[str, Any] = {
    "number in a text": {"text": 5},
    "true in a number": {"call": True},
    "list in a tuple": {"keys": ["a"]},
    "text in an enum": {"colour": "red"},
    "another class": {"inner": OUTER},
    "null where there must be something": {"text": None},
    "object in a map": {"named": [("a", 1)]},
    "float in a map": {"named": {"a": 1.5}},
}


@pytest.mark.parametrize("change", MISDECLARED.values(), ids=MISDECLARED.keys())
def test_what_would_not_be_read_again_is_not_written(change: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        convert.unstructure(attrs.evolve(OUTER, **change))


def test_a_time_outside_the_calendar_is_not_written() -> None:
    with pytest.raises(ValueError, match="1970"):
        convert.unstructure(attrs.evolve(OUTER, time=Timestamp(-1)))


@pytest.mark.parametrize("thing", [None, 1, "x", [], {}, ("a",), object], ids=repr)
def test_only_an_attrs_object_is_written(thing: object) -> None:
    with pytest.raises(TypeError, match="attrs class"):
        convert.unstructure(thing)


TABLE: dict[str, type[Inner | Older]] = {"inner": Inner, "older": Older}
NAMES: dict[type, str] = {Inner: "inner", Older: "older"}


def test_a_tagged_object_is_told_apart_by_its_table() -> None:
    tagged: JsonValue = {"type": "inner", "number": 1, "flag": True}
    read = convert.structure_tagged(tagged, TABLE, tag="type")
    assert read == Inner(number=1, flag=True)
    written = convert.unstructure_tagged(read, NAMES, tag="type")
    assert written == tagged
    assert isinstance(written, dict)
    assert next(iter(written)) == "type"


UNTOLD: dict[str, tuple[JsonValue, str]] = {
    "no tag": ({"number": 1}, "type: missing"),
    "unknown tag": ({"type": "hunter2"}, "type: expected one of inner, older"),
    "tag of another type": ({"type": ["inner"]}, "type: expected one of inner, older"),
    "no object": ([], "expected an object, got a list"),
    "tag right, fields wrong": ({"type": "inner", "number": 1}, "flag: missing"),
}


@pytest.mark.parametrize(("untold", "message"), UNTOLD.values(), ids=UNTOLD.keys())
def test_a_tagged_object_that_the_table_does_not_know_is_refused(untold: JsonValue, message: str) -> None:
    with pytest.raises(BadMessage) as caught:
        convert.structure_tagged(untold, TABLE, tag="type")
    assert caught.value.detail.startswith(message)
    assert "hunter2" not in str(caught.value)
