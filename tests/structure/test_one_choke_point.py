"""One place starts containers: row N8 of docs/tested-rows.md, where one mode of a tool went round the gate.

Seen in the source: who names Podman's interface, who may hold the object that speaks to it, and who starts programs.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure import sources

SPEAKER = "brokerd.containers"

# Who may hold what can start a container. Each but the first two only hands it on, or knows its types.
HOLDERS = {
    "brokerd.runner",
    "brokerd.egress",
    "brokerd.probe",
    "brokerd.results",
    "brokerd.tending",
    "brokerd.__main__",
    SPEAKER,
}
STARTERS = {"brokerd.runner", "brokerd.egress", "brokerd.probe", SPEAKER}

_WORDS = ("/libpod", "/containers/", "podman run", "podman exec", "docker run")


def speaks_to_podman(path: Path) -> Iterator[str]:
    """Yield each text of the file, its comments and docstrings left out, that names Podman's interface."""
    tree = sources.tree(path)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield from (f"{sources.shown(path)}:{node.lineno}: {word}" for word in _WORDS if word in node.value)


def test_only_one_module_speaks_to_podman() -> None:
    others = [path for path in sources.python_files() if sources.module_name(path) != SPEAKER]
    assert [found for path in others for found in speaks_to_podman(path)] == []
    assert list(speaks_to_podman(sources.PYTHON / "brokerd" / "containers.py"))


def imported(path: Path) -> set[str]:
    return {".".join(name.split(".")[:2]) for name in sources.imports(path)}


def test_only_these_hold_what_can_start_a_container() -> None:
    holders = {sources.module_name(path) for path in sources.python_files() if SPEAKER in imported(path)}
    assert holders - HOLDERS == set()


def test_only_these_ask_it_to_start_one() -> None:
    callers = {
        sources.module_name(path)
        for path in sources.python_files(sources.PYTHON / "brokerd")
        if any(_starts(node) for node in ast.walk(sources.tree(path)))
    }
    assert callers - STARTERS == set()
    assert "brokerd.runner" in callers


def _starts(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"run", "open"}
        and sources.dotted(node.func.value).rpartition(".")[2].strip("_") == "podman"
    )


BAD = {
    "the interface by hand": "sock.send(b'x' + '/v4.3.1/libpod/containers/create'.encode())\n",
    "the program": "start('podman run --rm image')\n",
}


@pytest.mark.parametrize("source", BAD.values(), ids=BAD.keys())
def test_a_way_round_is_seen(tmp_path: Path, source: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(source)
    assert list(speaks_to_podman(bad))


def test_a_second_caller_is_seen() -> None:
    (call,) = [node for node in ast.walk(ast.parse("self._podman.run(plan)")) if isinstance(node, ast.Call)]
    assert _starts(call)
