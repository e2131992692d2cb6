"""Several modules of ours as one `python3 -c` text, so that a probe needs no file inside a container."""

import ctypes
import importlib.util
import shutil
from pathlib import Path

_MAKE = """
import importlib.machinery, os, sys, types
def open_library(path):
    try:
        loader = importlib.machinery.ExtensionFileLoader("_", path)
        loader.create_module(importlib.machinery.ModuleSpec("_", loader, origin=path))
    except ImportError:
        pass  # it is no module, and stays open all the same: the one that needs it finds it by its name
if os.path.isdir("/probe"):
    sys.path.append("/probe")
    for name in os.listdir("/probe"):
        if name.startswith("libffi"):
            open_library("/probe/" + name)
def known(name):
    if name not in sys.modules:
        sys.modules[name] = module = types.ModuleType(name)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(known(parent), last, module)
    return sys.modules[name]
def made(name, text):
    exec(compile(text, name, "exec"), known(name).__dict__)
    return known(name)
"""
MOST_BYTES = 131_071
"""What Linux takes as one argument."""


def program(*modules: str) -> str:
    """Return a text that makes the modules in this order, and calls `main` of the last one.

    They import each other under their full names, and of the rest the standard library alone.
    """
    made = [f"last = made({name!r}, {_source(name)!r})" for name in modules]
    text = "\n".join([_MAKE, *made, "last.main()"])
    assert len(text.encode()) <= MOST_BYTES, "too long for one argument"
    return text


def libraries(directory: Path) -> None:
    """Copy what `ctypes` is made of into a directory: an image need not have it, and a place is tried with it."""
    directory.mkdir(exist_ok=True)
    package = Path(ctypes.__file__).parent
    shutil.copytree(package, directory / "ctypes", ignore=shutil.ignore_patterns("test*", "__pycache__", "macholib"))
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    needed = {line.split()[-1] for line in maps if Path(line.split()[-1]).name.startswith(("libffi.", "_ctypes."))}
    for library in needed:
        shutil.copy(library, directory)
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755)


def _source(name: str) -> str:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).read_text(encoding="utf-8")
