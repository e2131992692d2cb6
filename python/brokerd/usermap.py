"""Which users this process can tell apart: those that its user namespace has numbers for.

Inside a rootless container every other user of the host (root, the owner, the user that tools run as) appears under
one number, the overflow uid: who that is cannot be known there. Reads: /proc/self/uid_map and
/proc/sys/kernel/overflowuid, which never change for a process. Threads: any.
"""

import functools
from pathlib import Path

_USUAL = 65534


@functools.cache
def stranger() -> int | None:
    """Return the uid under which the host's other users appear here; None where each appears under its own."""
    try:
        known = Path("/proc/self/uid_map").read_text(encoding="ascii")
    except OSError:
        return None  # a kernel without user namespaces
    return None if knows_root(known) else _overflow_uid()


def knows_root(uid_map: str) -> bool:
    """Whether a map (inside, outside, how many) gives a number to the root of the namespace around."""
    lines = [[int(field) for field in line.split()] for line in uid_map.splitlines()]
    return any(outside == 0 and count > 0 for _, outside, count in lines)


def _overflow_uid() -> int:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _USUAL
