"""No tool runs without a Decision, and brokerd.policy alone makes one: what can be seen of that in the syntax.

What a name says at run time, a C extension or a dependency is not seen here (docs/invariants.md, INV-2).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure import sources

POLICY = "brokerd.policy"
SEALED = {"Decision", "Ask", "Denial", "Outcome"}

# By these, an object comes about or changes behind its class's back.
BACK_DOORS = {"_SEAL", "_unspent", "_open_asks", "__new__", "__setattr__", "setattr", "delattr"}

# By these, anything can be reached by a name made at run time, or without one.
REACHING = {"importlib", "runpy", "gc", "inspect", "ctypes", "pickle", "copyreg", "marshal"}
REACHING_HOMES = {
    "importlib.resources": {"loopd.baseline"},  # reads a file of the package
    # openat2, prctl and what the probe tries, all in a tool container; inotify; adjtimex, on the owner's side. The
    # standard library has none of them.
    "ctypes": {
        *("toolkit.beneath", "toolkit.ownmemory", "brokerd.probeprogram", "brokerd.dirwatch", "bxctl.machine"),
    },
}

# loopd cannot import brokerd (roles meet only on the wire), and has an Outcome of its own.
OTHER_MEANINGS = {"loopd": {"Outcome"}}

SPENDER = "brokerd.runner"


def sealed_names_used(path: Path, module: str) -> Iterator[str]:
    """Yield each place where `module` does what only policy may do."""
    tree = sources.tree(path)
    local = _local_names(tree)
    sealed = SEALED - OTHER_MEANINGS.get(module.partition(".")[0], set())
    for node in ast.walk(tree):
        for name in _names(node, local, sealed):
            yield f"{sources.shown(path)}:{getattr(node, 'lineno', 0)}: {name}"
    for name in sources.imports(path):
        if _reaches(name, module):
            yield f"{sources.shown(path)}: {name}"


def _names(node: ast.AST, local: dict[str, str], sealed: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield from {node.id, local.get(node.id, "")} & BACK_DOORS
    elif isinstance(node, ast.Attribute):
        yield from {node.attr} & BACK_DOORS
        if node.attr == "__class__" and isinstance(node.ctx, ast.Store):
            yield "__class__"
        if node.attr.startswith("_") and sources.dotted(node.value).rpartition(".")[2] == "policy":
            yield f"policy.{node.attr}"
    elif isinstance(node, ast.Constant):
        yield from {str(node.value)} & BACK_DOORS
    elif isinstance(node, ast.alias):
        yield from {node.name} & BACK_DOORS
    elif isinstance(node, ast.Call):
        yield from _made_or_cast(node, local, sealed)
    elif isinstance(node, ast.ClassDef):
        yield from {_last(base, local) for base in node.bases} & sealed


def _made_or_cast(node: ast.Call, local: dict[str, str], sealed: set[str]) -> Iterator[str]:
    called = _last(node.func, local)
    yield from {called} & sealed
    if called == "cast" and node.args:
        named = {word for part in ast.walk(node.args[0]) for word in _words(part, local)}
        yield from (f"cast {name}" for name in named & sealed)


def _words(node: ast.AST, local: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Name | ast.Attribute):
        yield _last(node, local)
    elif isinstance(node, ast.Constant):
        yield str(node.value).rpartition(".")[2]


def _last(node: ast.expr, local: dict[str, str]) -> str:
    name = sources.dotted(node)
    return local.get(name, name).rpartition(".")[2]


def _local_names(tree: ast.Module) -> dict[str, str]:
    """Map what `from brokerd.policy import Decision as D` brings in to its last name."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _reaches(name: str, module: str) -> bool:
    if name.partition(".")[0] not in REACHING:
        return False
    # `from importlib import resources` is seen as importlib, and then as what it takes of it.
    return not any(module in homes and _related(name, home) for home, homes in REACHING_HOMES.items())


def _related(name: str, home: str) -> bool:
    return name == home or name.startswith(f"{home}.") or home.startswith(f"{name}.")


OTHERS = [path for path in sources.python_files() if sources.module_name(path) != POLICY]


@pytest.mark.parametrize("path", OTHERS, ids=sources.shown)
def test_nobody_else_makes_a_decision(path: Path) -> None:
    assert list(sealed_names_used(path, sources.module_name(path))) == []


def test_policy_itself_is_what_the_check_is_about() -> None:
    found = " ".join(sealed_names_used(sources.PYTHON / "brokerd" / "policy.py", POLICY))
    assert all(name in found for name in ("Decision", "Ask", "Denial", "_SEAL", "_unspent", "__setattr__"))


