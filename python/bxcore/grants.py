"""One grant file -> a Grant, or every fault in it with its line; and the set that policy decides over.

A grant is the owner's word in grants/<id>.toml: which tool, on which paths or hosts, whether it asks first.
Invariant: what cannot be read exactly as it was meant is refused, since a deny grant that is not understood
allows. A file cut short at any byte never reads as a wider grant: [constraints] stands last and is needed.
Pure; brokerd.grantset reads the files. The one parser for brokerd and bxctl. Specified in docs/grants.md.
"""

import difflib
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

import attrs

from bxcore import hosts, paths, sanitize, tomlfile
from bxcore.errors import ConfigError
from bxcore.grantfile import GrantFile, Wrong
from bxcore.hosts import HostRule
from bxcore.ids import Hash32
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp
from bxcore.tomlfile import Keys
from bxcore.tools import TOOLS, Takes, ToolKind
from bxcore.wire.tools import DataClass

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

SUFFIX = ".toml"

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_FORM = "a date and time with its zone, as 2026-12-31T00:00:00Z"


class Mode(Enum):
    """What a matching grant does: let the call run, ask the owner, or refuse."""

    AUTO = "auto"
    ASK = "ask"
    DENY = "deny"


@attrs.frozen(kw_only=True)
class Grant:
    """One grant. `max_taint` is the highest session taint under which it applies.

    `result_class` and `untrusted` label what a call under it returns; `expires` is the first moment at which
    it no longer counts. `hash` is that of the file, byte for byte.
    """

    id: str
    tool: str
    mode: Mode
    max_taint: DataClass
    result_class: DataClass
    untrusted: bool
    expires: Timestamp | None
    paths: tuple[str, ...]
    hosts: tuple[HostRule, ...]
    hash: Hash32
    path_parts: tuple[tuple[str, ...], ...] = attrs.field(init=False, eq=False, repr=False)

    @path_parts.default
    def _cut_paths(self) -> tuple[tuple[str, ...], ...]:
        return tuple(paths.parts(path) for path in self.paths)


