"""`bxctl backup create`: copies what Boxmaker keeps into a new directory, while the roles run and write.

Reads: the home and the configuration directory, in the order of bxcore.backupsource. Writes: DIR alone, made beside its
place as `.DIR.unfinished`, whole and durable before it is moved there; the manifest is the last file. Locks nothing of
the roles'. Memory grows with the number of files, never with their sizes. Specified in docs/backup.md.
"""

import json as jsonlib
import os
import shlex
import shutil
import sys
from pathlib import Path

import attrs

from bxcore import backupcopy, backupmanifest, files
from bxcore.backupmanifest import AUDIT, ETC, SESSIONS, STATE_PARTS, Begin, File, LeftOut
from bxcore.backupsource import Source, SourceChanged, Wanted
from bxcore.chain import Report, Verifier
from bxcore.errors import StateError
from bxcore.files import NewTree, StateDenied, StateInUse, StateMissing, StateUnreadable
from bxctl import VERSION, render
from bxctl.backupnames import UNFINISHED
from bxctl.backupprogress import Progress
from bxctl.exits import Exit
from bxctl.render import Ink
from bxctl.world import World

_BROKEN = "audit_broken"
_CHANGED = "was changed while the backup was made, as no role changes it"


class BackupTarget(StateError):
    """The backup cannot be made there."""

    code = "backup_target"


class BackupNothing(StateError):
    """There is nothing to back up."""

    code = "backup_nothing"


class BackupUnreadable(StateError):
    """Whoever runs this may not read what is to be copied."""

    code = "backup_unreadable"


@attrs.frozen(kw_only=True)
class Made:
    """What was made. `lost`: sessions that something other than their role was at, left out as a whole."""

    begin: Begin
    files: tuple[File, ...]
    left_out: tuple[LeftOut, ...]
    lost: tuple[LeftOut, ...]
    report: Report | None

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def is_broken(self) -> bool:
        """Whether the audit log, which was copied as it is, is not what brokerd wrote."""
        return self.report is not None and self.report.broken is not None


def create(world: World, directory: Path, *, etc: Path, json: bool, tree: NewTree | None = None) -> int:
    """Make the backup and say what is in it."""
    target = _target(world, directory, etc)
    try:
        made = _make(world, target, etc, tree or NewTree())
    except StateDenied as error:
        command = world.home.command(shlex.join(["backup", "create", str(directory)]))
        raise BackupUnreadable(
            f"{error.detail}; each role's files are its own user's, so do this as root: sudo {command}"
        ) from None
    if json:
        sys.stdout.write(jsonlib.dumps(_as_json(made, target)) + "\n")
    else:
        _tell(world, made, target)
    return Exit.FAILED if made.is_broken or made.lost else Exit.OK


# -- where to ---------------------------------------------------------------------------------------


def _target(world: World, directory: Path, etc: Path) -> Path:
    try:
        # realpath and not resolve: of a link that leads to itself that is an OSError too.
        target = Path(os.path.realpath(directory.parent, strict=True)) / directory.name
    except OSError as error:
        raise BackupTarget(f"{directory.parent}: {error.strerror}; make it first") from None
    if not directory.name or directory.name == ".." or UNFINISHED.fullmatch(directory.name):
        raise BackupTarget(f"{directory}: name a new directory for the backup")
    _refuse_taken(target)
    for source in (*(world.home.path / part for part in STATE_PARTS), etc):
        if target.is_relative_to(os.path.realpath(source)):
            raise BackupTarget(f"{target}: lies in {source}, which is to be copied; choose a place outside of it")
    return target


def _refuse_taken(target: Path) -> None:
    try:
        taken = target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir())))
        mounted = target.is_mount()
    except OSError as error:
        raise BackupTarget(f"{target}: {error.strerror}") from None
    if taken:
        raise BackupTarget(f"{target}: is there already and not empty; a backup is made in a new directory")
    if mounted:
        raise BackupTarget(f"{target}: a file system is mounted there; name a new directory in it")


def _make(world: World, target: Path, etc: Path, tree: NewTree) -> Made:
    unfinished = target.with_name(f".{target.name}.unfinished")
    _remove_left(world, unfinished)
    tree.make_dir(unfinished)
    lock = files.lock_directory(unfinished)
    try:
        made = _Making(world, tree, unfinished).run(Source(world.home.path, etc))
        tree.move(unfinished, target)
        return made
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    finally:
        lock.close()