FORGERY = """\
import importlib, gc, sys
from typing import cast
from brokerd import policy
from brokerd.policy import Decision as D
from brokerd.policy import _SEAL as key
object.__new__(policy.Decision)
policy.Decision(policy._SEAL, request=r)
D(key, request=r)
policy.Denial(1)
policy._unspent[x] = call
object.__setattr__(decision, "call", other)
setattr(decision, "call", other)
denial.__class__ = D
getattr(policy, "_open_asks")
cast(policy.Ask, denial)
cast("policy.Decision", denial)
policy._take(1, 2, 3)
class Mine(policy.Outcome): pass
"""


def test_the_check_sees_a_forgery(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(FORGERY)
    found = list(sealed_names_used(bad, "brokerd.broker"))
    lines = {int(place.split(":")[1]) for place in found if place.split(":")[1].strip().isdigit()}
    assert lines == set(range(5, 19))
    assert {"bad.py: importlib", "bad.py: gc"} <= set(found)
    assert {
        *("_SEAL", "_unspent", "_open_asks", "__new__", "__setattr__", "setattr", "__class__", "policy._take"),
        *("Decision", "Denial", "Outcome", "cast Ask", "cast Decision"),
    } <= {place.rpartition(": ")[2] for place in found}


def test_ordinary_use_is_let_through(tmp_path: Path) -> None:
    good = tmp_path / "good.py"
    good.write_text(
        "from brokerd import policy\n"
        "from brokerd.policy import Ask, Decision, Denial\n"
        "def run(decision: Decision) -> None:\n"
        "    outcome = policy.decide(grants, call, session, now)\n"
        "    if isinstance(outcome, Denial | policy.Ask) or decision.__class__ is Decision: return\n"
        "    self._policy = policy.redecide(outcome, grants, call, session, now)\n"
    )
    assert list(sealed_names_used(good, "brokerd.broker")) == []


def test_what_has_a_home_is_let_through_there_alone(tmp_path: Path) -> None:
    both = tmp_path / "both.py"
    both.write_text("from importlib import resources\n")
    assert list(sealed_names_used(both, "loopd.baseline")) == []
    assert len(list(sealed_names_used(both, "brokerd.broker"))) == 2
    both.write_text("import ctypes\n")
    assert list(sealed_names_used(both, "toolkit.beneath")) == []
    assert len(list(sealed_names_used(both, "brokerd.runner"))) == 1
    both.write_text("import importlib\n")
    assert len(list(sealed_names_used(both, "toolkit.beneath"))) == 1


# -- spending -----------------------------------------------------------------------------------


def spends(path: Path) -> bool:
    tree = sources.tree(path)
    local = _local_names(tree)
    return any(isinstance(node, ast.Call) and _last(node.func, local) == "spend" for node in ast.walk(tree))


def test_the_runner_alone_spends_a_decision() -> None:
    assert {sources.module_name(path) for path in OTHERS if spends(path)} <= {SPENDER}


def test_spending_is_seen(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    for text in ("policy.spend(d)\n", "from brokerd.policy import spend as s\ns(d)\n"):
        bad.write_text(text)
        assert spends(bad)


# -- policy does nothing but decide ---------------------------------------------------------------

# threading and weakref guard its two dictionaries: for these policy is not under the contract of the pure modules.
ALLOWED = {"threading", "weakref", "typing", "collections.abc", "attrs"}
KNOWN = {
    "brokerd.labels",
    "brokerd.match",
    "brokerd.weighing",
    "brokerd.call",
    "bxcore.grants",
    "bxcore.ids",
    "bxcore.timestamp",
}
VOCABULARY = {"bxcore.wire.admin", "bxcore.wire.tools"}


def unexpected_imports(path: Path) -> list[str]:
    """Return what `path` imports beyond what deciding needs, by module."""
    known = ALLOWED | KNOWN | VOCABULARY
    packages = {name.rpartition(".")[0] for name in known}
    return [name for name in sources.imports(path) if not {name, name.rpartition(".")[0]} & known | {name} & packages]


def test_policy_can_do_no_io() -> None:
    assert unexpected_imports(sources.PYTHON / "brokerd" / "policy.py") == []


@pytest.mark.parametrize("source", ["import os", "import time", "from pathlib import Path", "from bxcore import files"])
def test_io_in_policy_is_seen(tmp_path: Path, source: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(f"import threading\nfrom brokerd import labels, match\n{source}\n")
    assert unexpected_imports(bad) != []
