"""Every import that can happen in an image, followed through the files that the image holds.

Late imports count. What the C code of an extension imports is not seen; the container tests load every module.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from images import stdlib

Sources = Mapping[str, tuple[bytes, bool]]
"""Module -> its source, and whether it is a package. An extension has no source: b""."""


def modules(files: Mapping[str, bytes]) -> Sources:
    """Return the modules among the files, which are named as they lie below the library's directory."""
    found = {}
    for name, content in files.items():
        path = Path(name)
        below = Path(*path.parts[1:]) if path.parts[0] == "lib-dynload" else path
        dotted = (
            ".".join([*below.parts[:-1], below.name.split(".")[0]]) if path.suffix == ".so" else stdlib.module(below)
        )
        found[dotted] = (content if path.suffix == ".py" else b"", path.name == "__init__.py")
    return found


def asked(sources: Sources, starts: list[str]) -> set[tuple[str, str]]:
    """Return (module, what it imports) for all that can be reached from the starts."""
    pairs: set[tuple[str, str]] = set()
    seen: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name in seen or name not in sources:
            continue
        seen.add(name)
        wanted = list(_imports(name, *sources[name]))
        pairs |= {(name, each) for each in wanted}
        waiting += [above for each in [name, *wanted] for above in _with_packages_above(each)]
    return pairs


def _imports(name: str, source: bytes, package: bool) -> Iterator[str]:
    here = name if package else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = here.split(".")[: len(here.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_packages_above(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))