def _remove_left(world: World, unfinished: Path) -> None:
    """Remove what a killed run has left in the place that is ours by its name."""
    try:
        lock = files.lock_directory(unfinished)
    except StateInUse:
        raise StateInUse(f"{unfinished}: another backup is being made there just now") from None
    except StateUnreadable:
        if not unfinished.is_symlink() and not unfinished.exists():
            return
        raise BackupTarget(f"{unfinished}: is in the way; remove it") from None
    try:
        # Ours only while it is what lies there: another one, just begun, may have removed that and made its own.
        if not os.path.samestat(lock.status(), unfinished.lstat()):
            raise StateInUse(f"{unfinished}: another backup is being made there just now")
        shutil.rmtree(unfinished, ignore_errors=True)
    except FileNotFoundError:
        return
    finally:
        lock.close()
    world.errors.say(f"Removed {unfinished}, which a backup that was cut short had left.", Ink.DIM)


# -- the copying ------------------------------------------------------------------------------------


class _Making:
    """One backup while it is made in `directory`."""

    def __init__(self, world: World, tree: NewTree, directory: Path) -> None:
        self._world, self._tree, self._directory = world, tree, directory
        self._folders = [directory]
        self._made = {""}
        self._files: dict[str, File] = {}
        self._gone: dict[str, LeftOut] = {}
        self._lost: dict[str, LeftOut] = {}
        self._verifier = Verifier()
        self._log_file = ""
        self._progress = Progress(world.errors, 0)

    def run(self, source: Source) -> Made:
        parts = source.parts
        if not any(part in STATE_PARTS for part in parts):
            raise BackupNothing(
                f"{self._world.home.path}: holds none of {', '.join(STATE_PARTS)}; "
                "name Boxmaker's home with --home or BOXMAKER_HOME"
            )
        self._progress = Progress(self._world.errors, source.known_bytes)
        self._require_room(source.known_bytes)
        for wanted in source.files():
            self._copy(wanted)
        for session in source.unread:
            self._drop(session, self._lost, _CHANGED)
        self._world.errors.erase()
        report = self._end_log()
        begin = Begin(
            format=backupmanifest.FORMAT,
            time=self._world.clock.now_ms(),
            boxmaker=VERSION,
            parts=parts,
            head=None if report is None else str(report.head),
        )
        made = Made(
            begin=begin,
            files=tuple(self._files.values()),
            left_out=(*source.left_out, *self._gone.values(), *self._lost.values()),
            lost=tuple(self._lost.values()),
            report=report,
        )
        self._finish(made)
        return made

    def _require_room(self, needed_bytes: int) -> None:
        """Refuse before the disk is full: what a role wrote may be longer than the space that it takes (holes)."""
        disk = os.statvfs(self._directory)
        free_bytes = disk.f_bavail * disk.f_frsize
        if needed_bytes > free_bytes:
            raise BackupTarget(
                f"{self._directory.parent}: {render.size(free_bytes)} are free there, "
                f"the backup takes {render.size(needed_bytes)}"
            )

    def _copy(self, wanted: Wanted) -> None:
        if wanted.session is not None and (wanted.session in self._gone or wanted.session in self._lost):
            return
        target = self._directory / wanted.path
        self._make_folder(wanted.path.rpartition("/")[0])
        try:
            copied = backupcopy.copy(self._tree, wanted, target, told=self._told(wanted))
        except StateMissing:
            self._note_gone(wanted)
            return
        except StateDenied:
            raise
        except (SourceChanged, StateUnreadable):
            # Whoever may write one session must not be able to prevent the backup of everything else.
            if wanted.session is None:
                raise
            self._drop(wanted.session, self._lost, _CHANGED)
            return
        if wanted.cut is None:
            self._show(0)
        self._files[wanted.path] = File(
            path=wanted.path,
            bytes=copied.bytes,
            sha256=copied.sha256,
            mode=copied.mode,
            changed=copied.changed,
            cut=copied.cut,
        )

    def _note_gone(self, wanted: Wanted) -> None:
        """The owner removed it meanwhile: a session goes as a whole. Nobody removes what brokerd keeps."""
        if wanted.session is None and not wanted.path.startswith((f"{ETC}/", "memory/")):
            raise SourceChanged(f"{wanted.source}: was removed while the backup was made; nothing does that")
        if wanted.session is not None:
            self._drop(wanted.session, self._gone, "was removed while the backup was made")

    def _drop(self, session: str, among: dict[str, LeftOut], why: str) -> None:
        """Leave a session out as a whole."""
        folder = f"{SESSIONS}/{session}"
        among[session] = LeftOut(path=folder, why=why)
        self._files = {path: file for path, file in self._files.items() if not path.startswith(f"{folder}/")}
        shutil.rmtree(self._directory / folder, ignore_errors=True)
        self._folders = [path for path in self._folders if not path.is_relative_to(self._directory / folder)]

    def _make_folder(self, folder: str) -> None:
        if folder in self._made:
            return
        self._make_folder(folder.rpartition("/")[0])
        self._made.add(folder)
        self._tree.make_dir(self._directory / folder)
        self._folders.append(self._directory / folder)

    # -- the audit log is verified on its way --------------------------------------------------------

    def _told(self, wanted: Wanted) -> backupcopy.Told | None:
        if wanted.cut is None:
            return None
        folder, _, name = wanted.path.rpartition("/")
        if folder != AUDIT:
            return lambda piece: self._show(len(piece))
        if self._log_file:
            self._verifier.end()
        self._log_file = name
        self._verifier.begin(name)

        def feed(piece: bytes) -> None:
            self._verifier.feed(piece)
            self._show(len(piece))

        return feed

    def _end_log(self) -> Report | None:
        if not self._log_file:
            return None
        self._verifier.end()
        return self._verifier.finish()

    def _show(self, size_bytes: int) -> None:
        self._progress.add(size_bytes, f", {render.count_of(len(self._files), 'file')}")

    def _finish(self, made: Made) -> None:
        for part in made.begin.parts:
            self._make_folder(part)
        with self._tree.make_file(self._directory / backupmanifest.NAME) as file:
            for line in backupmanifest.encode(made.begin, made.files, made.left_out):
                file.write(line)
            file.finish()
        for folder in self._folders:
            self._tree.sync(folder)


