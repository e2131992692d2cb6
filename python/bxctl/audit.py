"""`bxctl audit verify` and `bxctl audit head`: whether the audit log is what brokerd wrote.

Reads the log's files itself and changes nothing: it answers while brokerd runs, is down, or refuses to start.
"""

import json as jsonlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from bxcore import auditfiles, audithead, convert, files
from bxcore.auditfiles import Progress
from bxcore.chain import Head, Kept, Report, Verifier
from bxcore.errors import StateError
from bxcore.files import StateDenied, StateMissing
from bxctl import render
from bxctl.exits import Exit
from bxctl.render import Ink
from bxctl.world import World

BROKEN = "audit_broken"
_BAR = 30
_NUMBERS_SHOWN = 10


@attrs.frozen(kw_only=True)
class Log:
    """Which log is meant: that of the home, or a copy elsewhere. `head` is the one that the owner kept."""

    directory: Path | None = None
    head: Head | None = None


class AuditClosed(StateError):
    """Whoever runs this may not read the log."""

    code = "audit_closed"


def verify(world: World, log: Log, *, json: bool) -> int:
    """Verify the whole log and say what was found."""
    require_open(world, log, "verify")
    kept, where = _kept(world, log)
    report = _report(world, log, kept)
    if json:
        value = convert.unstructure(report)
        sys.stdout.write(jsonlib.dumps({"whole": report.broken is None, **_fields(value)}) + "\n")
    elif report.broken is None:
        _tell_whole(world, report, where)
    else:
        _tell_broken(world, report)
    return Exit.OK if report.broken is None else Exit.FAILED


def head(world: World, log: Log) -> int:
    """Print the head of a log that is whole, to be kept elsewhere."""
    require_open(world, log, "head")
    kept, _ = _kept(world, log)
    report = _report(world, log, kept)
    if report.broken is not None:
        _tell_broken(world, report)
        return Exit.FAILED
    world.screen.line(str(report.head))
    return Exit.OK


def require_open(world: World, log: Log, *words: str) -> None:
    """Raise AuditClosed, with the command to run instead, where this user may not read the log. Before all else."""
    where = directory(world, log)
    try:
        auditfiles.names(where)
    except StateDenied:
        elsewhere = [] if log.directory is None else ["--directory", str(where.absolute())]
        command = world.home.command(shlex.join(["audit", *words, *elsewhere]))
        raise AuditClosed(f"{where}: is brokerd's alone to read, not this user's; as root: sudo {command}") from None


def directory(world: World, log: Log) -> Path:
    """Return where the log's files lie."""
    return log.directory or world.home.audit


def _report(world: World, log: Log, kept: Head | None) -> Report:
    where = directory(world, log)
    names = auditfiles.names(where)
    verifier, progress = Verifier(kept=kept), _progress(world, where, names)
    for name in names:
        auditfiles.feed(verifier, where, name, progress=progress)
    world.errors.erase()
    return verifier.finish()


def _progress(world: World, where: Path, names: Sequence[str]) -> Progress | None:
    if not world.errors.lively:
        return None
    total, done = sum(auditfiles.size(where, name) for name in names), 0

    def tell(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        bar = render.progress_bar(done / max(total, 1), _BAR, unicode=world.errors.unicode)
        world.errors.live(f"{bar} {render.size(done)} of {render.size(total)}")

    return tell


def _kept(world: World, log: Log) -> tuple[Head | None, str]:
    """Return the head to compare with and where it was kept. Before the log is read: brokerd may be writing it."""
    if log.head is not None:
        return log.head, "the one that you gave"
    if log.directory is not None:
        return None, ""
    try:
        with files.open_read(world.home.audit_head) as file:
            found = audithead.read(file.read(2 * audithead.LENGTH))
    except StateMissing:
        return None, ""
    except StateError as error:
        world.errors.say(f"The head that brokerd keeps cannot be read: {render.safe_line(error.detail)}", Ink.WARN)
        return None, ""
    return found, "the one that brokerd keeps"


def _tell_whole(world: World, report: Report, where: str) -> None:
    screen = world.screen
    tick = screen.paint(screen.glyph("✓", "ok"), Ink.GOOD)
    size = f"{render.count_of(report.records, 'record')} in {render.count_of(report.files, 'file')}"
    screen.line(f"{tick} whole: {size}, {render.size(report.bytes)}")
    screen.line(f"  head  {report.head}")
    if report.kept is Kept.HELD:
        screen.line(f"  it has the head that was kept: {where}")
    else:
        screen.line("  no head to compare with: a tail that was cut off would not show", Ink.WARN)
    if report.torn is not None:
        screen.line(f"  {report.torn.file}:{report.torn.line} is being written, or was cut off by a crash", Ink.WARN)
    for torn in report.recovered:
        screen.line(f"  {torn.file}:{torn.line} torn, kept and described: {render.size(torn.bytes)}")
    for accepted in report.accepted:
        place = f"{render.safe_line(accepted.file)}:{accepted.line}"
        screen.line(f"  {place} broken ({accepted.found.value}), accepted by record {accepted.seq}", Ink.WARN)
    _tell_numbers(world, "asked, not answered", report.unsettled.asked)
    _tell_numbers(world, "allowed, not started", report.unsettled.allowed)
    _tell_numbers(world, "started, no result", report.unsettled.started)


def _tell_numbers(world: World, words: str, numbers: tuple[int, ...]) -> None:
    if numbers:
        shown = ", ".join(str(number) for number in numbers[:_NUMBERS_SHOWN])
        more = f" and {render.count(len(numbers) - _NUMBERS_SHOWN)} more" if len(numbers) > _NUMBERS_SHOWN else ""
        world.screen.line(f"  {words}: {shown}{more}")


def _tell_broken(world: World, report: Report) -> None:
    cross = world.screen.paint(world.screen.glyph("✗", "FAILED"), Ink.BAD)
    for finding in report.findings:
        place = render.safe_line(f"{finding.file}:{finding.line}")
        world.screen.line(f"{cross} {place}: {render.safe_line(finding.detail)} ({finding.fault.value})")
    if report.more_findings:
        world.screen.line(f"and {render.count(report.more_findings)} more")
    good = f"Whole up to record {report.head.seq}, of {render.count_of(report.next_seq - 1, 'line')}."
    world.screen.line(f"{good} [{BROKEN}]", Ink.BAD)


def _fields(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