def _in_order(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    ordered = tuple(sorted(grants, key=lambda grant: grant.id))
    if len({grant.id for grant in ordered}) < len(ordered):
        raise ValueError("two grants have one id")
    return ordered


@attrs.frozen(kw_only=True)
class GrantSet:
    """All grants, by id. `digest` changes when any file does; `by_tool` leaves out tools without a grant."""

    grants: tuple[Grant, ...] = attrs.field(converter=_in_order)
    digest: Hash32 = attrs.field(init=False)
    by_tool: Mapping[str, tuple[Grant, ...]] = attrs.field(init=False, eq=False, repr=False)

    @digest.default
    def _digest(self) -> Hash32:
        lines = (f"{grant.id} {grant.hash}\n" for grant in self.grants)
        return Hash32(hashlib.sha256("".join(lines).encode()).hexdigest())

    @by_tool.default
    def _index(self) -> Mapping[str, tuple[Grant, ...]]:
        index: dict[str, list[Grant]] = {}
        for grant in self.grants:
            index.setdefault(grant.tool, []).append(grant)
        return MappingProxyType({tool: tuple(grants) for tool, grants in index.items()})


@attrs.frozen(kw_only=True)
class GrantFault:
    """One thing that is wrong with `file`, at `line`, or with the whole file where that is 0."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


class GrantFaults(ConfigError):
    """All that is wrong with the grant files. While there is anything, every call is denied."""

    code = "grants_invalid"

    def __init__(self, faults: Iterable[GrantFault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: (fault.file, fault.line)))
        super().__init__("\n".join(map(str, self.faults)))


def shown(file_name: str) -> str:
    """Return a file's name as faults show it: nothing in it can hide or steer."""
    return sanitize.escape_terminal(file_name, keep_newlines=False)


def parse(file_name: str, content: bytes) -> Grant:
    """Return the grant that `content` says, or raise GrantFaults with every fault and its line.

    `file_name` is the name alone, without directories: its stem is the grant's id.
    """
    name = shown(file_name)
    wrong = _wrong_name(file_name)
    faults = [] if wrong is None else [GrantFault(file=name, line=0, text=f"{_NAME_FORM}; {wrong}")]
    try:
        file = GrantFile(tomlfile.parse(name, content))
    except tomlfile.BadToml as error:
        what = sanitize.escape_terminal(error.what, keep_newlines=False)
        raise GrantFaults([*faults, GrantFault(file=name, line=error.line, text=what)]) from None
    grant = _grant(file_name.removesuffix(SUFFIX), file, Hash32(hashlib.sha256(content).hexdigest()))
    faults += (GrantFault(file=name, line=line, text=text) for line, text in file.faults())
    if faults or grant is None:
        raise GrantFaults(faults)
    return grant


_NAME_FORM = "expected a name of 1 to 64 characters of a-z, 0-9 and -, not starting with -, and then .toml"


def _wrong_name(file_name: str) -> str | None:
    """Say which rule the name of a file breaks, None for a good one."""
    stem = file_name.removesuffix(SUFFIX)
    if stem == file_name:
        return "it does not end in .toml, in small letters"
    if _ID.fullmatch(stem):
        return None
    if strange := next((character for character in stem if not _ID.fullmatch(f"a{character}")), None):
        return f"it holds {_kind_of(strange)}"
    if stem.startswith("-"):
        return "it starts with -"
    return f"it has {len(stem)} characters before .toml"


def _kind_of(character: str) -> str:
    if character.isupper():
        return "a capital letter"
    named = {" ": "a space", ".": "another dot", "_": "an underscore"}
    return named.get(character, "another character")


# -- the keys ---------------------------------------------------------------------------------

_CONSTRAINTS = "constraints"
_KNOWN = ("tool", "mode", "max_taint", "result_class", "untrusted", "expires", _CONSTRAINTS)
_LISTS: tuple[str, ...] = (Takes.PATHS.value, Takes.HOSTS.value)
_NOT_YET: Mapping[Keys, str] = {
    ("secret",): "no tool takes a secret yet; the file may not set one",
    (_CONSTRAINTS, "patterns"): "not a constraint yet; the file may not set it",
}


def _grant(grant_id: str, file: GrantFile, digest: Hash32) -> Grant | None:
    """Return the grant, or None where the file lacks what no default can stand for. Faults are in `file`."""
    kind = file.needed("tool", _tool, "the name of a tool")
    mode = file.needed("mode", _member(Mode), _one_of(Mode))
    max_taint = file.needed("max_taint", _member(DataClass), _one_of(DataClass))
    result_class = file.given("result_class", _member(DataClass), DataClass.PRIVATE)
    untrusted = file.given("untrusted", _truth, default=True)
    expires = file.given("expires", _moment, None)
    allowed_paths, allowed_hosts = _constraints(file, kind)
    _check_keys(file)
    _check_together(file, kind, mode, max_taint)
    if kind is None or mode is None or max_taint is None:
        return None
    return Grant(
        id=grant_id,
        tool=kind.name,
        mode=mode,
        max_taint=max_taint,
        result_class=result_class,
        untrusted=untrusted,
        expires=expires,
        paths=allowed_paths,
        hosts=allowed_hosts,
        hash=digest,
    )


def _constraints(file: GrantFile, kind: ToolKind | None) -> tuple[tuple[str, ...], tuple[HostRule, ...]]:
    """Return paths and hosts: read wherever they stand, and held against what the tool takes."""
    if kind is not None:
        _check_lists(file, kind)
    return file.items((_CONSTRAINTS, "paths"), paths.check_grant), file.items((_CONSTRAINTS, "hosts"), hosts.rule)


def _check_lists(file: GrantFile, kind: ToolKind) -> None:
    table = file.table(_CONSTRAINTS)
    for name in _LISTS:
        needed = kind.takes.value == name
        if needed and name not in table:
            file.refuse((_CONSTRAINTS, name), f"missing; a grant for {kind.name} needs a list of {name}")
        elif not needed and name in table:
            file.refuse((_CONSTRAINTS, name), f"a grant for {kind.name} takes no {name}")


def _check_keys(file: GrantFile) -> None:
    """Refuse what no grant may hold, and a file in which something follows the constraints."""
    for key in file.top():
        if key not in _KNOWN:
            file.refuse((key,), _NOT_YET.get((key,), f"unknown key{_suggestion(key, _KNOWN)}"))
    for key in file.table(_CONSTRAINTS):
        if key not in _LISTS:
            keys = (_CONSTRAINTS, key)
            file.refuse(keys, _NOT_YET.get(keys, f"unknown key{_suggestion(key, _LISTS)}"))
    constraints = file.top().get(_CONSTRAINTS, {})
    if type(constraints) is not dict:
        file.refuse((_CONSTRAINTS,), f"expected a table, got {tomlfile.word(constraints)}")
    if _CONSTRAINTS in list(file.top())[:-1]:
        # Else a file that an editor has half written could lack the expiry or the label that follows.
        file.refuse((_CONSTRAINTS,), "expected at the end of the file, after every other key")


def _check_together(file: GrantFile, kind: ToolKind | None, mode: Mode | None, max_taint: DataClass | None) -> None:
    if mode is Mode.DENY and max_taint not in {None, DataClass.SECRET}:
        file.refuse(("max_taint",), 'a deny grant needs "secret": with less it stops denying at a higher taint')
    if mode is Mode.AUTO and kind is not None and not kind.auto_allowed:
        file.refuse(("mode",), f'a grant for {kind.name} cannot be "auto": what it runs is not judged by its words')


def _suggestion(key: str, known: Iterable[str]) -> str:
    if key in (*_LISTS, "patterns"):
        return f"; it belongs under [{_CONSTRAINTS}]"
    if key in _KNOWN:
        return f"; it belongs above [{_CONSTRAINTS}]"
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


# -- the values -------------------------------------------------------------------------------


def _tool(value: object) -> ToolKind:
    if type(value) is not str:
        raise Wrong(f"expected the name of a tool, got {tomlfile.word(value)}")
    if value not in TOOLS:
        near = difflib.get_close_matches(value, TOOLS, n=1)
        raise Wrong("no such tool; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(TOOLS)}"))
    return TOOLS[value]


