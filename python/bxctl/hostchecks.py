"""What an appliance needs of its host: limits that are enforced, a clock that is right, room on the disk."""

from collections.abc import Iterator

from bxcore.wire import admin
from bxctl import render
from bxctl.finding import Finding
from bxctl.installed import Installed

LIMITS_MISSING, CLOCK_ADRIFT, DISK_LOW = "limits_missing", "clock_adrift", "disk_low"

FREE_FILES = 10_000
"""Fewer free inodes than this is a fault: each session and each container needs some."""


def limits(report: admin.BrokerStatusReport | None) -> Iterator[Finding]:
    """Say which limits of a tool container brokerd saw to hold."""
    if report is None or report.image is None:
        return  # brokerd's own check says why
    name, expected = "limits of tools", "every limit holds, as brokerd tried from inside a container"
    if not report.limits_held and not report.limits_missing:
        found = "brokerd could not try any yet; its log says why"
        yield Finding(name=name, passed=None, expected=expected, found=found)
        return
    if not report.limits_missing:
        yield Finding(name=name, passed=True, expected=expected, found=f"all hold: {', '.join(report.limits_held)}")
        return
    yield Finding(
        name=name,
        passed=False,
        expected=expected,
        found=f"not enforced: {', '.join(report.limits_missing)}",
        why="one call may then take all of it; what holds it is cgroups of version 2, given to the tools' user",
        command="stat -fc %T /sys/fs/cgroup  # cgroup2fs is what is needed",
        runbook=LIMITS_MISSING,
    )


def clock(installed: Installed) -> Iterator[Finding]:
    """Say whether the clock is kept right: expiry of grants, times in the logs and the clock tool go by it."""
    name, expected = "clock", "synchronised"
    found = installed.machine.synchronised()
    if found is None:
        yield Finding(name=name, passed=None, expected=expected, found="the kernel does not tell")
    elif found:
        yield Finding(name=name, passed=True, expected=expected, found=expected)
    else:
        yield Finding(
            name=name,
            passed=False,
            expected=expected,
            found="nothing keeps it right",
            why="grants expire by it, and the model is told it",
            command="timedatectl set-ntp true",
            runbook=CLOCK_ADRIFT,
        )


def inodes(installed: Installed) -> Iterator[Finding]:
    """Say whether new files can be made."""
    name, expected = "inodes", f"at least {render.count(FREE_FILES)} free"
    home = installed.wiring.at("home/")
    try:
        free = installed.machine.space(home).files_free
    except OSError:
        return  # the check of the disk has said so
    if free is None:
        yield Finding(name=name, passed=True, expected=expected, found="this file system has no fixed number")
        return
    enough = free >= FREE_FILES
    yield Finding(
        name=name,
        passed=enough,
        expected=expected,
        found=f"{render.count(free)} free",
        why="" if enough else "without any no session and no container can begin, however much space is left",
        command="" if enough else f"du --inodes -x {home} | sort -n | tail",
        runbook="" if enough else DISK_LOW,
    )
