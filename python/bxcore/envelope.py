"""What every frame holds: `{"v":1,"id":7,"final":true,"msg":{"kind":"...","body":{...}}}`.

`id` is the requester's choice and the same in every frame of the response; `final` is true in the
last one only. The kinds and their classes: bxcore.wire.kinds. Pure. Specified in docs/protocol.md.
"""

import attrs

from bxcore import convert, strictjson
from bxcore.errors import BadMessage, BadVersion
from bxcore.ids import MAX_SAFE_INTEGER
from bxcore.strictjson import JsonValue
from bxcore.wire.kinds import KIND_OF, KINDS

PROTOCOL_VERSION = 1

NO_REQUEST = 0
"""The id of an error frame that answers something whose id could not be read."""


@attrs.frozen(kw_only=True)
class Envelope:
    """One message with its address. `msg` is an object of a class in KINDS; `id` is 0 to 2^53-1."""

    id: int
    final: bool
    msg: object


def encode(envelope: Envelope) -> bytes:
    """Return the payload of one frame. KeyError for a class that is no message; see strictjson.dumps."""
    kind = KIND_OF[type(envelope.msg)]
    return strictjson.dumps(
        {
            "v": PROTOCOL_VERSION,
            "id": envelope.id,
            "final": envelope.final,
            "msg": {"kind": kind, "body": convert.unstructure(envelope.msg)},
        }
    )


def decode(untrusted: bytes) -> Envelope:
    """Return the envelope that `untrusted` spells, or raise BadVersion or BadMessage."""
    outer = _object(strictjson.loads(untrusted), "the envelope")
    _check_version(outer)
    _check_keys(outer, ("v", "id", "final", "msg"), "")
    final = outer["final"]
    if type(final) is not bool:
        raise BadMessage("final: expected true or false")
    return Envelope(id=_request_id(outer), final=final, msg=_message(outer["msg"]))


def request_id(untrusted: bytes) -> int:
    """Return the id in a payload that `decode` refused, for the answer; NO_REQUEST where there is none."""
    try:
        return _request_id(_object(strictjson.loads(untrusted), "the envelope"))
    except BadMessage:
        return NO_REQUEST


def _object(untrusted: JsonValue, what: str) -> dict[str, JsonValue]:
    if type(untrusted) is dict:
        return untrusted
    raise BadMessage(f"{what}: expected an object")


def _check_version(outer: dict[str, JsonValue]) -> None:
    # Before anything else: another version may well have other keys.
    version = outer.get("v")
    if type(version) is not int:
        raise BadMessage("v: expected a whole number")
    if version != PROTOCOL_VERSION:
        raise BadVersion(f"v: expected protocol version {PROTOCOL_VERSION}, got another")


def _check_keys(untrusted: dict[str, JsonValue], keys: tuple[str, ...], path: str) -> None:
    for key in keys:
        if key not in untrusted:
            raise BadMessage(f"{path}{key}: missing")
    if len(untrusted) != len(keys):
        extra = min(untrusted.keys() - set(keys))
        raise BadMessage(f"{path}{convert.plain_key(extra)}: unknown key")


def _request_id(outer: dict[str, JsonValue]) -> int:
    number = outer.get("id")
    if type(number) is int and 0 <= number <= MAX_SAFE_INTEGER:
        return number
    raise BadMessage("id: expected a whole number from 0 to 2^53-1")


def _message(untrusted: JsonValue) -> object:
    tagged = _object(untrusted, "msg")
    _check_keys(tagged, ("kind", "body"), "msg.")
    kind = tagged["kind"]
    if type(kind) is not str or kind not in KINDS:
        raise BadMessage("msg.kind: expected a kind of docs/protocol.md, got something else")
    try:
        return convert.structure(tagged["body"], KINDS[kind])
    except BadMessage as error:
        raise BadMessage(f"{kind}: {error.detail}") from None
