"""The repository's own files, as the structure tests read them.

Reads the work tree as it lies, so that a file is judged before it is committed. Everything
that .gitignore keeps out is left out here too: hidden directories but .ci, caches, results.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
DOCS = ROOT / "docs"

SHOWN = {".ci", ".gitignore"}


def files() -> list[Path]:
    """Return every file of the repository that a commit could hold."""
    return sorted(_walk(ROOT))


def _walk(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if _hidden(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.is_file():
            yield path


def _hidden(name: str) -> bool:
    return (name.startswith(".") and name not in SHOWN) or name == "__pycache__" or name.startswith("result")


def python_files(*directories: Path) -> list[Path]:
    """Return the Python files below the directories, python/ where none is named."""
    return sorted(path for top in directories or (PYTHON,) for path in top.rglob("*.py"))


def packages() -> list[str]:
    """Return the import packages below python/: the roles and bxcore."""
    return sorted(path.parent.name for path in PYTHON.glob("*/__init__.py"))


def roles() -> list[str]:
    return [name for name in packages() if name != "bxcore"]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def shown(path: Path) -> str:
    """Return the path as the repository names it; a test's own bad example keeps its name."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def module_name(path: Path, top: Path = PYTHON) -> str:
    parts = path.relative_to(top).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of everything that the file imports, wherever the import stands."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression, and what can be named of any other one."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def section(page: str, heading: str) -> str:
    """Return what stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no heading '{heading}'"
    return found[1]


def table_rows(page: str) -> list[list[str]]:
    """Return the cells of every row of the page's tables, headings and rules left out."""
    lines = page.splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for before, line in itertools.pairwise(lines)
        if before.startswith("|") and line.startswith("|") and not line.startswith("| ---")
    ]
