"""The queue on disk: posts that were accepted, what they became, and posts of ours that are still to be made.

Invariant (INV-6): what a call wrote is on disk when it returns, all of it or none; so a kill at any step leaves each
post accepted once, said to loopd under one key, and answered once. Writes: the queue's file (gatewayd.queuefile), and
nothing else. Texts are kept until they are handled and no longer: the session log has them. Threads: any.
"""

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bxcore.deadline import Clock
from bxcore.ids import MattermostId, SessionId
from bxcore.timestamp import DAY_MS, Timestamp
from gatewayd.entries import (
    Asking,
    Counts,
    Incoming,
    Kind,
    Old,
    OpenTurn,
    Outgoing,
    Question,
    State,
    Taken,
    Thread,
    Unsent,
)
from gatewayd.queuefile import Connect, QueueFile
from gatewayd.queuetimes import QueueTimes

KEPT_MS = 30 * DAY_MS
"""So long is remembered at least that a post was handled."""
_OVERLAP_MOST_MS = DAY_MS
"""No setting lets catching up begin earlier before a channel's mark, so what is newer is never forgotten."""

_COLUMNS = "id, channel, thread, user, create_at, kind, direct, text, attempts"


class Store:
    """The queue. Made with `open`; every failure is a StateError, after which the call has changed nothing."""

    def __init__(self, file: QueueFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._times = QueueTimes(file, clock)

    @classmethod
    def open(cls, directory: Path, clock: Clock, connect: Connect = sqlite3.connect) -> "Store":
        """Open or make the queue in a directory that exists. Raises StateInUse, StateUnreadable, StateUnwritable."""
        store = cls(QueueFile.open(directory, connect), clock)
        try:
            store._times.open()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Give the file and its lock back. May be called twice."""
        self._file.close()

    def hurry(self) -> None:
        """From now on nobody waits for another program that has the file: its write fails."""
        self._file.hurry()

    # -- coming in ------------------------------------------------------------------------------

    def accept(
        self, posts: Sequence[Incoming], marks: Mapping[MattermostId, Timestamp] | None = None
    ) -> tuple[Incoming, ...]:
        """Take posts over that are to be handled; see `take`."""
        return self.take([Taken(post=post) for post in posts], marks)

    def take(
        self, taken: Sequence[Taken], marks: Mapping[MattermostId, Timestamp] | None = None
    ) -> tuple[Incoming, ...]:
        """Take posts over, and note how far each channel was read, in one step. Return those that are new.

        A mark never moves back.
        """
        with self._file.writing() as database:
            new = [one for one in taken if self._insert(database, one)]
            self._add(database, [post for one in new for post in one.outgoing])
            database.executemany(
                "INSERT INTO marks VALUES (?, ?) ON CONFLICT (channel) DO UPDATE"
                " SET create_at = max(create_at, excluded.create_at)",
                list((marks or {}).items()),
            )
            return tuple(one.post for one in new)

    def old_authors(self) -> Mapping[MattermostId, int]:
        """Return who is still to be told of posts, and of how many."""
        rows = self._file.read("SELECT user, count(*) FROM posts WHERE state = 'old' GROUP BY user ORDER BY user")
        return {MattermostId(user): count for user, count in rows}

    def old(self, user: MattermostId, limit: int) -> tuple[Old, ...]:
        """Return the newest posts that their author is still to be told of, in order."""
        rows = self._file.read(
            f"SELECT {_COLUMNS}, edited FROM posts WHERE state = 'old' AND user = ?"  # noqa: S608 - no value is in it
            " ORDER BY create_at DESC, id DESC LIMIT ?",
            user,
            limit,
        )
        return tuple(Old(post=_incoming(row[:-1]), edited=bool(row[-1])) for row in reversed(rows))

    def list_old(self, user: MattermostId, outgoing: Sequence[Outgoing]) -> None:
        """Keep the list that an author gets of all that is `old`, and note that it was told, in one step."""
        with self._file.writing() as database:
            database.execute(
                "UPDATE posts SET state = 'listed', text = '', changed = ? WHERE user = ? AND state = 'old'",
                (self._clock.now_ms(), user),
            )
            self._add(database, outgoing)

    def known(self, post: MattermostId) -> State | None:
        """Return what became of a post, None where it was never accepted."""
        row = self._one("SELECT state FROM posts WHERE id = ?", post)
        return State(row[0]) if row else None

    def known_of(self, posts: Sequence[MattermostId]) -> frozenset[MattermostId]:
        """Return those of at most a few hundred posts that were accepted before."""
        marks = ",".join("?" * len(posts))
        rows = self._file.read(f"SELECT id FROM posts WHERE id IN ({marks})", *posts)  # noqa: S608 - no value is in it
        return frozenset(MattermostId(row[0]) for row in rows)

    def text_told(self, post: MattermostId, text: str, outgoing: Sequence[Outgoing]) -> bool:
        """Tell a post's author once that the first text counts, where it was used and `text` is another. Say whether.

        What was listed, or answered without being used, has no text that counts.
        """
        with self._file.writing() as database:
            changed = database.execute(
                "UPDATE posts SET edit_told = 1 WHERE id = ? AND edit_told = 0 AND digest <> ?"
                " AND state IN ('waiting', 'asked', 'done', 'parked')",
                (post, _digest(text)),
            )
            if changed.rowcount:
                self._add(database, outgoing)
            return bool(changed.rowcount)

    def take_back(self, post: MattermostId) -> tuple[SessionId, ...]:
        """A post was deleted: what still waits, of it and of the thread it began, is done. Return its open sessions."""
        with self._file.writing() as database:
            database.execute(
                "UPDATE posts SET state = 'done', text = '', changed = ?"
                " WHERE (id = ? OR thread = ?) AND state IN ('waiting', 'old')",
                (self._clock.now_ms(), post, post),
            )
            rows = database.execute(
                "SELECT DISTINCT session FROM posts WHERE thread = ? AND state = 'asked'", (post,)
            ).fetchall()
            return tuple(SessionId(row[0]) for row in rows)

    def marks(self) -> Mapping[MattermostId, Timestamp]:
        """Return how far each channel was read, by the server's clock."""
        rows = self._file.read("SELECT channel, create_at FROM marks")
        return {MattermostId(channel): Timestamp(at) for channel, at in rows}

    def began(self) -> Timestamp:
        """Return when this queue was first opened, by the server's clock if it is known: what is older is nobody's."""
        return self._times.began()

    def server_time(self, now: Timestamp) -> None:
        """The server's clock says `now`: put right what is kept by it; see gatewayd.queuetimes."""
        self._times.server_time(now, again_ms=KEPT_MS)

    # -- saying ---------------------------------------------------------------------------------

    def waiting(
        self, limit: int = 256, *, kind: Kind | None = None, after: Incoming | None = None
    ) -> tuple[Incoming, ...]:
        """Return accepted posts that nothing was done about, oldest first: of one kind, or those that follow a post."""
        begin = (after.create_at, after.id) if after else (-1, "")
        rows = self._file.read(
            f"SELECT {_COLUMNS} FROM posts WHERE state = 'waiting'"  # noqa: S608 - no value is in it
            " AND (create_at, id) > (?, ?) AND kind = coalesce(?, kind) ORDER BY create_at, id LIMIT ?",
            *begin,
            kind.value if kind else None,
            limit,
        )
        return tuple(_incoming(row) for row in rows)

    def asked(self, post: MattermostId, session: SessionId, turn: int) -> None:
        """Note that loopd has the post, as part of a turn. `answered` is called for that turn even if it was before.

        Also one that was done meanwhile: taken back while it was being said.
        """
        with self._file.writing() as database:
            database.execute(
                "UPDATE posts SET state = 'asked', session = ?, turn = ?, changed = ?"
                " WHERE id = ? AND state IN ('waiting', 'asked', 'done')",
                (session, turn, self._clock.now_ms(), post),
            )

    def open_turns(self) -> tuple[OpenTurn, ...]:
        """Return the turns whose answer is still to come, per session in order."""
        rows = self._file.read(
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
        with self._file.writing() as database:
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
        with self._file.writing() as database:
            row = database.execute("SELECT 1 FROM posts WHERE id = ? AND state = 'waiting'", (post,)).fetchone()
            if row is None:
                return False
            self._become(database, post, state)
            self._add(database, outgoing)
            return True

    def drop(self, stop: Incoming, *, everywhere: bool) -> int:
        """End messages that were written before `stop` and still wait, in its thread or channel; return how many."""
        place, value = ("channel", stop.channel) if everywhere else ("thread", stop.thread)
        with self._file.writing() as database:
            changed = database.execute(
                "UPDATE posts SET state = 'done', text = '', changed = ?"  # noqa: S608 - no value is in it
                f" WHERE state = 'waiting' AND kind = 'message' AND create_at <= ? AND {place} = ?",
                (self._clock.now_ms(), stop.create_at, value),
            )
            return changed.rowcount

    def attempted(self, post: MattermostId) -> int:
        """Count a try that failed for a reason of the post's own; return how many there were."""
        with self._file.writing() as database:
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
        with self._file.writing() as database:
            _insert_thread(database, thread)

    # -- going out ------------------------------------------------------------------------------

    def add(self, outgoing: Sequence[Outgoing]) -> None:
        """Keep posts that are to be made. One whose key is known is left out."""
        with self._file.writing() as database:
            self._add(database, outgoing)

    def unsent(self, limit: int = 64, *, after: int = 0) -> tuple[Unsent, ...]:
        """Return posts that are to be made, oldest first: all, or those behind a number."""
        return self._unsent("AND n > ? ORDER BY n LIMIT ?", after, limit)

    def _unsent(self, which: str, *values: object) -> tuple[Unsent, ...]:
        rows = self._file.read(
            "SELECT n, key, channel, root, message, tried, attempts, made FROM outgoing"  # noqa: S608 - no value is in it
            f" WHERE state = 'waiting' {which}",
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
        with self._file.writing() as database:
            database.execute("UPDATE outgoing SET tried = 1, attempts = attempts + 1 WHERE n = ?", (number,))

    def sent(self, number: int, post: MattermostId) -> None:
        """The post is made."""
        with self._file.writing() as database:
            database.execute("UPDATE outgoing SET state = 'sent', post = ?, message = '' WHERE n = ?", (post, number))

    def park(self, numbers: Sequence[int], why: str, outgoing: Sequence[Outgoing] = ()) -> None:
        """The posts cannot be made; their text stays. `why` is a code of the runbook; `outgoing` says so."""
        with self._file.writing() as database:
            database.executemany(
                "UPDATE outgoing SET state = 'parked', why = ? WHERE n = ?", [(why, number) for number in numbers]
            )
            self._add(database, outgoing)

    def of_answer(self, prefix: str) -> tuple[Unsent, ...]:
        """Return the posts that are to be made and whose keys begin with `prefix`, in order."""
        return self._unsent("AND substr(key, 1, ?) = ? ORDER BY n", len(prefix), prefix)

    def replace(self, numbers: Sequence[int], outgoing: Sequence[Outgoing]) -> None:
        """Make other posts instead, in one step. The keys of those that are replaced stay known."""
        with self._file.writing() as database:
            database.executemany(
                "UPDATE outgoing SET state = 'sent', message = '', why = 'replaced' WHERE n = ?",
                [(number,) for number in numbers],
            )
            self._add(database, outgoing)

    def may_have_made(self, key: str, post: MattermostId) -> bool:
        """Say whether a post with that key can be of this queue; while it is being made, nobody knows its id."""
        row = self._one("SELECT post FROM outgoing WHERE key = ?", key)
        return row is not None and row[0] in (None, post)

    # -- questions ------------------------------------------------------------------------------

    def question_asking(self, asking: Asking) -> None:
        """Note, before the server is asked, that from now on a post that looks answerable may be there."""
        with self._file.writing() as database:
            values = (asking.key, asking.id, asking.channel, asking.root, asking.message, asking.made)
            database.execute("INSERT OR REPLACE INTO asking VALUES (?, ?, ?, ?, ?, ?)", values)

    def question_never(self, key: str) -> None:
        """The post of an `asking` is not there."""
        with self._file.writing() as database:
            database.execute("DELETE FROM asking WHERE key = ?", (key,))

    def asking(self) -> tuple[Asking, ...]:
        """Return what was begun, and nobody knows whether it was made."""
        rows = self._file.read("SELECT key, id, channel, root, message, made FROM asking ORDER BY id, key")
        return tuple(
            Asking(
                key=key,
                id=number,
                channel=MattermostId(channel),
                root=MattermostId(root) if root else None,
                message=message,
                made=Timestamp(made),
            )
            for key, number, channel, root, message, made in rows
        )

    def question_posted(self, question: Question, key: str = "") -> None:
        """Note a post that looks answerable, so that a restart can mark it dead. `key`: it was an `asking`."""
        with self._file.writing() as database:
            values = (question.post, question.id, question.channel, question.root, question.message)
            database.execute("INSERT OR REPLACE INTO questions VALUES (?, ?, ?, ?, ?)", values)
            database.execute("DELETE FROM asking WHERE key = ?", (key,))

    def question_closed(self, post: MattermostId) -> None:
        """The post says now that it is over."""
        with self._file.writing() as database:
            database.execute("DELETE FROM questions WHERE post = ?", (post,))

    def questions(self) -> tuple[Question, ...]:
        """Return the posts that look answerable."""
        rows = self._file.read("SELECT post, id, channel, root, message FROM questions ORDER BY id")
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
        posts = dict(self._file.read("SELECT state, count(*) FROM posts GROUP BY state"))
        outgoing = dict(self._file.read("SELECT state, count(*) FROM outgoing WHERE state <> 'sent' GROUP BY state"))
        return Counts(
            waiting=posts.get("waiting", 0),
            asked=posts.get("asked", 0),
            listed=posts.get("listed", 0) + posts.get("old", 0),
            parked=posts.get("parked", 0) + outgoing.get("parked", 0),
            outgoing=outgoing.get("waiting", 0),
        )

    def prune(self) -> None:
        """Forget what was handled, or set aside, so long ago that no catching up will meet it again."""
        before = self._clock.now_ms() - KEPT_MS
        with self._file.writing() as database:
            database.execute(
                "DELETE FROM posts WHERE state IN ('done', 'listed', 'parked') AND changed < ? AND create_at <"
                " (SELECT marks.create_at FROM marks WHERE marks.channel = posts.channel) - ?",
                (before, _OVERLAP_MOST_MS),
            )
            database.execute("DELETE FROM outgoing WHERE state IN ('sent', 'parked') AND made < ?", (before,))

    # -- inside ---------------------------------------------------------------------------------

    def _insert(self, database: sqlite3.Connection, taken: Taken) -> bool:
        post, done = taken.post, taken.state is State.DONE
        values = (
            post.id, post.channel, post.thread, post.user, post.create_at, post.kind.value, post.direct,
            "" if done else post.text, _digest(post.text), taken.state.value, taken.edited, done, self._clock.now_ms(),
        )  # fmt: skip
        added = database.execute(
            "INSERT OR IGNORE INTO posts (id, channel, thread, user, create_at, kind, direct, text, digest, state,"
            " edited, edit_told, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        # A thread is ours when something in it is acted upon, not when it is listed.
        if added.rowcount and post.kind is Kind.MESSAGE and taken.state is State.WAITING:
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

    def _one(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._file.read(statement, *values)
        return rows[0] if rows else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
