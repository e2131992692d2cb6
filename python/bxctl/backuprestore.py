"""`bxctl backup restore`: puts a backup that verifies into an empty place, whole or not at all.

Reads: the backup. Writes: the home and the configuration directory that are named, in `.restore-unfinished` there at
first, durable, with owners and modes; then each part is moved into its place, the audit log last: until it is there
brokerd refuses to start, for the head that it keeps is ahead of an empty log. Changes no byte. See docs/backup.md.
"""

import json as jsonlib
import os
import shutil
import sys
from pathlib import Path

import attrs

from bxcore import backupcopy, brokerfiles, regularfile
from bxcore.backupmanifest import AUDIT, BROKER, ETC, GRANTS, MEMORY, SESSIONS, File
from bxcore.errors import StateError
from bxcore.files import NewTree, StateMissing
from bxctl import backuplive, backupverify, render
from bxctl.backuplive import LOOPD_LOCK
from bxctl.backupnames import MARK
from bxctl.backupowners import Owner, Owners
from bxctl.backupprogress import Progress
from bxctl.backupverify import Checked
from bxctl.exits import Exit
from bxctl.render import Ink
from bxctl.sockets import Home
from bxctl.world import World

_ORDER = (BROKER, SESSIONS, MEMORY, AUDIT)
_MOST_SETTINGS = 1024 * 1024
_LABELS_WHOLE = f"{BROKER}/{brokerfiles.SESSIONS}/{brokerfiles.COMPLETE}"
"""Left out where labels are lower than the log: without it brokerd raises each session to what its log says."""


class BackupDamaged(StateError):
    """The backup is not what was written."""

    code = "backup_damaged"


class BackupFaulty(StateError):
    """The backup holds what a role would refuse, as it was when it was copied."""

    code = "backup_faulty"


class RestoreTarget(StateError):
    """There is no place to restore into."""

    code = "restore_target"


@attrs.frozen(kw_only=True)
class Wish:
    """What the owner asked for. Without `etc` grants and role files stay in the backup."""

    backup: Path
    into: Path
    etc: Path | None
    accept_faults: bool


@attrs.frozen(kw_only=True)
class _Put:
    """What was restored. `kept` are role files that were there already, and differ."""

    files: int
    bytes: int
    kept: tuple[str, ...]


def restore(world: World, wish: Wish, *, json: bool, tree: NewTree | None = None) -> int:
    """Restore, and say what is left to do."""
    home, etc = _place(wish.into), None if wish.etc is None else _place(wish.etc)
    _refuse_one_in_another(Path(os.path.realpath(wish.backup)), home, etc)
    owners = Owners(home, etc)
    with backuplive.taken(home):
        backuplive.refuse_taken(home, etc)
        checked = _checked(world, wish)
        put = _Restoring(world, checked, owners, tree or NewTree(), home=home, etc=etc).run()
    to_do = tuple(owners.still_to_do())
    if json:
        value = {"home": str(home), "files": put.files, "bytes": put.bytes, "kept": put.kept, "to_do": to_do}
        sys.stdout.write(jsonlib.dumps(value) + "\n")
    else:
        _tell(world, wish, put, to_do, home)
    return Exit.OK


def _place(path: Path) -> Path:
    """Return where `path` really lies; what holds it must be there."""
    try:
        place = Path(os.path.realpath(path))
        if place.is_dir() or (not place.exists() and place.parent.is_dir()):
            return place
    except OSError as error:
        raise RestoreTarget(f"{path}: {error.strerror}") from None
    raise RestoreTarget(f"{path}: is no directory, and cannot be made one: make what holds it first")


def _refuse_one_in_another(backup: Path, home: Path, etc: Path | None) -> None:
    for place in (home, etc):
        if place is not None and place.is_relative_to(backup):
            raise RestoreTarget(f"{place}: lies in the backup, which nothing is ever written to; choose another place")
    if etc is None or etc == home / ETC:
        return  # as in a checkout
    if etc.is_relative_to(home) or home.is_relative_to(etc):
        raise RestoreTarget(
            f"{etc}: the configuration directory and the home {home} lie in one another; "
            f"choose places of their own, or {home / ETC}"
        )


