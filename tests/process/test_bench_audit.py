"""The bench of the audit log still runs, small. What the figures are is not asked here."""

import subprocess
import sys

from tests.process.role import ROOT

ROWS = ("audit append over", "audit verify, MB/s", "most memory", "opening an audit log of 365 files")


def test_the_group_gives_its_rows() -> None:
    argv = [sys.executable, "tests/bench/run.py", "--quick", "audit"]
    ended = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert [row for row in ROWS if row not in ended.stdout] == [], ended.stderr
    assert ended.returncode in (0, 1)
