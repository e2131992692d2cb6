"""JSON values -> typed values and back, refusing whatever a converter would bend.

The alphabet: str, int, bool, Enum (of texts), tuple[X, ...], dict[str, X], X | None, attrs classes,
and the NewTypes of bxcore.ids and bxcore.timestamp, each through its own parser. Every key must be
known; every key must be there, unless its class gives a default (stored records may; wire classes
never do). A class with anything else in it is a TypeError at its first use. Errors name the path to
the fault, never a value. Pure; safe to use from many threads.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from bxcore import ids, timestamp
from bxcore.errors import BadMessage
from bxcore.strictjson import JsonValue

T = TypeVar("T")

# cattrs calls a structure hook with the value and the type; the type is known when the hook is made.
StructureHook = Callable[[Any, Any], Any]
UnstructureHook = Callable[[Any], Any]

_WORDS: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    NoneType: "null",
}

# A key that the sender chose is quoted only where it looks like one of ours.
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


class _Fault(Exception):
    """What is wrong, and where; the path grows from the inside out."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.path = path


def structure(value: JsonValue, cls: type[T]) -> T:
    """Return `value` as a `cls`, or raise BadMessage naming the path of the first fault."""
    kind: Any = cls
    try:
        made: T = _reader(kind)(value, kind)
    except (_Fault, ClassValidationError) as error:
        fault = _first_fault(error)
    else:
        return made
    where = fault.path.removeprefix(".")
    raise BadMessage(f"{where}: {fault.what}" if where else fault.what)


def unstructure(obj: object) -> JsonValue:
    """Return the JSON value of an attrs object: keys in the order of its class, enums by value.

    Raises TypeError for anything outside the alphabet, also where a field holds another type than
    it declares: what would not be read again is not written.
    """
    kind: Any = type(obj)
    if not attrs.has(kind):
        raise TypeError(f"{kind.__name__} has no JSON form: expected an object of an attrs class")
    value: JsonValue = _writer(kind)(obj)
    return value


def structure_tagged(value: JsonValue, table: Mapping[str, type[T]], *, tag: str) -> T:
    """Return `value` as the class that `table` gives for its key `tag`, or raise BadMessage."""
    if type(value) is not dict:
        raise BadMessage(f"expected an object, got {_word(value)}")
    if tag not in value:
        raise BadMessage(f"{tag}: missing")
    name = value[tag]
    if type(name) is not str or name not in table:
        raise BadMessage(f"{tag}: expected one of {', '.join(table)}, got something else")
    return structure({key: item for key, item in value.items() if key != tag}, table[name])


def unstructure_tagged(obj: object, names: Mapping[type, str], *, tag: str) -> JsonValue:
    """Return the JSON value of `obj` with the key `tag` first. KeyError where `names` lacks its class."""
    kind: Any = type(obj)
    return {tag: names[kind], **_writer(kind)(obj)}


def plain_key(key: str) -> str:
    """Return `key` for use in an error; one that does not look like a name is described instead."""
    return key if _PLAIN_KEY.fullmatch(key) else f"(a key of {len(key)} characters)"


# -- reading ----------------------------------------------------------------------------------


@cache
def _reader(kind: Any) -> StructureHook:
    """Return the hook that reads a `kind`, made once; TypeError outside the alphabet."""
    if kind in _PARSERS:
        return _parsed(_PARSERS[kind])
    if kind in (str, bool):
        return _exactly(kind)
    if kind is int:
        return _read_integer
    if isinstance(kind, type) and attrs.has(kind):
        return _object_reader(kind)
    if _is_text_enum(kind):
        return _enum_reader(kind)
    match _shape(kind):
        case ("tuple", item):
            return _list_reader(_reader(item), item)
        case ("dict", item):
            return _map_reader(_reader(item), item)
        case ("optional", item):
            return _optional_reader(_reader(item), item)
    raise _outside(kind)


