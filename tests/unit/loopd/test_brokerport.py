"""The port to brokerd: every wait is a deadline, and a call that may have run is never called undone."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bxcore import envelope, frame
from bxcore.client import PeerAway
from bxcore.deadline import Deadline, SystemClock
from bxcore.envelope import Envelope
from bxcore.ids import CallId, SessionId
from bxcore.timestamp import Timestamp
from bxcore.wire.control import ErrorCode, WireFault
from bxcore.wire.state import SessionStateAsk
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolFailed, ToolPending, ToolRequest, ToolResult
from loopd.brokerport import NOT_KNOWN, Answer, Broker
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled

CLOCK = SystemClock()
LONG_MS = 3_600_000
ASKED = ToolRequest(session=SessionId("s"), call=CallId(41), tool="read_file", arguments='{"path":"/x"}')
RESULT = ToolResult(content="text", data_class=DataClass.SECRET, untrusted=True, truncated=False)
DENIED = ToolDenied(reason=DenyReason.NO_GRANT, detail=None)

Script = Callable[[socket.socket], object]


class Playing:
    """brokerd's side of one connection, and what came of ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.asked: list[Envelope] = []
        self.threads: list[threading.Thread] = []

    def play(self, script: Script) -> None:
        def run() -> None:
            sock, _ = self.listener.accept()
            with sock:
                payload = frame.receive(sock, Deadline.after(CLOCK, milliseconds=LONG_MS), frame_ms=LONG_MS)
                assert payload is not None
                self.asked.append(envelope.decode(payload))
                script(sock)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def ask(self, *, timeout_ms: int = LONG_MS, cancel: CancelToken | None = None) -> tuple[Answer, list[ToolPending]]:
        pending: list[ToolPending] = []
        port = Broker(socket=self.path, clock=CLOCK, timeout_ms=timeout_ms)
        return port.run(ASKED, cancel=cancel or CancelToken(), on_pending=pending.append), pending


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Playing]:
    playing = Playing(tmp_path / "broker.sock")
    yield playing
    for thread in playing.threads:
        thread.join()
    playing.listener.close()


def say(sock: socket.socket, message: object, *, final: bool) -> None:
    payload = envelope.encode(Envelope(id=ASKED.call, final=final, msg=message))
    frame.send(sock, payload, Deadline.after(CLOCK, milliseconds=LONG_MS))


def pending(lapses_in_ms: int = LONG_MS) -> ToolPending:
    return ToolPending(approval=7, expires=Timestamp(CLOCK.now_ms() + lapses_in_ms))


@pytest.mark.parametrize("answer", [RESULT, DENIED, ToolFailed(message="no")], ids=lambda answer: type(answer).__name__)
def test_the_final_answer_is_returned_and_the_request_carries_the_number_of_its_call(
    broker: Playing, answer: Answer
) -> None:
    broker.play(lambda sock: say(sock, answer, final=True))
    assert broker.ask() == (answer, [])
    assert broker.asked == [Envelope(id=ASKED.call, final=True, msg=ASKED)]


def test_a_pending_question_is_told_and_then_waited_for(broker: Playing) -> None:
    question = pending()

    def script(sock: socket.socket) -> None:
        say(sock, question, final=False)
        say(sock, RESULT, final=True)

    broker.play(script)
    assert broker.ask() == (RESULT, [question])


def test_nobody_listening_means_that_nothing_was_asked(tmp_path: Path) -> None:
    port = Broker(socket=tmp_path / "broker.sock", clock=CLOCK, timeout_ms=LONG_MS)
    with pytest.raises(PeerAway):
        port.run(ASKED, cancel=CancelToken(), on_pending=lambda _: None)


LOST: dict[str, Script] = {
    "leaves at once": lambda sock: None,
    "leaves inside a frame": lambda sock: sock.sendall(b"\0\0\1\0{"),
    "leaves after its question": lambda sock: say(sock, pending(), final=False),
    "says what is no answer": lambda sock: say(sock, SessionStateAsk(session=SessionId("s")), final=True),
    "failed inside": lambda sock: say(sock, WireFault(code=ErrorCode.INTERNAL, detail="x"), final=True),
}


@pytest.mark.parametrize("script", LOST.values(), ids=LOST.keys())
def test_after_the_request_was_sent_a_lost_answer_is_not_called_undone(broker: Playing, script: Script) -> None:
    broker.play(script)
    answer, _ = broker.ask()
    assert isinstance(answer, ToolFailed)
    assert answer.message.endswith(NOT_KNOWN)


def test_a_refused_request_was_not_carried_out(broker: Playing) -> None:
    broker.play(lambda sock: say(sock, WireFault(code=ErrorCode.TOO_BUSY, detail="x"), final=True))
    answer, _ = broker.ask()
    assert answer == ToolFailed(message="the broker did not take the request; the call was not carried out")


def test_silence_ends_at_the_deadline(broker: Playing) -> None:
    over = threading.Event()
    broker.play(lambda sock: over.wait())
    answer, _ = broker.ask(timeout_ms=50)
    over.set()
    assert answer == ToolFailed(message=f"the broker did not answer in time; {NOT_KNOWN}")


def test_a_question_that_has_lapsed_is_waited_for_no_longer_than_a_call(broker: Playing) -> None:
    over = threading.Event()

    def script(sock: socket.socket) -> None:
        say(sock, pending(lapses_in_ms=-LONG_MS), final=False)
        over.wait()

    broker.play(script)
    answer, told = broker.ask(timeout_ms=50)
    over.set()
    assert isinstance(answer, ToolFailed)
    assert len(told) == 1


def test_questions_without_end_do_not_hold_the_turn_for_ever(broker: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopd.brokerport.LONGEST_MS", 100)

    def script(sock: socket.socket) -> None:
        try:
            while True:
                say(sock, pending(), final=False)
                time.sleep(0.01)
        except (OSError, frame.PeerGone):
            pass  # the port has given up, as it should

    broker.play(script)
    answer, told = broker.ask(timeout_ms=50)
    assert isinstance(answer, ToolFailed)
    assert told


def test_cancelling_wakes_the_wait_and_leaves_the_broker(broker: Playing) -> None:
    left = threading.Event()
    cancel = CancelToken()

    def script(sock: socket.socket) -> None:
        say(sock, pending(), final=False)
        cancel.cancel()
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            pass  # it left before it had read the question
        left.set()

    broker.play(script)
    with pytest.raises(Cancelled):
        broker.ask(cancel=cancel)
    assert left.wait(60)


def test_a_turn_that_was_cancelled_before_asks_nothing(tmp_path: Path) -> None:
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        Broker(socket=tmp_path / "none.sock", clock=CLOCK, timeout_ms=1).run(
            ASKED, cancel=cancel, on_pending=lambda _: None
        )
