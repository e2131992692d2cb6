"""The bench still runs: one of its groups, small, with real roles. What the figures are is not asked here."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_group_of_the_bench_gives_its_row() -> None:
    argv = [sys.executable, "tests/bench/run.py", "--quick", "opening"]
    ended = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "| opening a session of 10,001 records |" in ended.stdout, ended.stderr
    assert ended.returncode in (0, 1)
