"""Check of `bxctl doctor`: what limits the container of each role as a whole, read from the control group it runs in.

What Podman was told is no proof: where the host delegates nothing it is told in vain. Limits of groups above count too.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from bxctl import finding
from bxctl.finding import Fault, Finding
from bxctl.hostchecks import LIMITS_MISSING
from bxctl.installed import Installed

MEMORY, PROCESSES = "memory.max", "pids.max"
_WORDS = {MEMORY: "bytes of memory", PROCESSES: "processes"}
_MB = 1024 * 1024
_NAME = "limits of roles"


def limits(installed: Installed) -> Iterator[Finding]:
    """Say of each role that runs whether its limits are held; one that does not run is told by the check of sockets."""
    expected = "memory and processes of each role's container are limited"
    faults: list[Fault] = []
    held: list[str] = []
    blind = []
    for name, role in installed.roles.items():
        uid = installed.uid(role.user)
        groups = None if uid is None else installed.machine.control_groups(uid, installed.command(name))
        if not groups:
            blind.append(f"{name} {'was not seen to run' if groups is None else 'has no control group of version 2'}")
            continue
        wanted = {MEMORY: role.limits.memory_mb * _MB, PROCESSES: role.limits.processes}
        missing = [*_not_held(installed, groups, wanted)]
        faults += [_fault(name, limit, wanted[limit], found) for limit, found in missing]
        held += [] if missing else [name]
    if faults or not blind:
        yield from finding.room(_NAME, held=f"{', '.join(held)}: {expected}", faults=faults, runbook=LIMITS_MISSING)
    if blind:
        text = f"cannot be told: {', '.join(blind)}{'; held: ' + ', '.join(held) if held else ''}"
        yield Finding(name=_NAME, passed=None, expected=expected, found=text)


def _not_held(installed: Installed, groups: list[Path], wanted: Mapping[str, int]) -> Iterator[tuple[str, int | None]]:
    """Yield each limit that is higher than wanted, with what is there; None for no limit at all."""
    for limit, most in wanted.items():
        found = min((value for one in groups if (value := _value(installed, one / limit)) is not None), default=None)
        if found is None or found > most:
            yield limit, found


def _value(installed: Installed, path: Path) -> int | None:
    try:
        text = installed.machine.text(path).strip()
    except OSError:
        return None  # this controller is not handed down so far
    return int(text) if text.isdecimal() else None


def _fault(role: str, limit: str, most: int, found: int | None) -> Fault:
    return Fault(
        expected=f"the container of {role} has at most {most} {_WORDS[limit]}",
        found="no limit" if found is None else f"{found}",
        why="a role that was taken over, or one fault in it, may then take all of the machine",
        command="stat -fc %T /sys/fs/cgroup  # cgroup2fs is what is needed, handed to the role's user",
    )
