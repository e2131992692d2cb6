"""The envelope, and the byte-exact files that are the specification of the wire (row F13 too)."""

from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import attrs
import pytest

from bxcore import envelope, strictjson
from bxcore.envelope import NO_REQUEST, Envelope
from bxcore.errors import BadMessage, BadVersion, WireError
from bxcore.frame import MAX_FRAME
from bxcore.ids import MAX_SAFE_INTEGER, SessionId
from bxcore.wire.channel import TextDelta, TurnCancel
from bxcore.wire.kinds import KIND_OF, KINDS
from tests.fixtures import make_wire

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures" / "wire").iterdir())
GOOD = b'{"v":1,"id":7,"final":true,"msg":{"kind":"turn_cancel","body":{"session":"s","turn":4}}}'


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_a_fixture_is_read_and_written_back_byte_for_byte(path: Path) -> None:
    raw = path.read_bytes()
    read = envelope.decode(raw)
    assert KIND_OF[type(read.msg)] == path.name.split(".")[0]
    assert envelope.encode(read) == raw
    assert len(raw) < MAX_FRAME


def test_the_fixtures_are_those_that_make_golden_writes() -> None:
    made = {f"{name}.json": envelope.encode(one) for name, one in make_wire.envelopes().items()}
    assert {path.name: path.read_bytes() for path in FIXTURES} == made


def test_every_kind_has_a_class_of_its_own() -> None:
    assert len(KIND_OF) == len(KINDS)


def test_an_envelope_has_these_bytes() -> None:
    one = Envelope(id=7, final=True, msg=TurnCancel(session=SessionId("s"), turn=4))
    assert envelope.encode(one) == GOOD
    assert envelope.decode(GOOD) == one


def test_every_optional_field_is_pinned_with_a_value_and_without() -> None:
    seen: dict[tuple[type, str], set[bool]] = {}
    for one in make_wire.envelopes().values():
        cls: Any = type(one.msg)
        for field in attrs.fields(cls):
            if get_origin(field.type) in (Union, UnionType):
                seen.setdefault((cls, field.name), set()).add(getattr(one.msg, field.name) is None)
    assert {field: both for field, both in seen.items() if both != {True, False}} == {}


