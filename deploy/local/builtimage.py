"""An image in a checkout: built when something that it is made of has changed, else found.

Shared by toolimage.py and roleimages.py. Writes: the archive, and in `stamp` what it was made from. Invariant:
`stamp` is written last, and one process builds at a time in one directory.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.local import plan
from deploy.local.refusal import Refusal
from images import build, closure, contents
from images.table import Image

_LIBRARIES = Path("/etc/ld.so.cache")  # written anew whenever a shared library of the system's changes

_STAMP = b"sources, archive, what was told"
"""What the words of a stamp are. A stamp of other words counts as none."""


def built(
    image: Image,
    directory: Path,
    *,
    archive: str,
    script: Sequence[str],
    say: Callable[[str], None],
    check: bool = False,
) -> str:
    """Have the archive in the directory, and return what its `script` below images/ told. Raises Refusal.

    `say` is told if that takes time. `check`: the archive is read, and built again where it is not what was built.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = directory / "stamp"
        revision = build.revision(image)
        made_from = fingerprint(image, revision)
        before, _, rest = stamp.read_text().strip().partition(" ") if stamp.exists() else ("", "", "")
        digest, _, told = rest.partition(" ")
        if before != made_from or not _is_there(directory / archive, digest=digest if check else None):
            stamp.unlink(missing_ok=True)
            say(f"building the image of {image.name}")
            told = run(script, directory / archive, revision)
            stamp.write_text(f"{made_from} {_digest(directory / archive)} {told}\n")
        return told


def _is_there(archive: Path, *, digest: str | None) -> bool:
    return archive.exists() and digest in (None, _digest(archive))


def _digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(image: Image, revision: str) -> str:
    """Return a hash of all that decides what is in the image, its label included.

    Our sources by their content; the machine's files by place, size and time, since there are thousands.
    """
    digest = hashlib.sha256(_STAMP)
    try:
        for source in build.sources(image):
            digest.update(f"{source.relative_to(plan.ROOT)}\0".encode() + hashlib.sha256(source.read_bytes()).digest())
        digest.update(revision.encode())
        for path in [*contents.machine(image), *([_LIBRARIES] if _LIBRARIES.exists() else [])]:
            status = path.stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    except (contents.Unbuildable, closure.Missing, FileNotFoundError) as missing:
        raise Refusal(f"no image of {image.name} can be built: {missing}") from None
    return digest.hexdigest()


def run(script: Sequence[str], archive: Path, revision: str) -> str:
    """Build in a process of its own, whose memory goes with it. Returns what it printed. Raises Refusal."""
    program = os.fspath(plan.ROOT / "images" / script[0])
    argv = [sys.executable, "-P", "-s", program, *script[1:], "--output", os.fspath(archive), "--revision", revision]
    ended = subprocess.run(
        argv, env=plan.environment(os.environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise Refusal(f"{script[0]} could build no image:\n{ended.stderr.strip()}")
    return ended.stdout.strip()
