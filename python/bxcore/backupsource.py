"""What to copy of a running Boxmaker, in which order, and how far: the plan of a backup.

Reads: names and sizes, and the few bytes of the audit log's head; takes no lock and changes nothing. Invariant: what
is copied by this plan fits together, whatever is written meanwhile. Sessions are cut first, then the head and the
seals, then the audit log, each to the size that it has at that moment; labels are read after all of them. So the audit
log knows every call that a session does, the head and the seals are never ahead of the log, and no session's labels
are lower than the log or its own text make them. The cut is made again while sessions go on in the middle of it: a
session that lacks a call of the log would have the next one of that number refused.
A session that something other than its role is at is left out, so that a role cannot keep the rest from being copied.
Files that only grow are copied up to their cut, the others whole. Threads: none. Specified in docs/backup.md.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from bxcore import auditlog, backupmanifest, files
from bxcore.backupmanifest import AUDIT, BROKER, ETC, GRANTS, MEMORY, SESSIONS, LeftOut
from bxcore.brokerfiles import CLOCK, COMPLETE
from bxcore.errors import StateError
from bxcore.files import StateDenied, StateUnreadable

HEAD, SEALS = f"{BROKER}/audit-head", f"{BROKER}/audit-seals.jsonl"
LABELS = f"{BROKER}/{SESSIONS}"
_MOST_HEAD = 4096
_TRIES = 50

MOST_WHOLE = 16 * 1024 * 1024
"""More than any file has that a role replaces as a whole: twice the longest frame. A sparse one costs its role nothing,
and would fill the disk with a backup.
"""


class SourceChanged(StateError):
    """What is being copied is no longer what it was, in a way in which no role changes it."""

    code = "backup_source_changed"


@attrs.frozen(kw_only=True)
class Cut:
    """A file that only grows, as it was when it was looked at: copied up to its last whole line below `size`."""

    size: int
    inode: tuple[int, int]


@attrs.frozen(kw_only=True)
class Wanted:
    """The file `below` the directory `top`, to be copied to `path`. `cut` is None for one that is copied whole.

    `content` is what was read of it already; `session` the session that it belongs to, whose files are in the backup
    all or none.
    """

    path: str
    top: Path
    below: str
    cut: Cut | None = None
    content: bytes | None = None
    session: str | None = None

    @property
    def source(self) -> Path:
        return self.top / self.below

    @property
    def most(self) -> int | None:
        """How many bytes one that is copied whole has at most; None where nothing says so."""
        return None if self.path.startswith(f"{MEMORY}/") else MOST_WHOLE


class Source:
    """A home and its configuration. Made with both; the cut is made in the same moment."""

    def __init__(self, home: Path, etc: Path | None) -> None:
        self._home, self._etc = home, etc
        self._left_out: dict[str, LeftOut] = {}
        self._unread: set[str] = set()
        for _ in range(_TRIES):
            self._logs = list(self._session_logs())
            self._head = self._read_head()
            self._seals = self._cut_of(SEALS)
            self._audit = [(path, cut) for path in self._audit_files() if (cut := self._cut_of(path))]
            if self._logs == list(self._session_logs()):
                break  # no session went on meanwhile: each call that the audit log knows is in its session too

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that are there."""
        there = [part for part in backupmanifest.STATE_PARTS if (self._home / part).is_dir()]
        return (*there, ETC) if self._etc is not None and self._etc.is_dir() else tuple(there)

    @property
    def known_bytes(self) -> int:
        """How many bytes the files have together that only grow: nearly all there are."""
        return sum(cut.size for _, cut in (*self._logs, *self._audit))

    @property
    def unread(self) -> tuple[str, ...]:
        """The sessions of which something could not even be listed. Complete once every file was yielded."""
        return tuple(sorted(self._unread))

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """What lies among the files and was passed over. Complete once every file was yielded."""
        return tuple(self._left_out.values())

    def files(self) -> Iterator[Wanted]:
        """Yield the files in the order in which they must be copied."""
        yield from self._sessions()
        yield from self._log()
        yield from self._tree(MEMORY)
        if self._etc is not None:
            yield from self._flat(ETC)
            yield from self._flat(f"{ETC}/{GRANTS}")
        # The mark before the labels: where it is there, each session has its file by now.
        yield from self._one(f"{LABELS}/{COMPLETE}")
        yield from (wanted for wanted in self._flat(LABELS) if not wanted.path.endswith(f"/{COMPLETE}"))
        yield from self._one(f"{BROKER}/{CLOCK}")
        self._tell_strange(BROKER)
        self._tell_strange(AUDIT)

    # -- the cut ----------------------------------------------------------------------------------

    def _session_logs(self) -> Iterator[tuple[str, Cut]]:
        for session in self._names(SESSIONS):
            with self._whatever_becomes_of(session):
                yield from self._logs_of(f"{SESSIONS}/{session}")

    def _logs_of(self, folder: str) -> list[tuple[str, Cut]]:
        if not (backupmanifest.may_hold(folder) and self._is_directory(folder)):
            return []
        paths = [f"{folder}/{name}" for name in self._names(folder) if backupmanifest.is_session_log(name)]
        return [(path, cut) for path in paths if (cut := self._cut_of(path))]

    @contextmanager
    def _whatever_becomes_of(self, session: str) -> Iterator[None]:
        """Note a session that cannot be looked at: its role may put something else in its place at any moment."""
        try:
            yield
        except StateDenied:
            raise
        except StateUnreadable:
            self._unread.add(session)

    def _read_head(self) -> bytes | None:
        if self._cut_of(HEAD) is None:
            return None
        try:
            with files.open_read(self._place(HEAD)) as file:
                return file.read(_MOST_HEAD)
        except OSError as error:
            raise files.unreadable(self._place(HEAD), error) from None

    def _audit_files(self) -> list[str]:
        # Oldest first: a file is never written to again once there is a later one.
        return [f"{AUDIT}/{name}" for name in self._names(AUDIT) if auditlog.is_log_file(name)]

    def _cut_of(self, path: str) -> Cut | None:
        try:
            found = self._place(path).lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise files.unreadable(self._place(path), error) from None
        if not stat.S_ISREG(found.st_mode):
            return None
        return Cut(size=found.st_size, inode=(found.st_dev, found.st_ino))

    # -- the files --------------------------------------------------------------------------------

    def _sessions(self) -> Iterator[Wanted]:
        cuts = dict(self._logs)
        sessions = dict.fromkeys(path.split("/")[1] for path in cuts)
        for session in sessions:
            folder, found = f"{SESSIONS}/{session}", list[Wanted]()
            with self._whatever_becomes_of(session):
                found = [*self._flat(folder), *self._flat(f"{folder}/results")]
            for wanted in found:
                cut = cuts.get(wanted.path)
                if cut is not None or not backupmanifest.is_session_log(wanted.source.name):
                    yield attrs.evolve(wanted, cut=cut, session=session)
        for session in self._names(SESSIONS):
            if session not in sessions:
                with self._whatever_becomes_of(session):
                    self._tell_without_log(f"{SESSIONS}/{session}")
        self._tell_strange(SESSIONS)

    def _tell_without_log(self, folder: str) -> None:
        """Tell of a session that has none: a link or a pipe in its place is no log. One that began just now has one."""
        if backupmanifest.may_hold(folder) and self._is_directory(folder) and not self._logs_of(folder):
            self._left_out[folder] = LeftOut(path=_shown(folder), why="a session that has no log")
            self._tell_strange(folder)

    def _log(self) -> Iterator[Wanted]:
        if self._head is not None:
            yield attrs.evolve(self._wanted(HEAD), content=self._head)
        if self._seals is not None:
            yield attrs.evolve(self._wanted(SEALS), cut=self._seals)
        yield from (attrs.evolve(self._wanted(path), cut=cut) for path, cut in self._audit)

    def _one(self, path: str) -> Iterator[Wanted]:
        if self._cut_of(path) is not None:
            yield self._wanted(path)

    def _flat(self, folder: str) -> Iterator[Wanted]:
        """Yield what belongs into a backup of one directory, and tell of the rest."""
        self._tell_strange(folder)
        for name in self._names(folder):
            path = f"{folder}/{name}"
            if backupmanifest.belongs(path) and self._cut_of(path) is not None and path not in self._left_out:
                yield self._wanted(path)

    def _tree(self, folder: str) -> Iterator[Wanted]:
        yield from self._flat(folder)
        for name in self._names(folder):
            path = f"{folder}/{name}"
            if backupmanifest.may_hold(path) and self._is_directory(path):
                yield from self._tree(path)

    def _tell_strange(self, folder: str) -> None:
        """Note each thing in `folder` that will not be copied, but for what is on its way and for locks."""
        for name in self._names(folder):
            path = f"{folder}/{name}"
            why = None if backupmanifest.is_passing(name) else self._strange(path)
            if why is not None:
                self._left_out[path] = LeftOut(path=_shown(path), why=why)

    def _strange(self, path: str) -> str | None:
        try:
            found = self._place(path).lstat()
        except OSError:
            return None  # gone since it was listed
        mode = found.st_mode
        if stat.S_ISLNK(mode):
            return "a symbolic link"
        if stat.S_ISDIR(mode):
            return None if backupmanifest.may_hold(path) else "a directory that no role makes there"
        if not stat.S_ISREG(mode):
            return "no file"
        if not backupmanifest.belongs(path):
            return "a file that is no part of Boxmaker's state"
        most = None if backupmanifest.only_grows(path) else self._wanted(path).most
        return None if most is None or found.st_size <= most else "longer than anything that a role writes there"

    # -- names ------------------------------------------------------------------------------------

    def _wanted(self, path: str) -> Wanted:
        # The parts are root's to place; what lies below them is the roles'.
        part, _, rest = path.partition("/")
        return Wanted(path=path, top=self._place(part), below=rest)

    def _place(self, path: str) -> Path:
        part, _, rest = path.partition("/")
        return self._etc / rest if part == ETC and self._etc is not None else self._home / path

    def _names(self, folder: str) -> list[str]:
        """Return the names in a directory, sorted; none where there is no such directory, or only a link to one."""
        try:
            return sorted(path.name for path in self._place(folder).iterdir()) if self._is_directory(folder) else []
        except FileNotFoundError:
            return []
        except OSError as error:
            raise files.unreadable(self._place(folder), error) from None

    def _is_directory(self, folder: str) -> bool:
        try:
            # A whole part may lie elsewhere and be reached through a link; nothing below it is.
            place = self._place(folder)
            return stat.S_ISDIR((place.lstat() if "/" in folder else place.stat()).st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise files.unreadable(self._place(folder), error) from None


def _shown(path: str) -> str:
    """Return a path with nothing in it that a manifest cannot hold."""
    return os.fsencode(path).decode("utf-8", errors="backslashreplace")