def wire_classes(kind: Any) -> set[type]:
    """Return the attrs classes and enums that a type of the wire is made of."""
    if isinstance(kind, type) and attrs.has(kind):
        attrs.resolve_types(kind)
        return {kind}.union(*(wire_classes(field.type) for field in attrs.fields(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {kind}
    return set[type]().union(*(wire_classes(part) for part in get_args(kind) if part not in (NoneType, Ellipsis)))


def test_no_wire_class_has_a_default() -> None:
    classes = [cls for kind in KINDS.values() for cls in wire_classes(kind) if attrs.has(cls)]
    defaults = [
        (cls, field.name) for cls in classes for field in attrs.fields(cls) if field.default is not attrs.NOTHING
    ]
    assert defaults == []


def test_the_largest_id_is_read_and_written() -> None:
    raw = GOOD.replace(b"7", str(MAX_SAFE_INTEGER).encode())
    assert envelope.encode(envelope.decode(raw)) == raw


BAD: dict[str, bytes] = {
    "a list": b"[]",
    "a text": b'"x"',
    "no v": b'{"id":7,"final":true,"msg":{"kind":"turn_cancel","body":{"session":"s","turn":4}}}',
    "v as text": GOOD.replace(b'"v":1', b'"v":"1"'),
    "v as true": GOOD.replace(b'"v":1', b'"v":true'),
    "v as null": GOOD.replace(b'"v":1', b'"v":null'),
    "no id": GOOD.replace(b'"id":7,', b""),
    "negative id": GOOD.replace(b"7", b"-7"),
    "id as text": GOOD.replace(b"7", b'"7"'),
    "id as true": GOOD.replace(b"7", b"true"),
    "id beyond 2^53": GOOD.replace(b"7", b"9007199254740992"),
    "no final": GOOD.replace(b'"final":true,', b""),
    "final as 1": GOOD.replace(b"true", b"1"),
    "final as null": GOOD.replace(b"true", b"null"),
    "unknown key outside": GOOD.replace(b'"v":1', b'"v":1,"hunter2":0'),
    "duplicate key outside": GOOD.replace(b'"v":1', b'"v":1,"v":1'),
    "no msg": b'{"v":1,"id":7,"final":true}',
    "msg as a list": b'{"v":1,"id":7,"final":true,"msg":["turn_cancel",{"session":"s","turn":4}]}',
    "unknown key in msg": GOOD.replace(b'"kind"', b'"sender":"loopd","kind"'),
    "no kind": GOOD.replace(b'"kind":"turn_cancel",', b""),
    "unknown kind": GOOD.replace(b"turn_cancel", b"hunter2_grant"),
    "kind in capitals": GOOD.replace(b"turn_cancel", b"TURN_CANCEL"),
    "kind as a list": GOOD.replace(b'"turn_cancel"', b'["turn_cancel"]'),
    "no body": GOOD.replace(b',"body":{"session":"s","turn":4}', b""),
    "body as null": GOOD.replace(b'{"session":"s","turn":4}', b"null"),
    "body of another kind": GOOD.replace(b'"session":"s"', b'"limit":5'),
    "unknown key in body": GOOD.replace(b'"session":"s"', b'"session":"s","hunter2":1'),
    "missing key in body": GOOD.replace(b'"session":"s"', b""),
    "null in body": GOOD.replace(b'"s"', b"null"),
    "empty session": GOOD.replace(b'"s"', b'""'),
    "session of 10 kB": GOOD.replace(b'"s"', b'"' + b"s" * 10_240 + b'"'),
    "session with a newline": GOOD.replace(b'"s"', b'"s\\nrole=admin"'),
    "trailing bytes": GOOD + b" x",
    "two envelopes": GOOD + GOOD,
    "NUL padding": GOOD + b"\0\0",
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_anything_else_is_a_bad_message_that_quotes_no_value(raw: bytes) -> None:
    with pytest.raises(BadMessage) as caught:
        envelope.decode(raw)
    assert caught.value.code == "bad_message"
    assert "hunter2_grant" not in str(caught.value)
    assert "role=admin" not in str(caught.value)


@pytest.mark.parametrize("number", [0, 2, -1, 99])
def test_another_version_is_refused_as_such_whatever_else_it_holds(number: int) -> None:
    for raw in (GOOD.replace(b'"v":1', b'"v":%d' % number), b'{"v":%d,"hello":"world"}' % number):
        with pytest.raises(BadVersion) as caught:
            envelope.decode(raw)
        assert caught.value.code == "bad_version"


def test_a_fault_inside_a_body_names_the_kind_and_the_path() -> None:
    with pytest.raises(WireError) as caught:
        envelope.decode(GOOD.replace(b'"s"', b"5"))
    assert caught.value.detail.startswith("turn_cancel: session: expected 1 to 64 characters")


ANSWERABLE: dict[str, tuple[bytes, int]] = {
    "body is wrong": (GOOD.replace(b'"s"', b"5"), 7),
    "kind is unknown": (GOOD.replace(b"turn_cancel", b"nonsense"), 7),
    "another version": (b'{"v":2,"id":8}', 8),
    "id is wrong": (GOOD.replace(b"7", b'"7"'), NO_REQUEST),
    "no object": (b"[7]", NO_REQUEST),
    "no JSON": (b'{"id":7', NO_REQUEST),
    "nothing": (b"", NO_REQUEST),
}


@pytest.mark.parametrize(("raw", "number"), ANSWERABLE.values(), ids=ANSWERABLE.keys())
def test_a_refusal_can_carry_the_id_of_what_it_refuses(raw: bytes, number: int) -> None:
    assert envelope.request_id(raw) == number


def test_only_a_message_can_be_sent() -> None:
    with pytest.raises(KeyError):
        envelope.encode(Envelope(id=1, final=True, msg=Envelope(id=1, final=True, msg=None)))


def test_a_text_that_is_no_unicode_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        envelope.encode(Envelope(id=1, final=False, msg=TextDelta(turn=1, step=1, text="\ud800")))


def test_a_fixture_is_read_by_strict_json_alone() -> None:
    for path in FIXTURES:
        assert strictjson.dumps(strictjson.loads(path.read_bytes())) == path.read_bytes()
