"""Processes of a launcher under test, found by the home directory that all their command lines name."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local import processes
from deploy.local.plan import Part

ROOT = Path(__file__).resolve().parents[2]
PART = ROOT / "tests" / "fakes" / "part.py"
PATIENCE_SECONDS = 60

REFUSED = processes.no_network_refused()
"""Why this machine starts nothing without a network; None where it does."""

needs_namespaces = pytest.mark.skipif(REFUSED is not None, reason=f"no network namespaces here: {REFUSED}")


def part(name: str, home: Path, *words: str, **changes: object) -> Part:
    """Return a stand-in daemon that does what the words of tests/fakes/part.py say."""
    settings: dict[str, object] = {
        "name": name,
        "argv": (sys.executable, str(PART), f"home={home}", f"name={name}", *words),
        "doing": f"starting {name}",
        "ready_seconds": 60,
        "stop_seconds": 20,
        "network": True,
        **changes,
    }
    return Part(**settings)  # type: ignore[arg-type]  # a table of the fields of Part


def running(home: Path) -> dict[int, list[str]]:
    """Return the living processes whose command line names `home`, by number."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            argv = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue  # it ended meanwhile; a zombie's command line is empty
        if any(str(home) in argument for argument in argv):
            found[int(entry.name)] = argv
    return found


def wait_until_none_runs(home: Path) -> None:
    """Return once no process of `home` is left."""
    wait_until_running(home, 0)


def wait_until_running(home: Path, count: int) -> None:
    """Return once so many processes of `home` run: what is killed and what is started takes its moment."""
    until = time.monotonic() + PATIENCE_SECONDS
    while len(found := running(home)) != count:
        assert time.monotonic() < until, f"not {count} but {found}"
        time.sleep(0.02)


def pid_of_part(home: Path, name: str) -> int | None:
    """Return the process that is the part called `name`."""
    return next((pid for pid, argv in running(home).items() if f"name={name}" in argv), None)


def wait_for_another(home: Path, name: str, before: int) -> None:
    """Return once another process than `before` is the part called `name`."""
    until = time.monotonic() + PATIENCE_SECONDS
    while pid_of_part(home, name) in (None, before):
        assert time.monotonic() < until, f"{name} did not come back"
        time.sleep(0.02)


def small_launcher(home: Path, parts: Sequence[Part], conversation: Sequence[str]) -> list[str]:
    """Return the command line of a launcher of stand-ins (tests/process/small_launcher.py)."""
    plan = [
        {"name": item.name, "argv": item.argv, "network": item.network, "stop_seconds": item.stop_seconds}
        for item in parts
    ]
    script = ROOT / "tests" / "process" / "small_launcher.py"
    return [sys.executable, str(script), str(home), json.dumps(plan), *conversation]


@contextmanager
def started(argv: Sequence[str]) -> "Iterator[subprocess.Popen[str]]":
    """Start a launcher with pipes; a test that fails ends it too."""
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as launcher:
        try:
            yield launcher
        finally:
            launcher.kill()
