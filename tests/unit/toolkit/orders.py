"""Runs a tool as brokerd does: a process of its own, the order on its stdin, which stays open until it has ended."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from bxcore import tools
from toolkit import beneath
from toolkit.leash import Leash
from toolkit.order import Mount
from toolkit.place import Place

PYTHON = Path(__file__).resolve().parents[3] / "python"
ENTRY = f"import sys; sys.path.insert(0, {str(PYTHON)!r}); from toolkit.__main__ import main; sys.exit(main())"


@attrs.frozen(kw_only=True)
class Ended:
    """How a tool's process ended, and what it said."""

    code: int
    text: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


def mount(path: Path) -> Mount:
    found = path.lstat()
    return Mount(path=str(path), device=found.st_dev, inode=found.st_ino)


def line(tool: str, arguments: Mapping[str, object], *mounts: Path | Mount) -> bytes:
    """Return the order as brokerd writes it."""
    decided = [one if isinstance(one, Mount) else mount(one) for one in mounts]
    order = {
        "tool": tool,
        "arguments": arguments,
        "mounts": [{"path": m.path, "device": str(m.device), "inode": str(m.inode)} for m in decided],
        "proxy": None,
    }
    return json.dumps(order).encode() + b"\n"


def start(order: bytes, *, entry: str = ENTRY) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", entry], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(order)
    process.stdin.flush()
    return process


def end(process: "subprocess.Popen[bytes]") -> Ended:
    """Read what the tool says to its end, and only then let go of its stdin."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        text, errors = process.stdout.read(), process.stderr.read()
        code = process.wait()
    return Ended(code=code, text=text.decode(), errors=errors.decode())


def run(tool: str, arguments: Mapping[str, object], *mounts: Path | Mount, entry: str = ENTRY) -> Ended:
    return end(start(line(tool, arguments, *mounts), entry=entry))


def place(*mounts: Path, tool: str = "read_file") -> Place:
    """Return what a tool finds around it, for tests that call it in their own process."""
    return Place(
        roots=tuple(beneath.open_root(mount(path)) for path in mounts),
        proxy=None,
        leash=Leash(-1),  # never started here
        most_chars=tools.TOOLS[tool].result_chars,
    )
