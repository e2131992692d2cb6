"""The queue on disk: posts that were accepted, what they became, and posts of ours that are still to be made.

Invariant (INV-6): what a call wrote is on disk when it returns, all of it or none; so a kill at any step leaves each
post accepted once, said to loopd under one key, and answered once. Writes: queue.sqlite in the state directory, and
nothing else; one process at a time, by a lock. Texts are kept until they are handled and no longer: the session log
has them. Threads: any; one connection under one lock, never held while calling out.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bxcore.deadline import Clock
from bxcore.files import StateInUse, StateUnreadable, StateUnwritable
from bxcore.ids import MattermostId, SessionId
from bxcore.timestamp import DAY_MS, Timestamp
from gatewayd.entries import Asking, Counts, Incoming, Kind, OpenTurn, Outgoing, Question, State, Thread, Unsent

FILE = "queue.sqlite"
LOCK = ".gatewayd.lock"
KEPT_MS = 30 * DAY_MS
"""So long is remembered that a post was handled; catching up reaches a minute back, an outage as far as its marks."""

_VERSION = 1
_SCHEMA = """
CREATE TABLE posts (
    id TEXT PRIMARY KEY, channel TEXT NOT NULL, thread TEXT NOT NULL, user TEXT NOT NULL, create_at INTEGER NOT NULL,
    kind TEXT NOT NULL, direct INTEGER NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, session TEXT,
    turn INTEGER, attempts INTEGER NOT NULL DEFAULT 0, edit_told INTEGER NOT NULL DEFAULT 0, changed INTEGER NOT NULL
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
    key TEXT PRIMARY KEY, id INTEGER NOT NULL, channel TEXT NOT NULL, root TEXT, message TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE kept (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class Store:
    """The queue. Made with `open`; every failure is a StateError, after which the call has changed nothing."""

    def __init__(self, database: sqlite3.Connection, lock_fd: int, clock: Clock) -> None:
        self._database = database
        self._lock_fd = lock_fd
        self._clock = clock
        self._lock = threading.Lock()

    @classmethod
    def open(cls, directory: Path, clock: Clock) -> "Store":
        """Open or make the queue in a directory that exists. Raises StateInUse, StateUnreadable, StateUnwritable."""
        lock_fd = _locked(directory / LOCK)
        try:
            database = _connected(directory / FILE)
        except BaseException:
            os.close(lock_fd)
            raise
        store = cls(database, lock_fd, clock)
        store._begin_marks()
        return store

    def close(self) -> None:
        """Give the file and its lock back. May be called twice."""
        with self._lock:
            self._database.close()
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1

    # -- coming in ------------------------------------------------------------------------------

    def accept(
        self, posts: Sequence[Incoming], marks: Mapping[MattermostId, Timestamp] | None = None
    ) -> tuple[Incoming, ...]:
        """Take posts over, and note how far each channel was read, in one step. Return those that are new."""
        with self._writing() as database:
            new = tuple(post for post in posts if self._insert(database, post))
            for channel, create_at in (marks or {}).items():
                database.execute(
                    "INSERT INTO marks VALUES (?, ?) ON CONFLICT (channel) DO UPDATE"
                    " SET create_at = max(create_at, excluded.create_at)",
                    (channel, create_at),
                )
            return new

    def accept_old(self, posts: Sequence[Incoming], outgoing: Sequence[Outgoing]) -> None:
        """Note posts that are too old to be acted upon, and the list that their authors get, in one step."""
        with self._writing() as database:
            for post in posts:
                if self._insert(database, post):
                    self._become(database, post.id, State.LISTED)
            self._add(database, outgoing)

    def known(self, post: MattermostId) -> State | None:
        """Return what became of a post, None where it was never accepted."""
        row = self._one("SELECT state FROM posts WHERE id = ?", post)
        return State(row[0]) if row else None

    def text_told(self, post: MattermostId) -> bool:
        """Note that a post's author was told that the first text counts; say whether that was noted already."""
        with self._writing() as database:
            changed = database.execute("UPDATE posts SET edit_told = 1 WHERE id = ? AND edit_told = 0", (post,))
            return changed.rowcount == 0

    def marks(self) -> Mapping[MattermostId, Timestamp]:
        """Return how far each channel was read, by the server's clock."""
        return {
            MattermostId(channel): Timestamp(at) for channel, at in self._all("SELECT channel, create_at FROM marks")
        }

    def began(self) -> Timestamp:
        """Return when this queue was first opened: posts from before belong to nobody."""
        row = self._one("SELECT value FROM kept WHERE name = 'began'")
        return Timestamp(int(row[0])) if row else Timestamp(0)

    # -- saying ---------------------------------------------------------------------------------

    def waiting(
        self, limit: int = 256, *, kind: Kind | None = None, after: Incoming | None = None
    ) -> tuple[Incoming, ...]:
        """Return accepted posts that nothing was done about, oldest first: of one kind, or those that follow a post."""
        begin = (after.create_at, after.id) if after else (-1, "")
        rows = self._all(
            "SELECT id, channel, thread, user, create_at, kind, direct, text, attempts FROM posts"
            " WHERE state = 'waiting' AND (create_at, id) > (?, ?) AND kind = coalesce(?, kind)"
            " ORDER BY create_at, id LIMIT ?",
            *begin,
            kind.value if kind else None,
            limit,
        )
        return tuple(_incoming(row) for row in rows)

    def asked(self, post: MattermostId, session: SessionId, turn: int) -> None:
        """Note that loopd has the post, as part of a turn. `answered` is called for that turn even if it was before."""
        with self._writing() as database:
            self._become(database, post, State.ASKED)
            database.execute("UPDATE posts SET session = ?, turn = ? WHERE id = ?", (session, turn, post))

    def open_turns(self) -> tuple[OpenTurn, ...]:
        """Return the turns whose answer is still to come, per session in order."""
        rows = self._all(
            "SELECT session, turn, channel, thread, min(create_at), max(id = thread) FROM posts WHERE state = 'asked'"
            " GROUP BY session, turn ORDER BY session, turn"
        )
        return tuple(
            OpenTurn(
                session=SessionId(session),
                turn=turn,
                channel=MattermostId(channel),
                thread=MattermostId(thread),
                since=Timestamp(since),
                first=bool(first),
            )
            for session, turn, channel, thread, since, first in rows
        )

    def answered(self, session: SessionId, turn: int, outgoing: Sequence[Outgoing]) -> None:
        """A turn is over: its posts are done, and its answer is kept to be posted. Repeating it adds nothing."""
        with self._writing() as database:
            database.execute(
                "UPDATE posts SET state = 'done', text = '', changed = ?"
                " WHERE session = ? AND turn = ? AND state = 'asked'",
                (self._clock.now_ms(), session, turn),
            )
            # By the first part: split under another limit, the same answer has other parts.
            first = [post.key for post in outgoing[:1]]
            if not database.execute("SELECT 1 FROM outgoing WHERE key = ?", first or [""]).fetchone():
                self._add(database, outgoing)

    def settle(self, post: MattermostId, state: State, outgoing: Sequence[Outgoing] = ()) -> bool:
        """End a waiting post without a turn: a command, a refusal, one taken back. Say whether it still waited."""
        with self._writing() as database:
            row = database.execute("SELECT 1 FROM posts WHERE id = ? AND state = 'waiting'", (post,)).fetchone()
            if row is None:
                return False
            self._become(database, post, state)
            self._add(database, outgoing)
            return True

    def attempted(self, post: MattermostId) -> int:
        """Count a try that failed for a reason of the post's own; return how many there were."""
        with self._writing() as database:
            database.execute("UPDATE posts SET attempts = attempts + 1 WHERE id = ?", (post,))
            row = database.execute("SELECT attempts FROM posts WHERE id = ?", (post,)).fetchone()
            return int(row[0]) if row else 0

    # -- threads --------------------------------------------------------------------------------

    def thread(self, root: MattermostId) -> Thread | None:
        """Return a thread that Boxmaker takes part in, by its first post."""
        row = self._one("SELECT root, channel, direct, user FROM threads WHERE root = ?", root)
        return _thread(row) if row else None

    def own_thread(self, thread: Thread) -> None:
        """Note a thread that Boxmaker takes part in without a post of a user: one that it began itself."""
        with self._writing() as database:
            _insert_thread(database, thread)

    # -- going out ------------------------------------------------------------------------------

    def add(self, outgoing: Sequence[Outgoing]) -> None:
        """Keep posts that are to be made. One whose key is known is left out."""
        with self._writing() as database:
            self._add(database, outgoing)

    def unsent(self, limit: int = 64) -> tuple[Unsent, ...]:
        """Return posts that are to be made, oldest first."""
        return self._unsent("ORDER BY n LIMIT ?", limit)

    def _unsent(self, which: str, *values: object) -> tuple[Unsent, ...]:
        rows = self._all(
            "SELECT n, key, channel, root, message, tried, attempts, made FROM outgoing"
            f" WHERE state = 'waiting' {which}",  # noqa: S608 - no value is in it
            *values,
        )
        return tuple(
            Unsent(
                number=n,
                outgoing=Outgoing(
                    key=key, channel=MattermostId(channel), root=MattermostId(root) if root else None, message=message
                ),
                tried=bool(tried),
                attempts=attempts,
                made=Timestamp(made),
            )
            for n, key, channel, root, message, tried, attempts, made in rows
        )

    def trying(self, number: int) -> None:
        """Note, before the server is asked, that from now on the post may be there."""
        with self._writing() as database:
            database.execute("UPDATE outgoing SET tried = 1, attempts = attempts + 1 WHERE n = ?", (number,))

    def sent(self, number: int, post: MattermostId) -> None:
        """The post is made."""
        with self._writing() as database:
            database.execute("UPDATE outgoing SET state = 'sent', post = ?, message = '' WHERE n = ?", (post, number))

    def park(self, numbers: Sequence[int], why: str, outgoing: Sequence[Outgoing] = ()) -> None:
        """The posts cannot be made; their text stays. `why` is a code of the runbook; `outgoing` says so."""
        with self._writing() as database:
            database.executemany(
                "UPDATE outgoing SET state = 'parked', why = ? WHERE n = ?", [(why, number) for number in numbers]
            )
            self._add(database, outgoing)

    def of_answer(self, prefix: str) -> tuple[Unsent, ...]:
        """Return the posts that are to be made and whose keys begin with `prefix`, in order."""
        return self._unsent("AND substr(key, 1, ?) = ? ORDER BY n", len(prefix), prefix)

    def replace(self, numbers: Sequence[int], outgoing: Sequence[Outgoing]) -> None:
        """Make other posts instead, in one step. The keys of those that are replaced stay known."""
        with self._writing() as database:
            database.executemany(
                "UPDATE outgoing SET state = 'sent', message = '', why = 'replaced' WHERE n = ?",
                [(number,) for number in numbers],
            )
            self._add(database, outgoing)

    # -- questions ------------------------------------------------------------------------------

    def question_asking(self, asking: Asking) -> None:
        """Note, before the server is asked, that from now on a post that looks answerable may be there."""
        with self._writing() as database:
            values = (asking.key, asking.id, asking.channel, asking.root, asking.message)
            database.execute("INSERT OR REPLACE INTO asking VALUES (?, ?, ?, ?, ?)", values)

    def question_never(self, key: str) -> None:
        """The post of an `asking` is not there."""
        with self._writing() as database:
            database.execute("DELETE FROM asking WHERE key = ?", (key,))

    def asking(self) -> tuple[Asking, ...]:
        """Return what was begun, and nobody knows whether it was made."""
        rows = self._all("SELECT key, id, channel, root, message FROM asking ORDER BY id, key")
        return tuple(
            Asking(
                key=key,
                id=number,
                channel=MattermostId(channel),
                root=MattermostId(root) if root else None,
                message=message,
            )
            for key, number, channel, root, message in rows
        )

    def question_posted(self, question: Question, key: str = "") -> None:
        """Note a post that looks answerable, so that a restart can mark it dead. `key`: it was an `asking`."""
        with self._writing() as database:
            values = (question.post, question.id, question.channel, question.root, question.message)
            database.execute("INSERT OR REPLACE INTO questions VALUES (?, ?, ?, ?, ?)", values)
            database.execute("DELETE FROM asking WHERE key = ?", (key,))

    def question_closed(self, post: MattermostId) -> None:
        """The post says now that it is over."""
        with self._writing() as database:
            database.execute("DELETE FROM questions WHERE post = ?", (post,))

    def questions(self) -> tuple[Question, ...]:
        """Return the posts that look answerable."""
        rows = self._all("SELECT post, id, channel, root, message FROM questions ORDER BY id")
        return tuple(
            Question(
                post=MattermostId(post),
                id=number,
                channel=MattermostId(channel),
                root=MattermostId(root) if root else None,
                message=message,
            )
            for post, number, channel, root, message in rows
        )

    # -- looking, tidying -----------------------------------------------------------------------

    def counts(self) -> Counts:
        """Return how many posts are where."""
        posts = dict(self._all("SELECT state, count(*) FROM posts GROUP BY state"))
        outgoing = dict(self._all("SELECT state, count(*) FROM outgoing WHERE state <> 'sent' GROUP BY state"))
        return Counts(
            waiting=posts.get("waiting", 0),
            asked=posts.get("asked", 0),
            listed=posts.get("listed", 0),
            parked=posts.get("parked", 0) + outgoing.get("parked", 0),
            outgoing=outgoing.get("waiting", 0),
        )

    def prune(self) -> None:
        """Forget what was handled so long ago that no catching up will meet it again."""
        before = self._clock.now_ms() - KEPT_MS
        with self._writing() as database:
            database.execute("DELETE FROM posts WHERE state IN ('done', 'listed') AND changed < ?", (before,))
            database.execute("DELETE FROM outgoing WHERE state = 'sent' AND made < ?", (before,))

    # -- inside ---------------------------------------------------------------------------------

    def _insert(self, database: sqlite3.Connection, post: Incoming) -> bool:
        values = (
            post.id, post.channel, post.thread, post.user, post.create_at, post.kind.value, post.direct, post.text,
            State.WAITING.value, self._clock.now_ms(),
        )  # fmt: skip
        added = database.execute(
            "INSERT OR IGNORE INTO posts (id, channel, thread, user, create_at, kind, direct, text, state, changed)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        if added.rowcount and post.kind is Kind.MESSAGE:
            _insert_thread(database, Thread(root=post.thread, channel=post.channel, direct=post.direct, user=post.user))
        return bool(added.rowcount)

    def _become(self, database: sqlite3.Connection, post: MattermostId, state: State) -> None:
        # The text is kept where somebody may still want it: until it is answered, and where it was not.
        forget = ", text = ''" if state is State.DONE else ""
        database.execute(
            f"UPDATE posts SET state = ?, changed = ?{forget} WHERE id = ?",  # noqa: S608 - no value is in it
            (state.value, self._clock.now_ms(), post),
        )

    def _add(self, database: sqlite3.Connection, outgoing: Sequence[Outgoing]) -> None:
        now = self._clock.now_ms()
        database.executemany(
            "INSERT OR IGNORE INTO outgoing (key, channel, root, message, state, made)"
            " VALUES (?, ?, ?, ?, 'waiting', ?)",
            [(post.key, post.channel, post.root, post.message, now) for post in outgoing],
        )

    def _begin_marks(self) -> None:
        with self._writing() as database:
            now = str(self._clock.now_ms())
            database.execute("INSERT OR IGNORE INTO kept VALUES ('began', ?)", (now,))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, durable when the block is left."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    yield self._database
                except BaseException:
                    self._database.execute("ROLLBACK")
                    raise
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                if self._database.in_transaction:
                    self._roll_back()
                raise StateUnwritable(f"the queue could not be written: {error}") from None

    def _roll_back(self) -> None:
        try:
            self._database.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the disk is gone: the next transaction says so

    def _all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._read(lambda: self._database.execute(statement, values).fetchall())

    def _one(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._all(statement, *values)
        return rows[0] if rows else None

    def _read(self, ask: Callable[[], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return ask()
            except sqlite3.Error as error:
                raise StateUnreadable(f"the queue could not be read: {error}") from None


def _locked(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StateUnwritable(f"{path}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StateInUse(f"{path}: another gatewayd has this queue open") from None
    return fd


def _connected(path: Path) -> sqlite3.Connection:
    before = os.umask(0o077)
    try:
        # Transactions are ours to begin, and the lock lets one thread in at a time.
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            # FULL: a commit is on disk when it returns, also where the power fails.
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "trusted_schema = OFF", "busy_timeout = 5000"):
                database.execute(f"PRAGMA {pragma}").fetchall()
            _set_up(database, path)
        except BaseException:
            database.close()
            raise
    except sqlite3.Error as error:
        raise StateUnreadable(f"{path}: {error}") from None
    finally:
        os.umask(before)
    return database


def _set_up(database: sqlite3.Connection, path: Path) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version == _VERSION:
        return
    if version != 0:
        raise StateUnreadable(f"{path}: made by another version of Boxmaker ({version}; this one reads {_VERSION})")
    database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")


def _insert_thread(database: sqlite3.Connection, thread: Thread) -> None:
    values = (thread.root, thread.channel, thread.direct, thread.user)
    database.execute("INSERT OR IGNORE INTO threads VALUES (?, ?, ?, ?)", values)


def _incoming(row: tuple[Any, ...]) -> Incoming:
    post, channel, thread, user, create_at, kind, direct, text, attempts = row
    return Incoming(
        id=MattermostId(post),
        channel=MattermostId(channel),
        thread=MattermostId(thread),
        user=MattermostId(user),
        create_at=Timestamp(create_at),
        kind=Kind(kind),
        direct=bool(direct),
        text=text,
        attempts=attempts,
    )


def _thread(row: tuple[Any, ...]) -> Thread:
    root, channel, direct, user = row
    return Thread(root=MattermostId(root), channel=MattermostId(channel), direct=bool(direct), user=MattermostId(user))
