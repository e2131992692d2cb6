"""Is a file root's word? Whoever may write it, or put another one in its place, says what it says.

The wiring names who owns what, so `bxctl doctor` asks this before it goes by it, and `bxctl backup restore` before it
gives files away. Judged are the file and every directory above it, also on the way that links lead.
"""

import shlex
from collections.abc import Collection, Iterator
from pathlib import Path

from bxcore import acl
from bxcore.errors import StateError
from bxctl.finding import Fault
from bxctl.machine import Kind, Machine, Seen

UNSAFE = "wiring_unsafe"

STORE = Path("/nix/store")
"""What a file of a NixOS configuration is a link into: nobody may write there."""

_STICKY = 0o1000
_WHY = "who may write there says whose files these are, and who may read what"


class WiringUnsafe(StateError):
    """The wiring, or the place that it speaks of, is not root's alone to change."""

    code = "wiring_unsafe"


def of_file(machine: Machine, path: Path, *, trusted: Collection[int]) -> Iterator[Fault]:
    """Yield a fault for the file and for each directory above it that somebody not `trusted` may change."""
    seen = machine.look(path)
    stored = seen is not None and seen.kind is Kind.LINK and machine.real(path).is_relative_to(STORE)
    if seen is not None and not stored and (found := _file(seen, trusted)):
        quoted = shlex.quote(str(path))
        yield Fault(
            expected=f"{path} is a file that {_names(trusted)} alone may write",
            found=found,
            why=_WHY,
            command=f"setfacl -b {quoted} && chown root: {quoted} && chmod 0644 {quoted}  # once you have read it",
        )
    yield from of_way(machine, path, trusted=trusted)


def of_way(machine: Machine, path: Path, *, trusted: Collection[int]) -> Iterator[Fault]:
    """Yield a fault for each directory above `path` in which somebody not `trusted` may put something in its place."""
    for here in dict.fromkeys((*reversed(path.parents), *reversed(machine.real(path).parents))):
        seen = machine.look(here)
        if seen is not None and (found := directory(seen, trusted)):
            quoted = shlex.quote(str(here))
            foreign = seen.uid not in trusted
            yield Fault(
                expected=f"{here}, above {path}, is a directory in which {_names(trusted)} alone may rename",
                found=found,
                why=_WHY,
                command="" if foreign else f"setfacl -b {quoted} && chmod go-w {quoted}",
            )


def directory(seen: Seen, trusted: Collection[int]) -> str:
    """Say who else may rename what lies in a directory, "" where nobody may. In a sticky one only owners may."""
    if seen.uid not in trusted:
        return f"owner is uid {seen.uid}"
    if seen.kind is Kind.DIRECTORY and seen.acl.others_may(acl.WRITE) and not seen.mode & _STICKY:
        return f"others may write in it, mode {seen.mode:04o}"
    return ""


def _file(seen: Seen, trusted: Collection[int]) -> str:
    if seen.kind is not Kind.FILE:
        return str(seen.kind.value)
    if seen.uid not in trusted:
        return f"owner is uid {seen.uid}"
    return f"others may write it, mode {seen.mode:04o}" if seen.acl.others_may(acl.WRITE) else ""


def _names(trusted: Collection[int]) -> str:
    return " or ".join("root" if uid == 0 else f"uid {uid}" for uid in sorted(trusted))
