"""Starts the real bxctl: on a terminal of its own, or with pipes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.fakes.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60


def environ(**more: str) -> dict[str, str]:
    """Return an environment with nothing in it that a test did not choose."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",  # no inputrc of the tester's own
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        **more,
    }


def argv(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "bxctl", "--home", str(home), *arguments]


def on_terminal(home: Path, *arguments: str, columns: int = 80, more: Mapping[str, str] | None = None) -> Terminal:
    """Start bxctl on a terminal."""
    return Terminal(argv(home, *arguments), environ(**(more or {})), columns=columns)


def run(home: Path, *arguments: str, stdin: bytes = b"", **more: str) -> "subprocess.CompletedProcess[bytes]":
    """Run bxctl with pipes to its end."""
    return subprocess.run(
        argv(home, *arguments),
        input=stdin,
        capture_output=True,
        env=environ(**more),
        timeout=PATIENCE_SECONDS,
        check=False,
    )
