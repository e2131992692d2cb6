"""INV-1: loopd, whole and started as it is in production, never loads the store of secrets nor the grants."""

import os
import subprocess
import sys

from tests.structure import sources

# Every module of the role, with all that each takes along, in a process of its own.
LOAD = """
import pkgutil, sys
import {role}
from importlib import import_module
for module in pkgutil.walk_packages({role}.__path__, "{role}."):
    import_module(module.name)
print(*sorted(name for name in sys.modules if name.startswith(("{role}", "bxcore"))))
"""


def loaded(role: str, more: str = "") -> list[str]:
    """Return the modules of ours that are there when every module of the role is."""
    result = subprocess.run(
        [sys.executable, "-c", more + LOAD.format(role=role)],
        env={**os.environ, "PYTHONPATH": str(sources.PYTHON)},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.split()


def test_loopd_loads_neither_secrets_nor_grants() -> None:
    names = loaded("loopd")
    assert "loopd.__main__" in names
    assert [name for name in names if name in {"bxcore.secrets", "bxcore.grants", "bxcore.auditlog"}] == []


def test_a_loaded_store_is_seen() -> None:
    assert "bxcore.secrets" in loaded("loopd", more="import bxcore.secrets\n")
