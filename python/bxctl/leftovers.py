"""Checks of `bxctl doctor`: what a restore or a backup that was cut short has left. Nothing where there is nothing."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from bxctl.backupnames import MARK, UNFINISHED
from bxctl.finding import Finding

_RESTORE, _BACKUP = "restore_unfinished", "backup_unfinished"


def unfinished(home: Path, etc: Path) -> Iterator[Finding]:
    """Yield a finding for each restore and each backup in `home` and `etc` that was never finished."""
    for place in dict.fromkeys((home, etc)):
        yield from _backups(place)
        if MARK in _names(place):
            yield Finding(
                name="restore",
                passed=False,
                expected=f"no {MARK} in {place}",
                found="a restore was cut short there",
                why="what is in its place may be a part of a state only",
                command="restore again: bxctl backup restore says what to remove first",
                runbook=_RESTORE,
            )


def _backups(place: Path) -> Iterator[Finding]:
    for name in filter(UNFINISHED.fullmatch, _names(place)):
        yield Finding(
            name="backup",
            passed=False,
            expected=f"no unfinished backup in {place}",
            found=name,
            why="everything that was said may be in it, and it never verifies; unless one is being made just now",
            command=f"rm -r {shlex.quote(str(place / name))}",
            runbook=_BACKUP,
        )


def _names(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError:
        return []  # other checks say so
