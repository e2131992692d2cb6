"""Which of our modules and which packages a program needs: followed from the source, nothing is run.

Reads: the program's package, python/bxcore and the metadata of the packages that are installed beside them. An
import counts wherever it stands, late ones too: a module that is missing in the image fails in the middle of work.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Set
from importlib import metadata
from pathlib import Path

from images.table import Image

_SHARED = "bxcore"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Missing(Exception):
    """The program imports something that is not here, or another thing than images/roles.toml says."""


def modules(python: Path, program: str) -> dict[str, Path]:
    """Return every module of ours in the image by its dotted name: the whole program, and what that imports."""
    found: dict[str, Path] = {}
    waiting = [_module_of(path, python) for path in sorted((python / program).rglob("*.py"))]
    while waiting:
        name = waiting.pop()
        path = _file_of(name, python)
        if name in found or path is None:  # None: a name inside a module
            continue
        found[name] = path
        waiting += [each for each in _imports(path) if each.split(".")[0] in (_SHARED, program)]
        waiting += _packages_above(name)
    return dict(sorted(found.items()))


def data(python: Path, program: str) -> list[Path]:
    """Return the program's files that are no modules, a text that it reads for example.

    Hidden ones are an editor's, or hold what its owner would not give away.
    """
    found = {path.relative_to(python): path for path in sorted((python / program).rglob("*")) if path.is_file()}
    return [
        path
        for name, path in found.items()
        if path.suffix not in (".py", ".pyc") and not any(part.startswith(".") for part in name.parts)
    ]


def stated(image: Image, python: Path, packages: Path) -> list[metadata.Distribution]:
    """Return the distributions of an image. Raises Missing where its program imports others than the table says."""
    sources = modules(python, image.program).values()
    found = distributions(sources, packages, ours={_SHARED, image.program})
    names = sorted(_plain(each.metadata["Name"]) for each in found)
    if names != sorted(image.packages):
        raise Missing(f"{image.program} imports {', '.join(names) or 'no package'}; roles.toml says another list")
    return found


def distributions(sources: Iterable[Path], packages: Path, *, ours: Set[str]) -> list[metadata.Distribution]:
    """Return the distributions below `packages` that the files import, and those that these need."""
    installed = {_plain(each.metadata["Name"]): each for each in metadata.distributions(path=[str(packages)])}
    by_import = {top: name for name, each in installed.items() for top in _tops(each)}
    foreign = {name.split(".")[0] for path in sources for name in _imports(path)} - {*ours, *sys.stdlib_module_names}
    if unknown := sorted(foreign - set(by_import)):
        raise Missing(f"{', '.join(unknown)} is imported, which {packages} does not have")
    wanted: set[str] = set()
    waiting = [by_import[top] for top in foreign]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += [needed for needed in _requirements(installed[name]) if needed in installed]
    return [installed[name] for name in sorted(wanted)]


def _module_of(path: Path, python: Path) -> str:
    parts = path.relative_to(python).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _file_of(name: str, python: Path) -> Path | None:
    base = python.joinpath(*name.split("."))
    package = base / "__init__.py"
    module = base.with_suffix(".py")
    return package if package.is_file() else module if module.is_file() else None


def _packages_above(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level or not node.module:
                raise Missing(f"{path}:{node.lineno}: imports here name the whole module")
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _tops(distribution: metadata.Distribution) -> set[str]:
    """Return what can be imported of it."""
    tops = {file.parts[0].removesuffix(".py") for file in distribution.files or () if file.suffix == ".py"}
    return {name for name in tops if name.isidentifier()}


def _requirements(distribution: metadata.Distribution) -> Iterator[str]:
    """Yield what it always needs. One under a condition is taken too, if it is installed; an extra is not."""
    for requirement in distribution.requires or ():
        name = _NAME.match(requirement)
        if name and "extra ==" not in requirement:
            yield _plain(name[0])


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
