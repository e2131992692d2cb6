"""images/roles.toml as values: what each image holds. Strict: an unknown word in it is refused.

Reads: that file. A new role is a new table there, and nothing here.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images import stdlib

FILE = Path(__file__).with_name("roles.toml")
TOOLS = "tools"

_WHOLE = "whole"
_REPOSITORY = "localhost/boxmaker"


class Unknown(Exception):
    """The table says something that this program does not know."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """One table of the file."""

    name: str
    title: str
    program: str
    """The package that is run, as `python3 -m`."""
    packages: tuple[str, ...]
    why: Mapping[str, str]
    parts: frozenset[str]
    """Of stdlib.PARTS."""
    certificates: bool
    """The machine's certificate authorities, for whoever dials TLS."""
    time_zones: bool
    """The rules of the world's time zones."""
    shell: bool
    """A place to work in: busybox under the names of a shell's commands, a user of its own, /tmp."""

    @property
    def repository(self) -> str:
        """The image's name, without a tag."""
        return f"{_REPOSITORY}/{self.name}"


def load(path: Path = FILE) -> dict[str, Image]:
    """Return every image by its name. Raises Unknown."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: _image(name, table) for name, table in tables.items()}


def roles(path: Path = FILE) -> dict[str, Image]:
    """Return the images of the roles: all but the tools'."""
    return {name: image for name, image in load(path).items() if name != TOOLS}


def image(name: str, path: Path = FILE) -> Image:
    """Return one of them. Raises Unknown."""
    found = load(path)
    if name not in found:
        raise Unknown(f"{path.name} has no table {name}; it has {', '.join(found)}")
    return found[name]


def _image(name: str, untrusted: Mapping[str, Any]) -> Image:
    left = dict(untrusted)
    packages = _list(left, name, "packages")
    if left.get("standard_library") == _WHOLE:
        left["standard_library"] = sorted(stdlib.WHOLE)
    read = Image(
        name=name,
        title=_of(left, name, "title", str),
        program=_of(left, name, "program", str, name),
        packages=tuple(packages),
        why=_of(left, name, "why", dict, {}),
        parts=frozenset(_list(left, name, "standard_library")),
        certificates=_of(left, name, "certificates", bool, False),
        time_zones=_of(left, name, "time_zones", bool, False),
        shell=_of(left, name, "shell", bool, False),
    )
    if left:
        raise Unknown(f"[{name}] says {', '.join(left)}, which nothing reads")
    if strange := read.parts - stdlib.WHOLE:
        raise Unknown(f"[{name}] names parts of the standard library that are none: {', '.join(sorted(strange))}")
    if set(read.why) != set(packages):
        raise Unknown(f"[{name}.why] has not a sentence for each package and for no other")
    return read


def _of(left: dict[str, Any], name: str, key: str, kind: type, default: object = None) -> Any:
    value = left.pop(key, default)
    if not isinstance(value, kind):
        raise Unknown(f"[{name}] {key} is not a {kind.__name__}")
    return value


def _list(left: dict[str, Any], name: str, key: str) -> list[str]:
    value = _of(left, name, key, list, [])
    if not all(isinstance(each, str) for each in value):
        raise Unknown(f"[{name}] {key} is not a list of texts")
    return list(value)
