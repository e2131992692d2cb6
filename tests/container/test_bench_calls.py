"""The groups of the bench that need containers still run, small. What the figures are is not asked here."""

import subprocess
import sys

import pytest

from tests.process.role import ROOT

ROWS = ("read_file call over a bare podman run", "in it: remove", "decisions, 1,000 grants", "memory of brokerd after")


@pytest.mark.usefixtures("tool_host")
def test_the_groups_give_their_rows() -> None:
    argv = [sys.executable, "tests/bench/run.py", "--quick", "calls", "decisions"]
    ended = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert [row for row in ROWS if row not in ended.stdout] == [], ended.stderr
    assert ended.returncode in (0, 1)
