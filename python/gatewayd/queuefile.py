"""queue.sqlite as a file: opened once, locked, and written in transactions that are on disk when they end.

Writes: queue.sqlite, what SQLite keeps beside it, and a lock. Invariant: a transaction is whole or not there; one
that failed has changed nothing for this process, but may turn out to be there, whole, after a crash. Threads: any; one
connection under one lock, never held while calling out.
"""

import fcntl
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bxcore.files import StateInUse, StateUnreadable, StateUnwritable

FILE = "queue.sqlite"
LOCK = ".gatewayd.lock"
_BESIDE = ("-wal", "-shm", "-journal")
_FILLED = b"1"
"""What the lock holds once there is a queue."""

Connect = Callable[..., sqlite3.Connection]
"""sqlite3.connect, or what a test has in its place."""

# FULL: a commit is on disk when it returns, also where the power fails. A text that was handled is overwritten.
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "trusted_schema = OFF",
    "busy_timeout = 5000",
)
_PATIENT = "PRAGMA busy_timeout = 100"
"""Once it is open: so long waits one try for another program that has the file."""
TRIES = 10
_VERSION = 1
_SCHEMA = """
CREATE TABLE posts (
    id TEXT PRIMARY KEY, channel TEXT NOT NULL, thread TEXT NOT NULL, user TEXT NOT NULL, create_at INTEGER NOT NULL,
    kind TEXT NOT NULL, direct INTEGER NOT NULL, text TEXT NOT NULL, digest TEXT NOT NULL, state TEXT NOT NULL,
    session TEXT, turn INTEGER, attempts INTEGER NOT NULL DEFAULT 0, edited INTEGER NOT NULL DEFAULT 0,
    edit_told INTEGER NOT NULL DEFAULT 0, changed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX posts_by_state ON posts (state, create_at, id);
CREATE INDEX posts_by_turn ON posts (session, turn) WHERE state = 'asked';
CREATE TABLE threads (
    root TEXT PRIMARY KEY, channel TEXT NOT NULL, direct INTEGER NOT NULL, user TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE marks (channel TEXT PRIMARY KEY, create_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE outgoing (
    n INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, channel TEXT NOT NULL, root TEXT,
    message TEXT NOT NULL, state TEXT NOT NULL, tried INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, post TEXT, why TEXT,
    made INTEGER NOT NULL
);
CREATE INDEX outgoing_by_state ON outgoing (state, n);
CREATE TABLE questions (
    post TEXT PRIMARY KEY, id INTEGER NOT NULL, channel TEXT NOT NULL, root TEXT, message TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE asking (
    key TEXT PRIMARY KEY, id INTEGER NOT NULL, channel TEXT NOT NULL, root TEXT, message TEXT NOT NULL,
    made INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE kept (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class QueueFile:
    """The file, open and locked. Made with `open`."""

    def __init__(self, database: sqlite3.Connection, lock_fd: int) -> None:
        self._database = database
        self._lock_fd = lock_fd
        self._lock = threading.Lock()
        self._hurried = threading.Event()

    @classmethod
    def open(cls, directory: Path, connect: Connect = sqlite3.connect) -> "QueueFile":
        """Open or make the file in a directory that exists. Raises StateInUse, StateUnreadable, StateUnwritable."""
        lock_fd = _locked(directory / LOCK)
        try:
            _check(directory / FILE, lock_fd)
            opened = cls(_connected(directory / FILE, connect), lock_fd)
            _mark_filled(lock_fd)
            return opened
        except BaseException:
            os.close(lock_fd)
            raise

    def close(self) -> None:
        """Give the file and its lock back. May be called twice."""
        with self._lock:
            self._database.close()
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1

    def hurry(self) -> None:
        """Who waits for another program that has the file, now or later, is let go with StateUnwritable. Any thread."""
        self._hurried.set()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, durable when the block is left. Raises StateUnwritable, and then nothing has changed."""
        with self._lock:
            try:
                self._begin()
                yield self._database
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                self._roll_back()
                raise StateUnwritable(f"the queue could not be written: {error}") from None
            except BaseException:
                self._roll_back()
                raise

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a question. Raises StateUnreadable."""
        with self._lock:
            try:
                return self._database.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise StateUnreadable(f"the queue could not be read: {error}") from None

    def _begin(self) -> None:
        """Begin a transaction. In short waits, so that a stop is not held up by whoever has the file."""
        for left in reversed(range(TRIES)):
            try:
                self._database.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or not left or self._hurried.is_set():
                    raise

    def _roll_back(self) -> None:
        try:
            if self._database.in_transaction:  # SQLite ends it by itself after some failures
                self._database.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the disk is gone: the next transaction says so


def _locked(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StateUnwritable(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise StateUnwritable(f"{path}: must be a file, and nothing else")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            raise StateInUse(f"{path}: another gatewayd has this queue open") from None
        raise StateUnwritable(f"{path}: {error.strerror}") from None
    return fd


def _check(path: Path, lock_fd: int) -> None:
    """Raise StateUnreadable unless the file, and what SQLite keeps beside it, is ours alone, or not there yet."""
    for name in (path, *(path.with_name(f"{path.name}{end}") for end in _BESIDE)):
        try:
            found = name.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StateUnreadable(f"{name}: {error.strerror}") from None
        if not stat.S_ISREG(found.st_mode):
            raise StateUnreadable(f"{name}: must be a file itself, not a link to one or anything else")
        if found.st_uid != os.geteuid():
            raise StateUnreadable(f"{name}: owner is uid {found.st_uid}, must be uid {os.geteuid()}")
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise StateUnreadable(f"{name}: mode is {stat.S_IMODE(found.st_mode):04o}, must be 0600")
        if name == path and found.st_size == 0 and os.pread(lock_fd, 1, 0):
            raise StateUnreadable(f"{name}: damaged: it was filled, and is empty")


def _mark_filled(lock_fd: int) -> None:
    """From now on an empty file is one that lost what it held. Nothing is lost where this note is."""
    try:
        os.pwrite(lock_fd, _FILLED, 0)
    except OSError:
        pass  # the disk is full


def _connected(path: Path, connect: Connect) -> sqlite3.Connection:
    before = os.umask(0o077)
    try:
        # Transactions are ours to begin, and the lock lets one thread in at a time.
        database = connect(path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in _PRAGMAS:
                database.execute(f"PRAGMA {pragma}").fetchall()
            _set_up(database, path)
            database.execute(_PATIENT).fetchall()
        except BaseException:
            database.close()
            raise
    except sqlite3.DatabaseError as error:
        raise _unopened(path, error) from None
    finally:
        os.umask(before)
    return database


def _unopened(path: Path, error: sqlite3.DatabaseError) -> StateUnreadable | StateUnwritable:
    full = _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY)
    return (StateUnwritable if full else StateUnreadable)(f"{path}: {error}")


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _set_up(database: sqlite3.Connection, path: Path) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, _VERSION):
        raise StateUnreadable(f"{path}: made by another version of Boxmaker ({version}; this one reads {_VERSION})")
    # Now, where the owner looks at the start, and not at the first post that meets the damaged page.
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StateUnreadable(f"{path}: damaged: {found}")
    if version == 0:
        database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
