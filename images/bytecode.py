"""Compiled code as an image holds it: the same bytes for the same sources, whoever asks.

Starts one bare interpreter, which compiles them all in order. Why not here: names are shared by a whole process, and
marshal writes down which of them somebody else uses too; what this process has imported would show in the bytes.
Invariant: a hash of the source stands in the place of its time, and is never checked (PEP 552).
"""

import importlib.util
import marshal
import struct
import subprocess
import sys
from collections.abc import Mapping

_UNCHECKED_HASH = struct.pack("<I", 0b01)
_BARE = ("-I", "-S", "-X", "utf8")  # no site packages, nothing of the environment, no locale
_COMPILER = """\
import marshal, sys
found = []
for path, source in marshal.load(sys.stdin.buffer):
    found.append(marshal.dumps(compile(source, path, "exec", dont_inherit=True, optimize=0)))
marshal.dump(found, sys.stdout.buffer)
"""


class Uncompilable(Exception):
    """A source is none that this interpreter takes. The text is the interpreter's own."""


def compiled(sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the content of the .pyc file of each source by its path, which tracebacks show. Raises Uncompilable."""
    ordered = sorted(sources.items())
    ended = subprocess.run(
        [sys.executable, *_BARE, "-c", _COMPILER],
        input=marshal.dumps(ordered), env={}, capture_output=True, check=False,
    )  # fmt: skip
    if ended.returncode != 0:
        raise Uncompilable(ended.stderr.decode(errors="replace").strip())
    bodies: list[bytes] = marshal.loads(ended.stdout)  # noqa: S302  # from the program above
    return {path: _head(source) + body for (path, source), body in zip(ordered, bodies, strict=True)}


def _head(source: bytes) -> bytes:
    return importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(source)