_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("allow", "allowed", "always", "yes"), "auto"),
    **dict.fromkeys(("approve", "confirm", "prompt"), "ask"),
    **dict.fromkeys(("block", "forbid", "never", "no"), "deny"),
}
"""What other programs call a mode."""


def _one_of(kind: type[Enum]) -> str:
    return "one of " + ", ".join(f'"{member.value}"' for member in kind)


def _member(kind: type[E]) -> Callable[[object], E]:
    def read(value: object) -> E:
        for member in kind:
            if type(value) is str and value == member.value:
                return member
        got = f"another text{_meant(kind, value)}" if type(value) is str else tomlfile.word(value)
        raise Wrong(f"expected {_one_of(kind)}, got {got}")

    return read


def _meant(kind: type[Enum], written: str) -> str:
    values = [member.value for member in kind]
    near = [value for value in values if value == _ELSEWHERE.get(written.lower())]
    near += difflib.get_close_matches(written.lower(), values, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _truth(value: object) -> bool:
    if type(value) is not bool:
        raise Wrong(f"expected true or false, got {tomlfile.word(value)}")
    return value


def _moment(value: object) -> Timestamp:
    """Return the time in milliseconds, rounded down: never later than what was written."""
    if not isinstance(value, date):
        raise Wrong(f"expected {_TIME_FORM}, got {tomlfile.word(value)}")
    if not isinstance(value, datetime):
        raise Wrong(f"expected {_TIME_FORM}, got a day without a time")
    if value.tzinfo is None:
        raise Wrong(f"expected {_TIME_FORM}, got a time without a zone")
    when = (value - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= when <= MAX_TIMESTAMP:
        raise Wrong("expected a time in the years 1970 to 9999")
    return Timestamp(when)