def _exactly(kind: type) -> StructureHook:
    # isinstance() would let True pass for 1.
    def read(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        raise _expected(_WORDS[kind], value)

    return read


def _read_integer(value: Any, _: Any) -> int:
    if type(value) is not int:
        raise _expected(_WORDS[int], value)
    if -ids.MAX_SAFE_INTEGER <= value <= ids.MAX_SAFE_INTEGER:
        return value
    raise _Fault("expected a whole number between -(2^53-1) and 2^53-1, got another")


def _parsed(parser: Callable[[object], Any]) -> StructureHook:
    def read(value: Any, _: Any) -> Any:
        try:
            return parser(value)
        except ValueError as error:
            raise _Fault(str(error)) from None

    return read


def _enum_reader(kind: type[Enum]) -> StructureHook:
    members: dict[str, Enum] = {member.value: member for member in kind}

    def read(value: Any, _: Any) -> Enum:
        if type(value) is str and value in members:
            return members[value]
        raise _Fault(f"expected one of {', '.join(members)}, got something else")

    return read


def _object_reader(kind: type) -> StructureHook:
    attrs.resolve_types(kind)
    hooks: dict[str, Any] = {f.name: override(struct_hook=_reader(f.type)) for f in attrs.fields(kind)}
    build: StructureHook = make_dict_structure_fn(
        kind,
        _GENERATOR,
        _cattrs_forbid_extra_keys=True,
        _cattrs_detailed_validation=True,
        _cattrs_use_linecache=False,
        **hooks,
    )

    def read(value: Any, _: Any) -> Any:
        if type(value) is dict:
            return build(value, kind)
        raise _expected(_WORDS[dict], value)

    return read


def _list_reader(read_item: StructureHook, item: Any) -> StructureHook:
    def read(value: Any, _: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _expected(_WORDS[list], value)
        index = 0
        found = []
        try:
            for index, entry in enumerate(value):  # noqa: B007 - the index is for the fault
                found.append(read_item(entry, item))
        except (_Fault, ClassValidationError) as error:
            raise _inside(f"[{index}]", error) from None
        return tuple(found)

    return read


def _map_reader(read_item: StructureHook, item: Any) -> StructureHook:
    def read(value: Any, _: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _expected(_WORDS[dict], value)
        key = ""
        found = {}
        try:
            for key, entry in value.items():
                found[key] = read_item(entry, item)
        except (_Fault, ClassValidationError) as error:
            raise _inside(f".{plain_key(key)}", error) from None
        return found

    return read


def _optional_reader(read_item: StructureHook, item: Any) -> StructureHook:
    def read(value: Any, _: Any) -> Any:
        return None if value is None else read_item(value, item)

    return read


def _expected(what: str, value: object) -> _Fault:
    return _Fault(f"expected {what}, got {_word(value)}")


def _word(value: object) -> str:
    return _WORDS.get(type(value), "something else")


def _inside(step: str, error: Exception) -> _Fault:
    fault = _first_fault(error)
    return _Fault(fault.what, step + fault.path)


def _first_fault(error: Exception) -> _Fault:
    """Return the first fault in what a generated reader raised; anything unforeseen is raised again."""
    if isinstance(error, _Fault):
        return error
    if isinstance(error, ForbiddenExtraKeysError):
        return _Fault("unknown key", f".{plain_key(min(error.extra_fields))}")
    if isinstance(error, ClassValidationError):
        noted, others = error.group_exceptions()
        for inner, note in noted:
            return _inside(f".{note.name}", inner)
        return _first_fault(others[0])
    if isinstance(error, KeyError):
        return _Fault("missing")
    if isinstance(error, ValueError):  # a validator of the class; its message may quote the value
        return _Fault("a value lies outside the range that it may have")
    raise error


# -- writing ----------------------------------------------------------------------------------


@cache
def _writer(kind: Any) -> UnstructureHook:
    """Return the hook that writes a `kind`, made once; TypeError outside the alphabet."""
    if kind is timestamp.Timestamp:
        return timestamp.to_text
    if kind in _PARSERS:
        return _writer(kind.__supertype__)
    if kind in (str, int, bool):
        return _same(kind)
    if isinstance(kind, type) and attrs.has(kind):
        return _object_writer(kind)
    if _is_text_enum(kind):
        return _enum_writer(kind)
    match _shape(kind):
        case ("tuple", item):
            return _list_writer(_writer(item))
        case ("dict", item):
            return _map_writer(_writer(item))
        case ("optional", item):
            return _optional_writer(_writer(item))
    raise _outside(kind)


def _same(kind: type) -> UnstructureHook:
    def write(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise TypeError(f"a field declared {kind.__name__} holds {type(value).__name__}")

    return write


def _enum_writer(kind: type[Enum]) -> UnstructureHook:
    def write(value: Any) -> str:
        if type(value) is kind:
            text: str = value.value
            return text
        raise TypeError(f"a field declared {kind.__name__} holds {type(value).__name__}")

    return write


def _object_writer(kind: type) -> UnstructureHook:
    attrs.resolve_types(kind)
    hooks: dict[str, Any] = {f.name: override(unstruct_hook=_writer(f.type)) for f in attrs.fields(kind)}
    dump: UnstructureHook = make_dict_unstructure_fn(kind, _GENERATOR, _cattrs_use_linecache=False, **hooks)

    def write(value: Any) -> Any:
        if type(value) is kind:
            return dump(value)
        raise TypeError(f"a field declared {kind.__name__} holds {type(value).__name__}")

    return write


def _list_writer(write_item: UnstructureHook) -> UnstructureHook:
    def write(value: Any) -> list[Any]:
        if type(value) is tuple:
            return [write_item(item) for item in value]
        raise TypeError(f"a field declared a tuple holds {type(value).__name__}")

    return write


def _map_writer(write_item: UnstructureHook) -> UnstructureHook:
    def write(value: Any) -> dict[str, Any]:
        if type(value) is dict:
            return {key: write_item(item) for key, item in value.items()}
        raise TypeError(f"a field declared a dict holds {type(value).__name__}")

    return write


def _optional_writer(write_item: UnstructureHook) -> UnstructureHook:
    def write(value: Any) -> Any:
        return None if value is None else write_item(value)

    return write


# -- the alphabet -----------------------------------------------------------------------------

# Only the code generator of cattrs is used. Its dispatch is not: it would read a class of another
# kind (a str that is an Enum, a list, a float) by rules that are not ours.
_GENERATOR = cattrs.Converter()

_PARSERS: Mapping[Any, Callable[[object], Any]] = {
    ids.SessionId: ids.session_id,
    ids.MessageKey: ids.message_key,
    ids.CallId: ids.call_id,
    ids.Hash32: ids.hash32,
    ids.MattermostId: ids.mattermost_id,
    timestamp.Timestamp: timestamp.from_text,
}


def _is_text_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum) and all(type(m.value) is str for m in kind)


def _shape(kind: Any) -> tuple[str, Any] | None:
    """Return ("tuple" | "dict" | "optional", type of the item), or None for any other type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return "tuple", arguments[0]
    if origin is dict and arguments[0] is str:
        return "dict", arguments[1]
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        return "optional", arguments[0] if arguments[1] is NoneType else arguments[1]
    return None


def _outside(kind: Any) -> TypeError:
    return TypeError(f"{kind} lies outside the alphabet of stored and sent types")
