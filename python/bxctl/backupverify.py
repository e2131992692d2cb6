"""`bxctl backup verify`: whether the backup is what was written, and holds what the programs would accept.

Reads the backup alone and changes nothing. Specified in docs/backup.md.
"""

import json as jsonlib
import sys
from pathlib import Path

import attrs

from bxcore import backupcheck, convert
from bxcore.backupcheck import BackupUnfinished, Finding, Readers
from bxcore.backupmanifest import AUDIT, ETC, Manifest
from bxcore.chainreport import Report
from bxcore.errors import StateError
from bxcore.timestamp import to_text
from bxctl import render
from bxctl.backupnames import UNFINISHED
from bxctl.backupprogress import Progress
from bxctl.exits import Exit
from bxctl.render import Ink
from bxctl.world import World

DAMAGED, FAULTY = "backup_damaged", "backup_faulty"


class BackupMissing(StateError):
    """There is no directory of that name."""

    code = "backup_unfinished"


@attrs.frozen(kw_only=True)
class Checked:
    """A backup that was looked at. `lower`: labels in it are lower than the audit log in it makes them."""

    directory: Path
    manifest: Manifest
    findings: tuple[Finding, ...]
    report: Report | None
    lower: bool

    @property
    def is_damaged(self) -> bool:
        """Whether it is not what was written."""
        return any(finding.damaged for finding in self.findings)


def verify(world: World, directory: Path, *, json: bool) -> int:
    """Check the backup and say what was found."""
    checked = check(world, directory)
    if json:
        sys.stdout.write(jsonlib.dumps(_as_json(checked)) + "\n")
    else:
        _tell(world, checked)
    return Exit.FAILED if checked.findings else Exit.OK


def check(world: World, directory: Path) -> Checked:
    """Look at all of it. Raises BackupUnfinished, BackupNewer, StateError where there is no backup to look at."""
    if UNFINISHED.fullmatch(directory.absolute().name):
        raise BackupUnfinished(f"{directory}: was never finished; the name says so")
    if not directory.is_dir():
        raise BackupMissing(f"{directory}: is no directory, so it is no backup")
    manifest = backupcheck.manifest(directory)
    # Every byte is hashed, and those of the audit log are read once more.
    log = sum(file.bytes for file in manifest.files.values() if file.path.startswith(f"{AUDIT}/"))
    progress = Progress(world.errors, manifest.end.bytes + log)
    readers = Readers(directory, manifest, progress=progress.add)
    try:
        findings = (*backupcheck.damage(directory, manifest, progress=progress.add), *readers.findings())
    except OSError as error:
        raise BackupMissing(f"{directory}: cannot be read: {error.strerror}") from None
    world.errors.erase()
    return Checked(
        directory=directory, manifest=manifest, findings=findings, report=readers.report, lower=readers.lower
    )


def tell_findings(screen: render.Screen, checked: Checked) -> None:
    """Show each finding as a line."""
    cross = screen.paint(screen.glyph("✗", "FAILED"), Ink.BAD)
    for finding in checked.findings:
        screen.line(f"{cross} {render.safe_line(str(finding))}")


def _tell(world: World, checked: Checked) -> None:
    screen, manifest = world.screen, checked.manifest
    if checked.findings:
        tell_findings(screen, checked)
        if checked.is_damaged:
            screen.line(f"This backup is not what was written. [{DAMAGED}]", Ink.BAD)
        else:
            screen.line(f"The backup is whole; what it holds had these faults when it was made. [{FAULTY}]", Ink.BAD)
        return
    tick = screen.paint(screen.glyph("✓", "ok"), Ink.GOOD)
    size = f"{render.count_of(manifest.end.files, 'file')}, {render.size(manifest.end.bytes)}"
    when = f"made {to_text(manifest.begin.time)} by Boxmaker {render.safe_line(manifest.begin.boxmaker)}"
    screen.line(f"{tick} whole: {size}, {when}")
    if manifest.begin.head is not None:
        screen.line(f"  head  {render.safe_line(manifest.begin.head)}")
    for thing in manifest.left_out:
        screen.line(f"  left out: {render.safe_line(thing.path)}, {render.safe_line(thing.why)}", Ink.WARN)
    if ETC not in manifest.begin.parts:
        screen.line("  no grants are in it: there was no configuration directory", Ink.WARN)


def _as_json(checked: Checked) -> dict[str, object]:
    begin, end = checked.manifest.begin, checked.manifest.end
    return {
        "whole": not checked.findings,
        "damaged": checked.is_damaged,
        "time": to_text(begin.time),
        "boxmaker": begin.boxmaker,
        "files": end.files,
        "bytes": end.bytes,
        "head": begin.head,
        "left_out": {thing.path: thing.why for thing in checked.manifest.left_out},
        "findings": [convert.unstructure(finding) for finding in checked.findings],
    }