def _checked(world: World, wish: Wish) -> Checked:
    checked = backupverify.check(world, wish.backup)
    if checked.findings:
        backupverify.tell_findings(world.errors, checked)
    if checked.is_damaged:
        raise BackupDamaged(f"{wish.backup}: is not what was written, so nothing was restored; take another backup")
    if checked.findings and not wish.accept_faults:
        raise BackupFaulty(
            f"{wish.backup}: is whole, but holds what was faulty when it was made, so nothing was restored; "
            "with --accept-faults it is restored as it is"
        )
    return checked


class _Restoring:
    """One restore, while the place is ours."""

    def __init__(
        self, world: World, checked: Checked, owners: Owners, tree: NewTree, *, home: Path, etc: Path | None
    ) -> None:
        self._world, self._checked, self._owners, self._tree = world, checked, owners, tree
        self._home, self._etc = home, etc
        self._made: list[Path] = []
        self._moved: list[tuple[Path, Path]] = []
        self._done = self._count = 0
        self._progress = Progress(world.errors, checked.manifest.end.bytes)

    def run(self) -> _Put:
        try:
            kept = self._stage()
            moves = self._moves()
            for staged, place in moves:
                (place / LOOPD_LOCK).unlink(missing_ok=True)  # we hold it; a directory must be empty to be replaced
                self._moved.append((staged, place))  # before: it may have been moved although that was not durable
                self._tree.move(staged, place)
        except OSError as error:
            self._take_back()
            raise RestoreTarget(f"{self._home}: {error.strerror}: {error.filename}; nothing was restored") from None
        except BaseException:
            self._take_back()
            raise
        self._leave()
        self._world.errors.erase()
        return _Put(files=self._count, bytes=self._done, kept=kept)

    # -- beside its place ---------------------------------------------------------------------------

    def _stage(self) -> tuple[str, ...]:
        self._make_place(self._home)
        for part in _ORDER:
            if part in self._checked.manifest.begin.parts:
                self._stage_part(part, self._home / MARK / part)
        if self._etc is None or ETC not in self._checked.manifest.begin.parts:
            return ()
        self._make_place(self._etc)
        self._stage_part(f"{ETC}/{GRANTS}", self._etc / MARK / GRANTS)
        return self._stage_settings(self._etc)

    def _make_place(self, place: Path) -> None:
        if not place.is_dir():
            self._tree.make_dir(place)
            self._made.append(place)
            self._tree.sync(place.parent)
            if self._owners.wiring is not None:
                place.chmod(0o755)
        if place / MARK not in self._made:
            self._tree.make_dir(place / MARK)
            self._made.append(place / MARK)
            self._tree.sync(place)

    def _stage_part(self, part: str, staged: Path) -> None:
        owner = self._owners.of(part)
        folders = {"": staged}
        self._tree.make_dir(staged)
        for file in self._checked.manifest.files.values():
            if file.path.startswith(f"{part}/") and not (self._checked.lower and file.path == _LABELS_WHOLE):
                below = file.path.removeprefix(f"{part}/")
                self._make_below(folders, below.rpartition("/")[0], staged)
                self._copy(file, staged / below, owner)
        for below, folder in reversed(folders.items()):
            owner.own_directory(folder, top=not below)
            self._tree.sync(folder)

    def _make_below(self, folders: dict[str, Path], below: str, staged: Path) -> None:
        if below not in folders:
            self._make_below(folders, below.rpartition("/")[0], staged)
            self._tree.make_dir(staged / below)
            folders[below] = staged / below

    def _stage_settings(self, etc: Path) -> tuple[str, ...]:
        """Stage the role files that are not there. One that is there is the installation's, and stays."""
        kept = []
        for file in self._checked.manifest.files.values():
            folder, _, name = file.path.rpartition("/")
            if folder != ETC:
                continue
            if not (etc / name).exists() and not (etc / name).is_symlink():
                self._copy(file, etc / MARK / name, self._owners.of_file(name))
            elif not self._is_same(etc / name, file):
                kept.append(name)
        self._tree.sync(etc / MARK)
        return tuple(kept)

    def _is_same(self, path: Path, file: File) -> bool:
        backed_up = self._checked.directory / file.path
        try:
            return regularfile.content(path, most=_MOST_SETTINGS) == regularfile.content(backed_up, most=_MOST_SETTINGS)
        except OSError:
            return False

    def _copy(self, file: File, target: Path, owner: Owner) -> None:
        source = self._checked.directory / file.path
        try:
            copied = backupcopy.copy_back(
                self._tree, source, target, changed=file.changed, own=owner.own_file, told=self._show
            )
        except StateMissing:
            raise BackupDamaged(f"{source}: was removed while it was restored; nothing was restored") from None
        if (copied.bytes, copied.sha256) != (file.bytes, file.sha256):
            raise BackupDamaged(f"{source}: was changed while it was restored; nothing was restored")
        self._count += 1

    def _show(self, piece: bytes) -> None:
        self._done += len(piece)
        self._progress.add(len(piece))

    # -- into its place -----------------------------------------------------------------------------

    def _moves(self) -> list[tuple[Path, Path]]:
        """Return what is moved where, the audit log last."""
        etc = [] if self._etc is None else [(path, self._etc / path.name) for path in _names(self._etc / MARK)]
        parts = [(self._home / MARK / part, self._home / part) for part in _ORDER]
        return [*(move for move in etc if move not in parts), *(move for move in parts if move[0].is_dir())]

    def _take_back(self) -> None:
        """Leave nothing of ours behind."""
        for staged, place in reversed(self._moved):
            try:
                if not staged.exists():
                    self._tree.move(place, staged)
            except StateError:
                return  # the mark stays: what is there is no whole state
        for place in reversed(self._made):
            if place.name == MARK:
                shutil.rmtree(place, ignore_errors=True)
            elif not any(_names(place)):
                place.rmdir()

    def _leave(self) -> None:
        places = [place for place in (self._home, self._etc) if place is not None and (place / MARK).is_dir()]
        for place in places:
            (place / MARK).rmdir()
        for place in places:
            self._tree.sync(place)


