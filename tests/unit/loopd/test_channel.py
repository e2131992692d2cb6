import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bxcore import envelope, frame
from bxcore.client import RemoteFault
from bxcore.deadline import Deadline, SystemClock
from bxcore.envelope import Envelope
from bxcore.frame import MAX_FRAME
from bxcore.ids import CallId, MessageKey, SessionId
from bxcore.wire import channel as wire
from bxcore.wire.control import ErrorCode, WireFault
from bxcore.wire.tools import ToolRequest
from loopd import broadcast
from loopd import channel as channel_module
from loopd.channel import Channel
from loopd.reports import Reports
from loopd.stream import Text
from tests.fakes.faulty_files import Fault, FaultyFiles
from tests.fakes.loop import PATIENCE_SECONDS, Loop
from tests.fakes.scripted_model import answer, calls, counters, echo, finished
from tests.fakes.served import IDLE_MS, Hold, S, Served, kinds, said

# -- a message and its turn ---------------------------------------------------------------------------


def test_a_message_is_accepted_and_its_turn_streamed_to_the_end(served: Served) -> None:
    served.loop.model.expect(
        calls(echo("x"), text="Let me see."), answer("Done", reasoning="hm", end=finished(prompt=120, cached=104))
    )
    messages = served.say("Hi")
    assert kinds(messages) == [
        "message_accepted",
        "turn_started",
        "text_delta",
        "step_usage",
        "tool_called",
        "tool_returned",
        "prompt_progress",
        "reasoning_delta",
        "text_delta",
        "step_usage",
        "turn_ended",
    ]
    assert messages[0] == wire.MessageAccepted(session=S, key=MessageKey("k1"), turn=1, queued=False, duplicate=False)
    assert messages[-1].text == "Done"
    assert {message.turn for message in messages} == {1}


def test_a_message_that_was_answered_is_answered_again_from_the_log(served: Served) -> None:
    first = served.say("Hi")
    accepted, ended = served.say("Hi")
    assert accepted.duplicate
    assert ended == first[-1]


def test_one_connection_carries_one_request_after_the_other(served: Served) -> None:
    with served.dial() as connection:
        for number in range(3):
            last = list(connection.request(said("Hi", key=f"k{number}", new=number == 0), idle_ms=IDLE_MS))[-1]
            assert isinstance(last.msg, wire.TurnEnded)
            assert last.msg.turn == number + 1


# -- refusals -----------------------------------------------------------------------------------------

