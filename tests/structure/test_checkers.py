"""ruff and mypy are configured to see what the style guide forbids."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure import sources

BIN = Path(sys.executable).parent
PYPROJECT = sources.ROOT / "pyproject.toml"

HEADER = '"""A file."""\n\n'

LINT = {
    "F401": "import os\n",
    "E501": f"TEXT = '{'x' * 120}'\n",
    "I001": "import os\nimport ast\n\nprint(os, ast)\n",
    "BLE001": "try:\n    open\nexcept Exception:\n    pass\n",
    "FBT001": "def f(flag: bool) -> None:\n    del flag\n",
    "G004": "import logging\n\nlogging.getLogger(__name__).info(f'{1}')\n",
    "T201": "print(1)\n",
    "DTZ005": "from datetime import datetime\n\nNOW = datetime.now()\n",
    "S301": "import pickle\n\nX = pickle.loads(b'')\n",
    "SLF001": "def f(other: object) -> None:\n    other._state = 1\n",
    "PGH003": "x: int = ''  # type: ignore\n",
    "PTH118": "import os\n\nX = os.path.join('a', 'b')\n",
    "C901": "def f(a: int) -> None:\n" + "".join(f"    if a == {n}:\n        pass\n" for n in range(11)),
}


def ruff(*arguments: str, source: str) -> subprocess.CompletedProcess[str]:
    """Run ruff on a text as if it stood in bxcore."""
    return subprocess.run(
        [BIN / "ruff", *arguments, "--config", PYPROJECT, "--stdin-filename", "python/bxcore/bad.py", "-"],
        input=source,
        cwd=sources.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("code", "source"), LINT.items(), ids=LINT.keys())
def test_ruff_refuses(code: str, source: str) -> None:
    result = ruff("check", "--output-format=concise", source=HEADER + source)
    assert result.returncode == 1, result.stderr
    assert f" {code} " in result.stdout


def test_ruff_wants_a_header_that_says_what_the_file_is_for() -> None:
    assert " D100 " in ruff("check", "--output-format=concise", source="X = 1\n").stdout


def test_ruff_passes_a_good_file() -> None:
    result = ruff("check", source=HEADER + "X = 1\n")
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff_sees_what_is_not_formatted() -> None:
    assert ruff("format", "--check", source="x = { 'a':1 }\n").returncode == 1


TYPES = {
    "no-untyped-def": "def f(x): return x\n",
    "arg-type": "def f(x: int) -> int: return x\nf('a')\n",
    "no-any-return": "import json\ndef f() -> int: return json.loads('1')\n",
    "unreachable": "def f(x: int) -> int:\n    if isinstance(x, str):\n        return 1\n    return x\n",
    "ignore-without-code": "x: int = ''  # type: ignore\n",
    "unused-ignore": "x: int = 1  # type: ignore[assignment]\n",
    "truthy-bool": "class C: ...\ndef f(c: C) -> int: return 1 if c else 2\n",
}


def test_mypy_refuses(tmp_path: Path) -> None:
    """One run for all: each bad file must be reported with its code."""
    bad = {}
    for code, source in TYPES.items():
        path = tmp_path / f"bad_{code.replace('-', '_')}.py"
        path.write_text(source)
        bad[code] = path
    result = subprocess.run(
        [BIN / "mypy", "--config-file", PYPROJECT, "--cache-dir", tmp_path / "cache", *bad.values()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    unseen = [code for code, path in bad.items() if not _reported(result.stdout, path.name, code)]
    assert unseen == [], result.stdout + result.stderr


def _reported(output: str, file: str, code: str) -> bool:
    # Some of mypy's codes are parts of others; the line names one in brackets, or in its text.
    return any(file in line and (f"[{code}]" in line or code == "unused-ignore") for line in output.splitlines())