# -- telling ----------------------------------------------------------------------------------------


def _tell(world: World, made: Made, target: Path) -> None:
    screen = world.screen
    tick = screen.paint(screen.glyph("✓", "ok"), Ink.GOOD)
    screen.line(
        f"{tick} {render.safe_line(str(target))}: {render.count_of(len(made.files), 'file')}, {render.size(made.bytes)}"
    )
    if made.begin.head is not None:
        screen.line(f"  head  {made.begin.head}")
    for file in made.files:
        if file.cut:
            words = f"{render.size(file.cut)} at its end were no whole line yet, and were left out"
            screen.line(f"  {render.safe_line(file.path)}: {words}", Ink.DIM)
    for thing in made.left_out:
        screen.line(f"  left out: {render.safe_line(thing.path)}, {thing.why}", Ink.WARN)
    if ETC not in made.begin.parts:
        screen.line("  there is no configuration directory, so no grants are in it", Ink.WARN)
    if made.is_broken and made.report is not None:
        for finding in made.report.findings:
            place = render.safe_line(f"{AUDIT}/{finding.file}:{finding.line}")
            screen.line(f"  {place}: {render.safe_line(finding.detail)} ({finding.fault.value})", Ink.BAD)
        screen.line(f"The backup holds the audit log as it is, and that is not whole. [{_BROKEN}]", Ink.BAD)
    if made.lost:
        lacks = render.count_of(len(made.lost), "session")
        screen.line(f"The backup lacks {lacks} that changed as no role changes them. [{SourceChanged.code}]", Ink.BAD)
    verify = render.safe_line(world.home.command(shlex.join(["backup", "verify", str(target)])))
    screen.line(f"Check it now and then, also where you copy it to: {verify}")


def _as_json(made: Made, target: Path) -> dict[str, object]:
    return {
        "whole": not made.is_broken and not made.lost,
        "directory": os.fsencode(target).decode("utf-8", errors="backslashreplace"),
        "files": len(made.files),
        "bytes": made.bytes,
        "head": made.begin.head,
        "cut": {file.path: file.cut for file in made.files if file.cut},
        "left_out": {thing.path: thing.why for thing in made.left_out},
        "lost": [thing.path for thing in made.lost],
    }
