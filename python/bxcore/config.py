"""An owner-written TOML file -> one frozen value, or every fault at once, each with its line.

The class says what may stand in the file: str, int, bool, Decimal, Path (absolute), Enum (of texts),
tuple[X, ...], dict[str, X], X | None, nested attrs classes (tables). Defaults live in the class; a key that the
class does not have is a fault; its validators are asked too. Reads: the file, once. Writes nothing.
Raises ConfigError only (exit 78).
"""

import difflib
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import attrs

from bxcore import tomlfile
from bxcore.errors import ConfigError
from bxcore.ids import MAX_SAFE_INTEGER
from bxcore.tomlfile import Keys

T = TypeVar("T")

# What a key may not hold shows as this while the rest of the file is looked at.
_NOTHING = object()


@attrs.frozen
class Fault:
    """One thing that is wrong: where it stands, and what was expected there."""

    keys: Keys
    what: str


class ConfigFaults(ConfigError):
    """All that is wrong with one file, one line each: `file:line: key: what`."""

    code = "config"


def load(path: Path, cls: type[T]) -> T:
    """Return what `path` says as a `cls`, or raise ConfigError with every fault, in order of lines."""
    document = tomlfile.read(path)
    faults: list[Fault] = []
    made = _table(cls, document.content, (), faults)
    if faults:
        raise ConfigFaults("\n".join(_told(path, document, faults)))
    assert isinstance(made, cls)
    return made


def _told(path: Path, document: tomlfile.Document, faults: list[Fault]) -> list[str]:
    lines = document.lines()
    placed = [(tomlfile.line_of(lines, fault.keys), fault) for fault in faults]
    placed.sort(key=lambda pair: pair[0])
    return [f"{path}:{line}: {_name(fault.keys)}{fault.what}" for line, fault in placed]


def _name(keys: Keys) -> str:
    name = ""
    for key in keys:
        name += f"[{key}]" if isinstance(key, int) else f".{key}" if name else key
    return f"{name}: " if name else ""


# -- reading by type --------------------------------------------------------------------------


def _table(cls: type, value: object, keys: Keys, faults: list[Fault]) -> Any:
    if type(value) is not dict:
        return _refuse("a table", value, keys, faults)
    attrs.resolve_types(cls)
    fields = attrs.fields_dict(cls)
    before = len(faults)
    strange = (key for key in value if key not in fields)
    faults.extend(Fault((*keys, key), f"unknown key{_suggestion(key, fields)}") for key in strange)
    found = {}
    for name, field in fields.items():
        if name in value:
            found[name] = _field(field, value[name], (*keys, name), faults)
        elif field.default is attrs.NOTHING:
            faults.append(Fault((*keys, name), f"missing; expected {_wanted(field.type)}"))
    return _made(cls, found, keys, faults) if len(faults) == before else _NOTHING


def _made(cls: type, found: dict[str, Any], keys: Keys, faults: list[Fault]) -> Any:
    try:
        return cls(**found)
    except ValueError as error:  # a rule of the class about several keys together
        faults.append(Fault(keys, str(error.args[0])))
        return _NOTHING


def _field(field: "attrs.Attribute[Any]", value: object, keys: Keys, faults: list[Fault]) -> Any:
    before = len(faults)
    found = _value(field.type, value, keys, faults)
    if field.validator is not None and len(faults) == before:
        try:
            field.validator(None, field, found)
        except ValueError as error:
            faults.append(Fault(keys, str(error.args[0]).removeprefix(f"{field.name}: ")))
    return found


def _value(kind: Any, value: object, keys: Keys, faults: list[Fault]) -> Any:
    if kind in _PLAIN:
        wanted, accept = _PLAIN[kind]
        found = accept(value)
        return _refuse(wanted, value, keys, faults) if found is _NOTHING else found
    if isinstance(kind, type) and attrs.has(kind):
        return _table(kind, value, keys, faults)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind, value, keys, faults)
    if _item_of_tuple(kind) is not None:
        return _items(_item_of_tuple(kind), value, keys, faults)
    if _item_of_dict(kind) is not None:
        return _entries(_item_of_dict(kind), value, keys, faults)
    if _inside_optional(kind) is not None:
        return _value(_inside_optional(kind), value, keys, faults)
    raise TypeError(f"{kind} cannot stand in a configuration class")


def _member(kind: type[Enum], value: object, keys: Keys, faults: list[Fault]) -> Any:
    for member in kind:
        if type(value) is str and member.value == value:
            return member
    return _refuse(_wanted(kind), value, keys, faults)


def _items(item: Any, value: object, keys: Keys, faults: list[Fault]) -> Any:
    if type(value) is not list:
        return _refuse("a list", value, keys, faults)
    return tuple(_value(item, entry, (*keys, index), faults) for index, entry in enumerate(value))


def _entries(item: Any, value: object, keys: Keys, faults: list[Fault]) -> Any:
    if type(value) is not dict:
        return _refuse("a table", value, keys, faults)
    return {key: _value(item, entry, (*keys, key), faults) for key, entry in value.items()}


def _refuse(wanted: str, value: object, keys: Keys, faults: list[Fault]) -> object:
    faults.append(Fault(keys, f"expected {wanted}, got {tomlfile.word(value)}"))
    return _NOTHING


# -- the plain types --------------------------------------------------------------------------


def _exactly(kind: type) -> Callable[[object], object]:
    return lambda value: value if type(value) is kind else _NOTHING


def _integer(value: object) -> object:
    return value if type(value) is int and abs(value) <= MAX_SAFE_INTEGER else _NOTHING


def _decimal(value: object) -> object:
    if type(value) is int or (isinstance(value, Decimal) and value.is_finite()):
        return Decimal(value)
    return _NOTHING


def _absolute_path(value: object) -> object:
    # A relative path would mean another file in each working directory.
    if type(value) is str and value.startswith("/") and "\0" not in value:
        return Path(value)
    return _NOTHING


_PLAIN: Mapping[Any, tuple[str, Callable[[object], object]]] = {
    str: ("text", _exactly(str)),
    int: ("a whole number", _integer),
    bool: ("true or false", _exactly(bool)),
    Decimal: ("a number", _decimal),
    Path: ("an absolute path", _absolute_path),
}


def _wanted(kind: Any) -> str:
    if kind in _PLAIN:
        return _PLAIN[kind][0]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(f'"{member.value}"' for member in kind)
    if _item_of_tuple(kind) is not None:
        return "a list"
    inside = _inside_optional(kind)
    return "a table" if inside is None else _wanted(inside)


def _item_of_tuple(kind: Any) -> Any:
    arguments = get_args(kind)
    if get_origin(kind) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return arguments[0]
    return None


def _item_of_dict(kind: Any) -> Any:
    arguments = get_args(kind)
    return arguments[1] if get_origin(kind) is dict and arguments[0] is str else None


def _inside_optional(kind: Any) -> Any:
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        return arguments[0] if arguments[1] is NoneType else arguments[1]
    return None


def _suggestion(key: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
