"""bxctl on a host: its modules and what they import, and the command. It runs in no container.

Reads: this checkout and the environment that setup.sh made. Written for the interpreter that also goes into the images.
"""

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.local.plan import ROOT
from deploy.local.refusal import Refusal
from deploy.quadlet.steps import Step, Tree, Write

LIBRARY = "/usr/local/lib/boxmaker"
COMMAND = "/usr/local/bin/bxctl"

OURS = ("bxctl", "bxcore")
PACKAGES = ("attr", "attrs", "cattrs", "click", "tomlkit", "typing_extensions.py")
"""What bxctl imports of other people's, as it lies in an environment's site-packages."""

SYSTEMS = tuple(Path(f"/usr/bin/python3.{minor}") for minor in (13, 12, 11))

_LONGEST = 250  # of a first line, in every kernel


def steps(packages: Path, python: Path) -> tuple[Step, ...]:
    """Return what makes `bxctl` a command. `packages`: an environment's site-packages."""
    script = f"""\
#!{python} -IS
# Written by deploy/quadlet/install.
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib", "boxmaker"))
from bxctl.__main__ import main

main()
"""
    if len(str(python)) > _LONGEST - len("#! -IS"):
        raise Refusal(f"the path of the interpreter is too long for a script's first line: {python}")
    files = dict([*_sources(ROOT / "python", OURS), *_sources(packages, PACKAGES)])
    return (
        Tree(path=LIBRARY, files=files),
        Write(path=COMMAND, content=script.encode(), mode=0o755),
    )


def interpreter() -> Path:
    """Return the interpreter for bxctl: ours where everybody may run it, else a system's. Raises Refusal."""
    ours = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    for python in (ours, *SYSTEMS):
        if python.exists() and is_everybodys(python):
            return python
    raise Refusal(
        f"bxctl would run with {ours}, which not everybody may enter, and there is none of "
        f"{', '.join(map(str, SYSTEMS))}: set this checkout up with another one, as PYTHON=/opt/python/bin/python3.13"
    )


def is_everybodys(program: Path) -> bool:
    """Say whether every user may run the program, by the modes on the way to it."""
    real = program.resolve()
    return all(path.stat().st_mode & stat.S_IXOTH for path in (real, *real.parents))


def _sources(top: Path, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        path = top / name
        if not path.exists():
            raise Refusal(f"{path} is not there; deploy/local/setup.sh makes the environment anew")
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield str(file.relative_to(top)), file.read_bytes()
