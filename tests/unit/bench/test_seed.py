"""The two halves of a comparison begin with the same conversation, or it compares nothing."""

import json
from pathlib import Path

from bxcore.deadline import SystemClock
from bxcore.files import DiskFiles
from bxcore.ids import SessionId
from deploy.local.home import Home
from loopd.history import History
from loopd.sessionlog import SessionStore
from tests.bench import seed
from tests.bench.seed import Round

ROUNDS = (*seed.clock_rounds("Call clock."), Round(question="Say yes.", result=None, answer="Yes."))


def stored(tmp_path: Path) -> tuple[int, History, int]:
    home, front = Home(tmp_path), seed.front()
    count = seed.store_session(home, "s", ROUNDS, front=front)
    session = SessionStore(tmp_path / "sessions", files=DiskFiles(), clock=SystemClock())
    records = list(session.read(SessionId("s")))
    history = History(front.system)
    for record in records:
        history.add(record)
    return count, history, len(records)


def test_loopd_and_the_hand_written_client_begin_with_the_same_messages(tmp_path: Path) -> None:
    _, history, _ = stored(tmp_path)
    assert [json.loads(message) for message in history.prompt.messages] == seed.messages(seed.front(), ROUNDS)


def test_the_stored_session_is_one_that_ended_well(tmp_path: Path) -> None:
    count, history, lines = stored(tmp_path)
    assert count == lines
    assert (history.turn, history.open_turn, history.waiting) == (3, None, [])
    assert list(history.unanswered_calls()) == []
