"""Each dangerous act has one home, so that a reviewer knows where to look."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure import sources

FILES = "bxcore.files"
REPLACE = "toolkit.replace"  # the same inside a tool container, beneath a directory that is held open
SHELL = "toolkit.shell"  # runs inside a tool container, on what was decided

# Dotted name of the call -> the modules that may make it.
HOMES = {
    "os.fsync": {FILES, REPLACE},
    "os.fdatasync": {FILES},
    "os.rename": {FILES, REPLACE},
    "os.renames": {FILES},
    "os.replace": {FILES},
    "os.truncate": {FILES},
    "os.ftruncate": {FILES},
    "os.link": {FILES},
    "shutil.move": {FILES},
    "os.system": set[str](),
    "os.fork": set[str](),
    "os.execv": set[str](),
    "os.execve": set[str](),
    "os.execvp": set[str](),
    "os.execvpe": set[str](),
    "os.execl": set[str](),
    "os.execlp": set[str](),
    "os.forkpty": set[str](),
    "os.popen": set[str](),
    "os.posix_spawn": set[str](),
    "os.posix_spawnp": set[str](),
    "os.spawnv": set[str](),
    "subprocess.run": set[str](),
    "subprocess.Popen": {SHELL},
    "subprocess.call": set[str](),
    "subprocess.check_call": set[str](),
    "subprocess.check_output": set[str](),
    "importlib.import_module": set[str](),
    "__import__": set[str](),
    # TLS without checking is one wrong constructor away, so one place of each role makes its settings.
    "ssl.create_default_context": {"toolkit.httpfetch"},
    "ssl.SSLContext": {"gatewayd.trust"},
    "ssl._create_unverified_context": set[str](),
    "ssl.wrap_socket": set[str](),
    "socket.getaddrinfo": {"toolkit.dialling", "gatewayd.line"},
    "socket.gethostbyname": set[str](),
    "socket.gethostbyname_ex": set[str](),
    "eval": set[str](),
    "exec": set[str](),
    "pickle.loads": set[str](),
    "pickle.load": set[str](),
}

# Modules that start programs, whatever is called in them -> the modules that may import them.
PROGRAMS = {"subprocess": {SHELL}, "multiprocessing": set[str](), "pty": set[str]()}


def misplaced(path: Path, module: str) -> Iterator[str]:
    tree = sources.tree(path)
    local = _local_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = sources.dotted(node.func)
            name = local.get(name, name)
            if module not in HOMES.get(name, {module}) or (_renames_a_path(node) and module != FILES):
                yield f"{sources.shown(path)}:{node.lineno}: {name}"


def _local_names(tree: ast.Module) -> dict[str, str]:
    """Map what `from os import fsync as f` brings in to what it is."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _renames_a_path(node: ast.Call) -> bool:
    """Path.rename and Path.replace take one argument, where str.replace takes two."""
    if not isinstance(node.func, ast.Attribute) or node.keywords or len(node.args) != 1:
        return False
    return node.func.attr in {"rename", "replace"}


def test_dangerous_calls_stand_in_their_one_file() -> None:
    paths = sources.python_files()
    assert [found for path in paths for found in misplaced(path, sources.module_name(path))] == []


BAD = {
    "fsync": "import os\nos.fsync(3)\n",
    "a name of its own": "from os import fsync as f\nf(3)\n",
    "rename of a path": "path.rename(other)\n",
    "replace of a path": "path.replace(other)\n",
    "a program": "import subprocess\nsubprocess.run(['true'])\n",
    "eval": "eval('1')\n",
    "a look-up": "import socket\nsocket.getaddrinfo('host', 1)\n",
    "TLS that checks nothing": "import ssl\nssl._create_unverified_context()\n",
}


@pytest.mark.parametrize("source", BAD.values(), ids=BAD.keys())
def test_a_dangerous_call_elsewhere_is_seen(tmp_path: Path, source: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(source)
    assert len(list(misplaced(bad, "loopd.turn"))) == 1


def test_replacing_text_is_no_danger(tmp_path: Path) -> None:
    good = tmp_path / "good.py"
    good.write_text("'a'.replace('a', 'b')\nmoment.replace(tzinfo=UTC)\n")
    assert list(misplaced(good, "loopd.turn")) == []


def test_the_home_may_do_it(tmp_path: Path) -> None:
    home = tmp_path / "files.py"
    home.write_text("import os\nos.fsync(3)\nos.replace('a', 'b')\n")
    assert list(misplaced(home, FILES)) == []


def starters(path: Path, module: str) -> list[str]:
    """Return what `module` imports to start programs and may not."""
    return [name for name in PROGRAMS if name in sources.imports(path) and module not in PROGRAMS[name]]


def test_programs_are_started_in_their_one_file() -> None:
    paths = sources.python_files()
    assert {sources.shown(path): found for path in paths if (found := starters(path, sources.module_name(path)))} == {}


@pytest.mark.parametrize("source", ["import subprocess as s", "from subprocess import run", "import pty"])
def test_an_import_that_starts_programs_is_seen(tmp_path: Path, source: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(source)
    assert starters(bad, "brokerd.containers") != []
