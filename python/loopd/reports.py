"""What a client may look at: the list of sessions, a session's lines, its cache, how a turn ended.

Reads the logs on disk and nothing else, so it shows what is really there; writes nothing.
Threads: called by many workers; holds no state.
"""

from collections.abc import Iterator

import attrs

from bxcore import sessionrecords, strictjson
from bxcore.errors import BadMessage, StateError
from bxcore.ids import SessionId
from bxcore.sessionrecords import Assistant, CacheLoss, SessionStart, TurnEnd, TurnStart, Usage, User
from bxcore.timestamp import Timestamp
from bxcore.wire.channel import CacheRow, SessionRecord, SessionSummary, TurnEnded, TurnEnding
from loopd import endings
from loopd.faults import NoSession, NoTurn
from loopd.sessionlog import SessionStore

_PIECE_CHARS = 120_000
"""A stored line goes out in pieces of this size: escaped once more it must still fit a frame."""

_OPENING_CHARS = 120


class Reports:
    """See the module's header."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def count(self) -> int:
        """How many sessions there are."""
        return len(self._store.ids())

    def summaries(self, limit: int) -> Iterator[SessionSummary]:
        """The `limit` newest sessions, newest first."""
        for session in self._store.newest(limit):
            try:
                yield self._summary(session)
            except (StateError, BadMessage):
                yield _damaged(session)

    def lines(self, session: SessionId) -> Iterator[SessionRecord]:
        """Every stored line as it is on disk. Raises NoSession, StateError."""
        self._must_exist(session)
        for epoch, line in self._store.raw_lines(session):
            text = line.raw.decode("utf-8", errors="replace")
            pieces = [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)] or [""]
            for place, piece in enumerate(pieces, 1):
                yield SessionRecord(epoch=epoch, line=line.number, text=piece, more=place < len(pieces))

    def cache_rows(self, session: SessionId) -> Iterator[CacheRow]:
        """One row for each request to the model. Raises NoSession, SessionDamaged, StateError."""
        self._must_exist(session)
        pending: Usage | None = None
        for record in self._store.read(session):
            if isinstance(record, CacheLoss) and pending is not None:
                yield _row(pending, lost=True)
                pending = None
            elif isinstance(record, Usage):
                if pending is not None:
                    yield _row(pending, lost=False)
                pending = record
        if pending is not None:
            yield _row(pending, lost=False)

    def ended(self, session: SessionId, turn: int) -> TurnEnded:
        """How a turn of the past ended. Raises NoTurn, NoSession, SessionDamaged, StateError."""
        self._must_exist(session)
        began = end = None
        text, steps, used = "", 0, [0, 0, 0, 0]
        for record in self._store.read(session):
            match record:
                case TurnStart() if record.turn == turn:
                    began = record
                case Assistant() if record.turn == turn:
                    text, steps = record.content or "", record.step
                case Usage() if record.turn == turn:
                    used = [
                        total + more
                        for total, more in zip(
                            used, (record.prompt, record.cached, record.read, record.output), strict=True
                        )
                    ]
                case TurnEnd() if record.turn == turn:
                    end = record
        if began is None:
            raise NoTurn("the session has no such turn")
        ending = end.ending if end else TurnEnding.INTERRUPTED
        prompt, cached, read, output = used
        return TurnEnded(
            turn=turn,
            ending=ending,
            text=text,
            sentence=endings.told(end.sentence, end.detail) if end else endings.sentence(ending),
            steps=steps,
            prompt=prompt,
            cached=cached,
            read=read,
            output=output,
            elapsed_ms=max(0, end.time - began.time) if end else 0,
        )

    def _must_exist(self, session: SessionId) -> None:
        if not self._store.exists(session):
            raise NoSession("there is no session of that name")

    def _summary(self, session: SessionId) -> SessionSummary:
        started, opening = self._beginning(session)
        lines = turns = size_bytes = 0
        newest = b""
        for _, line in self._store.raw_lines(session):
            lines += 1
            size_bytes += line.size + line.complete
            # Counted on bytes: a list of a hundred long sessions should not decode every record.
            turns += line.raw.startswith(b'{"type":"turn_start"')
            if line.complete:
                newest = line.raw
        return SessionSummary(
            session=session,
            started=started,
            last=_decode(newest).time,
            turns=turns,
            records=lines,
            bytes=size_bytes,
            opening=" ".join(opening.split())[:_OPENING_CHARS],
            damaged=False,
        )

    def _beginning(self, session: SessionId) -> tuple[Timestamp, str]:
        """Return when the session began and what was said first; reads no further than that."""
        started: Timestamp | None = None
        for record in self._store.read(session):
            if started is None and isinstance(record, SessionStart):
                started = record.time
            elif started is not None and isinstance(record, User):
                return started, record.content
        if started is None:
            raise BadMessage("the log does not begin with a session_start")
        return started, ""


def _decode(line: bytes) -> sessionrecords.Record:
    return sessionrecords.from_value(strictjson.loads(line))


def _damaged(session: SessionId) -> SessionSummary:
    zero = Timestamp(0)
    return SessionSummary(
        session=session, started=zero, last=zero, turns=0, records=0, bytes=0, opening="", damaged=True
    )


def _row(usage: Usage, *, lost: bool) -> CacheRow:
    kept = attrs.asdict(usage, filter=lambda field, _: field.name not in ("time", "reasoning", "finish"))
    return CacheRow(**kept, lost=lost)
