"""Every message of every kind survives the wire; any other value in its place is refused, never a crash."""

from collections.abc import Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import attrs
from hypothesis import given
from hypothesis import strategies as st

from bxcore import envelope, strictjson
from bxcore.envelope import Envelope
from bxcore.errors import BadMessage, BadVersion
from bxcore.ids import MAX_SAFE_INTEGER, CallId, Hash32, MattermostId, MessageKey, SessionId
from bxcore.strictjson import JsonValue
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp
from bxcore.wire.kinds import KINDS
from tests.fixtures import make_wire

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NUMBERS = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)

BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: NUMBERS,
    bool: st.booleans(),
    SessionId: st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,63}\Z"),
    MessageKey: st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z"),
    CallId: st.integers(1, MAX_SAFE_INTEGER),
    Hash32: st.from_regex(r"\A[0-9a-f]{64}\Z"),
    MattermostId: st.from_regex(r"\A[a-z0-9]{26}\Z"),
    Timestamp: st.integers(0, MAX_TIMESTAMP),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    if kind in BY_TYPE:
        return BY_TYPE[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if get_origin(kind) is tuple:
        return st.lists(values(get_args(kind)[0]), max_size=4).map(tuple)
    if attrs.has(kind):
        return messages(kind)
    assert get_origin(kind) in (Union, UnionType)
    return st.one_of([st.none() if part is NoneType else values(part) for part in get_args(kind)])


def messages(cls: Any) -> st.SearchStrategy[Any]:
    attrs.resolve_types(cls)
    return st.builds(cls, **{field.name: values(field.type) for field in attrs.fields(cls)})


ENVELOPES = st.builds(
    Envelope,
    id=st.integers(0, MAX_SAFE_INTEGER),
    final=st.booleans(),
    msg=st.sampled_from(list(KINDS.values())).flatmap(messages),
)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(ENVELOPES)
def test_every_message_survives_the_wire(one: Envelope) -> None:
    raw = envelope.encode(one)
    assert envelope.decode(raw) == one
    assert envelope.encode(envelope.decode(raw)) == raw


def places(value: JsonValue, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def changed(value: Any, path: tuple[str | int, ...], new: JsonValue) -> Any:
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


@given(st.sampled_from(list(make_wire.envelopes().values())), JSON, st.data())
def test_any_value_anywhere_in_a_message_is_read_or_refused(one: Envelope, new: JsonValue, data: st.DataObject) -> None:
    value = strictjson.loads(envelope.encode(one))
    path = data.draw(st.sampled_from(list(places(value))))
    raw = strictjson.dumps(changed(value, path, new))
    try:
        read = envelope.decode(raw)
    except (BadMessage, BadVersion):
        return
    assert envelope.encode(read) == raw  # what is read is exactly what came


@given(st.sampled_from(list(make_wire.envelopes().values())), st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_read_exactly_or_refused(one: Envelope, at: int, bit: int) -> None:
    raw = bytearray(envelope.encode(one))
    raw[at % len(raw)] ^= 1 << bit
    try:
        read = envelope.decode(bytes(raw))
    except (BadMessage, BadVersion):
        return
    assert envelope.decode(envelope.encode(read)) == read
