"""The tools there are: what each is called, takes and may do, and the one reader of their arguments.

brokerd judges by this table, loopd shows its schemas to the model, and toolkit runs what it names.
Pure. Imported by every tool container at its start, so it stays with attrs and small modules.
Specified in docs/tools.md.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

import attrs

from bxcore import strictjson, toolarguments, toolschema
from bxcore.errors import BadMessage
from bxcore.strictjson import JsonValue
from bxcore.toolarguments import (
    BadArguments,
    EditFile,
    HttpFetch,
    ListDirectory,
    Method,
    ReadFile,
    SearchFiles,
    Shell,
    WriteFile,
)

__all__ = [
    "CUT",
    "MAX_ARGUMENT_BYTES",
    "TOOLS",
    "BadArguments",
    "EditFile",
    "HttpFetch",
    "ListDirectory",
    "Method",
    "ReadFile",
    "SearchFiles",
    "Shell",
    "Takes",
    "ToolKind",
    "WriteFile",
    "asked_path",
    "asked_url",
    "canonical",
    "parse",
    "schema",
    "with_path",
]

MAX_ARGUMENT_BYTES = 262_144
"""Of the JSON text as the model wrote it. As text inside a frame it at most doubles, and still fits."""

CUT = "[cut here"
"""How the last line of a result begins that the tool had to cut; brokerd's own cut ends the same way."""


class Takes(Enum):
    """Which constraint a grant for a tool must carry; it may carry no other."""

    PATHS = "paths"
    HOSTS = "hosts"
    NONE = "none"


@attrs.frozen(kw_only=True)
class ToolKind:
    """One tool. `default_ms` is the deadline of its container, `result_chars` the most that the model reads of it.

    `writes`: its mount is writable. `recursive`: it sees all below its path, so a denied path there
    denies the call. `auto_allowed`: a grant may let it run unasked.
    """

    name: str
    description: str
    arguments: type
    takes: Takes = Takes.PATHS
    writes: bool = False
    recursive: bool = False
    auto_allowed: bool = True
    default_ms: int = 20_000
    result_chars: int = 16_000


_ALL = (
    ToolKind(name="read_file", description="Read a text file.", arguments=ReadFile),
    ToolKind(
        name="write_file",
        description="Create a text file or replace all of its text.",
        arguments=WriteFile,
        writes=True,
    ),
    ToolKind(name="edit_file", description="Replace one piece of text in a file.", arguments=EditFile, writes=True),
    ToolKind(name="list_directory", description="List the files in a directory.", arguments=ListDirectory),
    ToolKind(
        name="search_files",
        description="Find lines that contain a text, in all files below a directory.",
        arguments=SearchFiles,
        recursive=True,
        default_ms=60_000,
    ),
    ToolKind(
        name="shell",
        description="Run a shell command in a sandbox without network.",
        arguments=Shell,
        writes=True,
        recursive=True,
        auto_allowed=False,
        default_ms=100_000,  # loopd waits 120 s for brokerd
    ),
    ToolKind(
        name="http_fetch",
        description="Fetch a web page as text.",
        arguments=HttpFetch,
        takes=Takes.HOSTS,
        default_ms=60_000,
    ),
)

TOOLS: Mapping[str, ToolKind] = MappingProxyType({kind.name: kind for kind in _ALL})


def parse(tool: str, untrusted_arguments: str, *, most_bytes: int = MAX_ARGUMENT_BYTES) -> object:
    """Return the model's JSON text as an object of the tool's arguments class, or raise BadArguments.

    KeyError for a tool that does not exist: names are exact. `most_bytes` is for who wrote the text himself.
    """
    kind = TOOLS[tool].arguments
    try:
        untrusted = untrusted_arguments.encode()
    except UnicodeEncodeError:
        raise BadArguments("expected Unicode text, got a lone surrogate") from None
    if len(untrusted) > most_bytes:
        raise BadArguments(f"expected at most {most_bytes} bytes, got {len(untrusted)}")
    try:
        value = strictjson.loads(untrusted)
    except BadMessage as error:
        raise BadArguments(error.detail) from None
    return toolarguments.read(kind, value)


def canonical(arguments: object) -> bytes:
    """Return the one spelling of parsed arguments: keys in the order of their class, what was left out left out.

    Equal for two texts that differ in key order, white space or the escapes inside their strings alone, and for
    no others. `parse` reads it back as an equal object.
    """
    kind: Any = type(arguments)
    fields = attrs.fields(kind)
    given = {field.name: getattr(arguments, field.name) for field in fields}
    return strictjson.dumps({name: _plain(value) for name, value in given.items() if value is not None})


def schema(tool: str) -> dict[str, JsonValue]:
    """Return the JSON schema of the tool's arguments. KeyError for a tool that does not exist."""
    return toolschema.of(TOOLS[tool].arguments)


def asked_path(arguments: object) -> str | None:
    """Return the path as the model wrote it, before any link was followed; None for a tool without one."""
    if isinstance(arguments, Shell):
        return arguments.directory
    if isinstance(arguments, ReadFile | WriteFile | EditFile | ListDirectory | SearchFiles):
        return arguments.path
    return None


def with_path(arguments: object, path: str) -> object:
    """Return the arguments with `path` in the place of the asked one: what a container is given, links resolved.

    TypeError for a tool without a path.
    """
    if isinstance(arguments, Shell):
        return attrs.evolve(arguments, directory=path)
    if isinstance(arguments, ReadFile | WriteFile | EditFile | ListDirectory | SearchFiles):
        return attrs.evolve(arguments, path=path)
    raise TypeError(f"{type(arguments).__name__} takes no path")


def asked_url(arguments: object) -> str | None:
    """Return the address that would be fetched first; None for a tool without one."""
    return arguments.url if isinstance(arguments, HttpFetch) else None


def _plain(value: object) -> JsonValue:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str | int):
        return value
    raise TypeError(f"an argument of type {type(value).__name__} has no JSON form")
