"""What `bxctl doctor` looks at where Boxmaker is installed as an appliance, beside what it looks at in a checkout.

Reads this machine alone, and what brokerd last said of itself. Each room is a file of its own.
"""

from collections.abc import Iterator
from pathlib import Path

from bxcore.errors import ConfigError
from bxcore.wire import admin
from bxctl import hostchecks, imagechecks, installed, placechecks, socketchecks, userchecks, wayin
from bxctl.finding import Finding
from bxctl.machine import Machine


def run(home: Path, etc: Path, report: admin.BrokerStatusReport | None, machine: Machine) -> Iterator[Finding]:
    """Yield every finding; none where `etc` holds no wiring. `report`: what brokerd says, where it answers."""
    try:
        found = installed.find(home, etc, machine)
    except ConfigError as fault:
        expected = f"{etc / installed.FILE} is the wiring of this version"
        yield Finding(
            name="wiring",
            passed=False,
            expected=expected,
            found=fault.detail,
            why="every other check of an appliance goes by it",
            runbook=fault.code,
        )
        return
    except PermissionError:
        yield Finding(name="wiring", passed=None, expected="a wiring", found=f"{etc} is closed to this user")
        return
    if found is None:
        return
    yield from userchecks.users(found)
    yield from userchecks.ids(found)
    yield from placechecks.directories(found)
    yield from placechecks.files(found)
    yield from placechecks.grants(found)
    yield from wayin.folders(found)
    yield from socketchecks.sockets(found)
    yield from imagechecks.images(found, report)
    yield from hostchecks.limits(report)
    yield from hostchecks.inodes(found)
    yield from hostchecks.clock(found)