LIMIT = wire.MAX_TEXT_BYTES
REFUSALS: dict[str, tuple[object, str]] = {
    "no text": (said(""), "bad_message"),
    "white space": (said(" \n\t\u2003"), "bad_message"),
    "one byte too long": (said("x" * (LIMIT + 1)), "text_too_long"),
    "too long in bytes": (said("🦞" * (LIMIT // 4) + "x"), "text_too_long"),
    "no such session": (said("Hi", new=False, session="other"), "no_session"),
    "a session that is there": (said("Hi", key="another"), "session_exists"),
    "no such session to follow": (wire.TurnFollow(session=SessionId("other"), turn=0), "no_session"),
    "no such session to cancel": (wire.TurnCancel(session=SessionId("other"), turn=0), "no_session"),
    "no such session to show": (wire.SessionShow(session=SessionId("other")), "no_session"),
    "no such session to report": (wire.CacheReport(session=SessionId("other")), "no_session"),
    "no such turn": (wire.TurnFollow(session=S, turn=9), "no_turn"),
    "a turn before the first": (wire.TurnFollow(session=S, turn=-1), "no_turn"),
    "a list of none": (wire.SessionList(limit=0), "bad_message"),
    "a list of fewer": (wire.SessionList(limit=-5), "bad_message"),
}


@pytest.mark.parametrize(("message", "code"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refusal_is_an_answer_with_a_code_and_the_connection_goes_on(
    served: Served, message: object, code: str
) -> None:
    served.say("Hi")
    with served.dial() as connection:
        with pytest.raises(RemoteFault) as refused:
            list(connection.request(message, idle_ms=IDLE_MS))
        assert refused.value.code == code
        assert refused.value.detail.isprintable()
        (status,) = list(connection.request(wire.LoopStatus(), idle_ms=IDLE_MS))
        assert isinstance(status.msg, wire.LoopStatusReport)


def test_the_longest_text_is_accepted(served: Served) -> None:
    assert served.say("🦞" * (LIMIT // 4))[-1].ending is wire.TurnEnding.ANSWERED


def test_f12_a_message_of_another_role_is_forbidden_here(served: Served) -> None:
    for message in (
        ToolRequest(session=S, call=CallId(1), tool="echo", arguments="{}"),
        wire.TurnCancelNoted(session=S, turn=None),
        WireFault(code=ErrorCode.INTERNAL, detail="x"),
    ):
        assert served.refused(message).code == "forbidden"


def test_a_damaged_session_says_where(served: Served) -> None:
    served.say("Hi")
    served.loop.close()
    log = served.loop.log()
    log.write_bytes(log.read_bytes().replace(b'"turn_start"', b'"turn_stxrt"', 1))
    for message in (wire.TurnFollow(session=S, turn=1), wire.CacheReport(session=S)):
        served.loop.sessions._entries.clear()
        refused = served.refused(message)
        assert refused.code == "session_damaged"
        assert "s/0.jsonl:3:" in refused.detail


def test_s8_a_full_disk_is_an_answer_and_reading_goes_on(directory: Path, tmp_path: Path) -> None:
    files = FaultyFiles(None)
    served = Served(directory, Loop(tmp_path, files=files))
    served.say("Hi")
    files.system.fault = Fault(call="write", lasting=True)
    assert served.refused(said("More", key="k2", new=False)).code == "state_unwritable"
    assert served.refused(said("New", key="k3", session="other")).code == "state_unwritable"
    assert kinds(served.ask(wire.SessionShow(session=S)))[-1] == "session_show_end"
    files.system.fault = None
    assert served.say("More", key="k2", new=False)[-1].ending is wire.TurnEnding.ANSWERED
    served.close()


# -- several clients ----------------------------------------------------------------------------------


def test_a_turn_is_cancelled_from_another_connection(served: Served) -> None:
    hold = Hold()
    served.loop.model.expect(hold.script)
    with served.dial() as connection:
        answers = connection.request(said("Hi"), idle_ms=IDLE_MS)
        hold.wait()
        (noted,) = served.ask(wire.TurnCancel(session=S, turn=0))
        hold.go.set()
        last = list(answers)[-1].msg
    assert noted == wire.TurnCancelNoted(session=S, turn=1)
    assert isinstance(last, wire.TurnEnded)
    assert last.ending is wire.TurnEnding.CANCELLED
    assert served.ask(wire.TurnCancel(session=S, turn=0)) == [wire.TurnCancelNoted(session=S, turn=None)]


def test_a_cancel_of_a_turn_that_waits_leaves_the_one_that_runs_alone(served: Served) -> None:
    hold = Hold()
    served.loop.model.expect(hold.script, answer("second"))
    with served.dial() as one, served.dial() as other:
        first = one.request(said("Hi"), idle_ms=IDLE_MS)
        hold.wait()
        second = other.request(said("More", key="k2", new=False), idle_ms=IDLE_MS)
        next(second)
        for turn in (2, 3, -1):
            cancel = wire.TurnCancel(session=S, turn=turn)
            assert served.ask(cancel) == [wire.TurnCancelNoted(session=S, turn=None)]
        hold.go.set()
        endings = [list(answers)[-1].msg for answers in (first, second)]
    assert [ended.ending for ended in endings] == [wire.TurnEnding.ANSWERED] * 2  # type: ignore[attr-defined]


def test_a_cancel_of_the_turn_that_runs_stops_it_by_its_number(served: Served) -> None:
    hold = Hold()
    served.loop.model.expect(hold.script)
    with served.dial() as connection:
        answers = connection.request(said("Hi"), idle_ms=IDLE_MS)
        hold.wait()
        assert served.ask(wire.TurnCancel(session=S, turn=1)) == [wire.TurnCancelNoted(session=S, turn=1)]
        hold.go.set()
        last = list(answers)[-1].msg
    assert last.ending is wire.TurnEnding.CANCELLED  # type: ignore[attr-defined]  # a TurnEnded


def test_a_turn_can_be_cancelled_where_every_connection_follows_it(directory: Path, tmp_path: Path) -> None:
    served = Served(directory, Loop(tmp_path), max_connections=2)
    hold = Hold()
    served.loop.model.expect(hold.script)
    with served.dial() as one, served.dial() as other:
        answers = one.request(said("Hi"), idle_ms=IDLE_MS)
        hold.wait()
        follow = other.request(wire.TurnFollow(session=S, turn=0), idle_ms=IDLE_MS)
        next(follow)
        assert served.refused(wire.TurnFollow(session=S, turn=0)).code == "too_busy"
        assert served.ask(wire.LoopStatus())[0].running_turns == 1
        assert served.ask(wire.TurnCancel(session=S, turn=1)) == [wire.TurnCancelNoted(session=S, turn=1)]
        hold.go.set()
        assert list(answers)[-1].msg.ending is wire.TurnEnding.CANCELLED  # type: ignore[attr-defined]  # a TurnEnded
    served.close()


def test_a_client_that_leaves_in_the_middle_does_not_stop_its_turn(served: Served) -> None:
    hold = Hold("Hello there")
    served.loop.model.expect(hold.script)
    with served.dial() as connection:
        answers = connection.request(said("Hi"), idle_ms=IDLE_MS)
        assert isinstance(next(answers).msg, wire.MessageAccepted)
        hold.wait()
    with served.dial() as second:
        follow = second.request(wire.TurnFollow(session=S, turn=0), idle_ms=IDLE_MS)
        snapshot = next(follow).msg
        assert snapshot == wire.TurnSnapshot(turn=1, state=wire.TurnState.RUNNING, step=1, reasoning="", text="Hell")
        hold.go.set()
        rest = [answer.msg for answer in follow]
    assert "".join(event.text for event in rest if isinstance(event, wire.TextDelta)) == "o there"
    assert isinstance(rest[-1], wire.TurnEnded)
    assert rest[-1].text == "Hello there"
    assert kinds(served.ask(wire.TurnFollow(session=S, turn=0))) == ["turn_snapshot", "turn_ended"]


def test_leaving_is_no_fault_in_the_log(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(channel_module, "_LOOK_SECONDS", 0.01)
    hold = Hold()
    served.loop.model.expect(hold.script)
    with served.dial() as connection:
        next(connection.request(said("Hi"), idle_ms=IDLE_MS))
        hold.wait()
        workers = [guest.worker for guest in served.server._guests]
    for worker in workers:
        assert worker is not None
        worker.join(PATIENCE_SECONDS)
        assert not worker.is_alive()
    hold.go.set()
    served.loop.settle()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_an_answer_longer_than_a_frame_is_told_whole_and_looked_up_whole(served: Served) -> None:
    words = " ".join(map(str, range(300_000)))
    assert len(words.encode()) > MAX_FRAME
    served.loop.model.expect([counters(), Text(text=words), finished()])
    messages = served.say("Hi")
    assert "".join(event.text for event in messages if isinstance(event, wire.TextDelta)) == words
    for told in (messages, served.ask(wire.TurnFollow(session=S, turn=1))):
        assert told[-1].ending is wire.TurnEnding.ANSWERED
        parts = [part.text for part in told if isinstance(part, wire.AnswerPart)]
        assert len(parts) > 1
        assert "".join(parts) + told[-1].text == words


def test_a_message_during_a_turn_is_accepted_as_queued_and_hears_the_next_turn(served: Served) -> None:
    hold = Hold()
    served.loop.model.expect(hold.script, answer("second"))
    with served.dial() as one, served.dial() as other:
        first = one.request(said("Hi"), idle_ms=IDLE_MS)
        hold.wait()
        second = other.request(said("More", key="k2", new=False), idle_ms=IDLE_MS)
        accepted = next(second).msg
        hold.go.set()
        assert accepted == wire.MessageAccepted(session=S, key=MessageKey("k2"), turn=2, queued=True, duplicate=False)
        assert [type(answer.msg) for answer in first][-1] is wire.TurnEnded
        heard = [answer.msg for answer in second]
    assert heard[0] == wire.TurnStarted(turn=2, keys=(MessageKey("k2"),))
    assert heard[-1].text == "second"  # type: ignore[attr-defined]  # a TurnEnded


def test_a_hundred_clients_with_sessions_of_their_own_are_all_answered(served: Served) -> None:
    answers: list[list[Any]] = [[] for _ in range(100)]
    begin = threading.Barrier(100)

    def client(number: int) -> None:
        begin.wait(PATIENCE_SECONDS)
        answers[number] = served.say(f"Hi {number}", session=f"s{number}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert [messages[-1].ending for messages in answers] == [wire.TurnEnding.ANSWERED] * 100
    assert served.ask(wire.SessionList(limit=1))[-1] == wire.SessionListEnd(total=100)


def test_a_client_that_does_not_read_is_let_go_and_the_others_are_not_held_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's buffers fill, then the queue; then the slow one is told, and may look the turn up."""
    monkeypatch.setattr(broadcast, "MAX_BEHIND", 64)
    flood = [Text(text=" ".join(map(str, range(number, number + 2_000)))) for number in range(400)]
    hold = Hold()
    served.loop.model.expect([counters(), *list(hold.script)[2:4], *flood, finished()])
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(served.path))
        deadline = Deadline.after(SystemClock(), milliseconds=IDLE_MS)
        frame.send(slow, envelope.encode(Envelope(id=1, final=True, msg=said("Hi"))), deadline)
        hold.wait()
        with served.dial() as quick:
            follow = quick.request(wire.TurnFollow(session=S, turn=0), idle_ms=IDLE_MS)
            next(follow)
            hold.go.set()
            served.loop.settle()
        told = read_to_the_end(slow)
    assert isinstance(told[-1], WireFault)
    assert told[-1].code is ErrorCode.LAGGED
    assert 1 < len(told) < 400
    assert served.ask(wire.TurnFollow(session=S, turn=1))[-1].ending is wire.TurnEnding.ANSWERED


def read_to_the_end(connection: socket.socket) -> list[object]:
    found: list[object] = []
    while not found or not isinstance(found[-1], WireFault | wire.TurnEnded):
        untrusted = frame.receive(connection, Deadline.after(SystemClock(), milliseconds=IDLE_MS), frame_ms=IDLE_MS)
        assert untrusted is not None
        found.append(envelope.decode(untrusted).msg)
    return found


# -- stopping -----------------------------------------------------------------------------------------


def test_a_stop_ends_the_turn_as_interrupted_and_lets_the_waiting_go(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(directory, Loop(tmp_path))
    hold = Hold()
    served.loop.model.expect(hold.script)
    with served.dial() as one, served.dial() as other:
        first = one.request(said("Hi"), idle_ms=IDLE_MS)
        hold.wait()
        second = other.request(said("More", key="k2", new=False), idle_ms=IDLE_MS)
        next(second)
        served.loop.sessions.interrupt()
        served.server.stop()
        hold.go.set()
        last = list(first)[-1].msg
        with pytest.raises(RemoteFault) as let_go:
            list(second)
    assert isinstance(last, wire.TurnEnded)
    assert last.ending is wire.TurnEnding.INTERRUPTED
    assert let_go.value.code == "not_ready"
    served.close()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_every_request_of_the_protocol_has_a_handler(served: Served) -> None:
    channel = Channel(
        served.loop.parts, sessions=served.loop.sessions, reports=Reports(served.loop.store), watch=served.watch
    )
    requests: set[type] = {
        wire.UserMessage,
        wire.TurnFollow,
        wire.TurnCancel,
        wire.SessionList,
        wire.SessionShow,
        wire.CacheReport,
        wire.SelfTest,
        wire.LoopStatus,
    }
    handlers: Callable[[], Any] = channel.handlers
    assert set(handlers()) == requests
