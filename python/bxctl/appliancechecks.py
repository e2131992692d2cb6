"""What `bxctl doctor` looks at where Boxmaker is installed as an appliance, beside what it looks at in a checkout.

Reads this machine alone, and what brokerd last said of itself. Each room is a file of its own.
"""

from collections.abc import Iterator
from pathlib import Path

from bxcore.errors import ConfigError
from bxcore.wire import admin
from bxctl import (
    finding,
    hostchecks,
    imagechecks,
    installed,
    placechecks,
    rolelimits,
    rootsword,
    socketchecks,
    userchecks,
    wayin,
)
from bxctl.finding import Finding
from bxctl.machine import Machine

_WIRING, _WORD = "wiring", "owner of the wiring"


def run(home: Path, etc: Path, report: admin.BrokerStatusReport | None, machine: Machine) -> Iterator[Finding]:
    """Yield every finding; none where `etc` holds no wiring. `report`: what brokerd says, where it answers."""
    try:
        doubts = _doubts(home, etc, machine)
        yield from doubts
        if not all(doubt.passed for doubt in doubts if doubt.name == _WORD):
            return  # not believed, so nothing else is judged by it
        found = installed.find(home, etc, machine)
    except ConfigError as fault:
        expected = f"{etc / installed.FILE} is the wiring of this version"
        yield Finding(
            name=_WIRING,
            passed=False,
            expected=expected,
            found=fault.detail,
            why="every other check of an appliance goes by it",
            runbook=fault.code,
        )
        return
    except PermissionError:
        yield Finding(name=_WIRING, passed=None, expected="a wiring", found=f"{etc} is closed to this user")
        return
    if found is None:
        return
    yield from userchecks.users(found)
    yield from userchecks.groups(found)
    yield from userchecks.ids(found)
    yield from placechecks.directories(found)
    yield from placechecks.files(found)
    yield from placechecks.grants(found)
    yield from wayin.folders(found)
    yield from socketchecks.sockets(found)
    yield from imagechecks.images(found, report)
    yield from hostchecks.limits(report)
    yield from rolelimits.limits(found)
    yield from hostchecks.inodes(found)
    yield from hostchecks.clock(found)


def _doubts(home: Path, etc: Path, machine: Machine) -> list[Finding]:
    """Return whether the wiring is root's word, and whether what it speaks of is where root put it."""
    path = etc / installed.FILE
    if machine.look(path) is None:
        return []
    seen = machine.look(home)
    # Where root set up nothing all belongs to the one user who is every role.
    trusted = {0} if seen is None else {0, seen.uid}
    return [
        *finding.room(
            _WORD,
            held=f"{path}: nobody else may write it, or in a directory above it",
            faults=rootsword.of_file(machine, path, trusted=trusted),
            runbook=rootsword.UNSAFE,
        ),
        *finding.room(
            "way to the home",
            held=f"nobody else may write in a directory above {home}",
            faults=rootsword.of_way(machine, home, trusted=trusted),
            runbook=rootsword.UNSAFE,
        ),
    ]
