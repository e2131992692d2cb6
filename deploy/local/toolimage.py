"""The tool image in a checkout: built when something that it is made of has changed, else found.

Writes: .state/tool-image/ (the archive, and what it was made from). Invariant: `stamp` is written last, and
one process builds at a time.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deploy.local import plan
from deploy.local.refusal import Refusal
from images import contents, tool_image

DIRECTORY = plan.ROOT / ".state" / "tool-image"
_LIBRARIES = Path("/etc/ld.so.cache")  # written anew whenever a shared library of the system's changes


@dataclass(frozen=True, kw_only=True)
class Image:
    """A built image: its ID, 64 hexadecimal digits, and its archive."""

    identity: str
    archive: Path


def built(directory: Path = DIRECTORY, *, say: Callable[[str], None] = lambda _: None) -> Image:
    """Return the image of the present sources; `say` is told if that takes time. Raises Refusal."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive, stamp = directory / "tool-image.tar", directory / "stamp"
        revision = tool_image.revision()
        made_from = fingerprint(revision)
        before, _, identity = stamp.read_text().strip().partition(" ") if stamp.exists() else ("", "", "")
        if before != made_from or not archive.exists():
            stamp.unlink(missing_ok=True)
            say("building the tool image")
            identity = _build(archive, revision)
            stamp.write_text(f"{made_from} {identity}\n")
        return Image(identity=identity, archive=archive)


def fingerprint(revision: str) -> str:
    """Return a hash of all that decides what is in the image, its label included.

    Our sources by their content; the machine's files by place, size and time, since there are thousands.
    """
    digest = hashlib.sha256()
    for source in tool_image.sources():
        digest.update(f"{source.relative_to(plan.ROOT)}\0".encode() + hashlib.sha256(source.read_bytes()).digest())
    digest.update(revision.encode())
    try:
        for path in _machine():
            status = path.stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    except (contents.Unbuildable, FileNotFoundError) as missing:
        raise Refusal(f"no tool image can be built: {missing}") from None
    return digest.hexdigest()


def _machine() -> Iterator[Path]:
    yield contents.interpreter()
    yield contents.standard_library()
    yield contents.busybox()
    yield contents.ca_bundle()
    if _LIBRARIES.exists():
        yield _LIBRARIES


def _build(archive: Path, revision: str) -> str:
    # A process of its own: what compiled code looks like depends a little on what else the process holds.
    script = os.fspath(plan.ROOT / "images" / "tool_image.py")
    argv = [sys.executable, "-P", "-s", script, "--output", os.fspath(archive), "--revision", revision]
    ended = subprocess.run(
        argv, env=plan.environment(os.environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise Refusal(f"no tool image could be built:\n{ended.stderr.strip()}")
    return ended.stdout.strip()
