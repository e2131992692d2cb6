"""The bench of the appliance still runs, small, with every role in its container. What the figures are is not asked."""

import subprocess
import sys

import pytest

from tests.process.role import ROOT

ROWS = (
    "loopd, from its image to ready",
    "image of tools, unpacked",
    "memory of the appliance without the model server",
    "turn with one tool call, roles in containers over processes",
    "first answer, model warm: make appliance",
)


@pytest.mark.usefixtures("tool_host")
def test_the_group_gives_its_rows() -> None:
    argv = [sys.executable, "tests/bench/run.py", "--quick", "appliance"]
    ended = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert [row for row in ROWS if row not in ended.stdout] == [], ended.stderr
    assert ended.returncode in (0, 1)