def _names(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


# -- telling ----------------------------------------------------------------------------------------


def _tell(world: World, wish: Wish, put: _Put, to_do: tuple[str, ...], home: Path) -> None:
    screen = world.screen
    tick = screen.paint(screen.glyph("✓", "ok"), Ink.GOOD)
    screen.line(f"{tick} {render.safe_line(str(home))}: {render.count_of(put.files, 'file')}, {render.size(put.bytes)}")
    if wish.etc is None:
        screen.line("  Grants and role files are not among them: name the configuration directory with --etc", Ink.WARN)
    for name in put.kept:
        words = f"was there already and stays; that of the backup is {wish.backup / ETC / name}"
        screen.line(f"  {render.safe_line(name)}: {render.safe_line(words)}", Ink.WARN)
    screen.line("  No secret is ever in a backup: give Boxmaker its credentials anew")
    if ((wish.etc or home / ETC) / "gatewayd.toml").exists():
        words = "gatewayd begins with an empty queue: what was not answered in Mattermost has to be said again"
        screen.line(f"  {words}")
    if to_do:
        screen.line("Where each role has a user of its own, its files must be that user's:", Ink.WARN)
        for command in to_do:
            screen.line(f"  {render.safe_line(command)}")
    here = Home(path=home, chosen=True)
    screen.line(f"Start the roles, then {here.command('audit verify')}")
