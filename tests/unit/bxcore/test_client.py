import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bxcore import envelope, frame
from bxcore.client import (
    Connection,
    PeerAway,
    PeerDenied,
    PeerLeft,
    PeerSilent,
    PeerUnclear,
    RemoteFault,
)
from bxcore.deadline import Deadline, SystemClock
from bxcore.envelope import NO_REQUEST, Envelope
from bxcore.ids import MessageKey, SessionId
from bxcore.wire.channel import LoopStatus, SelfTestEnd, UserMessage
from bxcore.wire.control import ErrorCode, WireFault

CLOCK = SystemClock()
LONG_MS = 3_600_000
END = SelfTestEnd(passed=1, failed=0)

Script = Callable[[socket.socket], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loop.sock"


@pytest.fixture
def listener(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen(0)
        yield sock


@pytest.fixture
def play(listener: socket.socket) -> Iterator[Callable[[Script], None]]:
    """Play the other role: accept one connection, do what the script says, close it."""
    threads: list[threading.Thread] = []

    def start(script: Script) -> None:
        def run() -> None:
            sock, _ = listener.accept()
            with sock:
                script(sock)

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


def read(sock: socket.socket) -> Envelope:
    payload = frame.receive(sock, Deadline.after(CLOCK, milliseconds=LONG_MS), frame_ms=LONG_MS)
    assert payload is not None
    return envelope.decode(payload)


def write(sock: socket.socket, number: int, message: object, *, final: bool) -> None:
    payload = envelope.encode(Envelope(id=number, final=final, msg=message))
    frame.send(sock, payload, Deadline.after(CLOCK, milliseconds=LONG_MS))


def answer_each(sock: socket.socket) -> None:
    for _ in range(2):
        asked = read(sock)
        write(sock, asked.id, END, final=False)
        write(sock, asked.id, END, final=True)


def dial(path: Path) -> closing[Connection]:
    return closing(Connection(path, clock=CLOCK))


def ask(connection: Connection) -> list[bool]:
    return [answer.final for answer in connection.request(LoopStatus(), idle_ms=LONG_MS)]


def test_a_request_gives_its_frames_up_to_the_final_one(path: Path, play: Callable[[Script], None]) -> None:
    play(answer_each)
    with Connection(path, clock=CLOCK) as connection:
        assert ask(connection) == [False, True]
        assert ask(connection) == [False, True]


def test_the_request_is_sent_before_anyone_iterates(path: Path, play: Callable[[Script], None]) -> None:
    sent = threading.Event()

    def script(sock: socket.socket) -> None:
        asked = read(sock)
        sent.set()
        write(sock, asked.id, END, final=True)

    play(script)
    with dial(path) as connection:
        answers = connection.request(LoopStatus(), idle_ms=LONG_MS)
        sent.wait()
        assert [answer.msg for answer in answers] == [END]


def test_an_error_frame_is_raised_with_its_code_and_the_connection_goes_on(
    path: Path, play: Callable[[Script], None]
) -> None:
    def script(sock: socket.socket) -> None:
        asked = read(sock)
        write(sock, asked.id, WireFault(code=ErrorCode.NO_SESSION, detail="no session main"), final=True)
        write(sock, read(sock).id, END, final=True)

    play(script)
    with dial(path) as connection:
        with pytest.raises(RemoteFault, match=r"no session main \[no_session\]") as caught:
            ask(connection)
        assert caught.value.code == "no_session"
        assert ask(connection) == [True]


def test_an_error_about_something_unreadable_is_raised_too(path: Path, play: Callable[[Script], None]) -> None:
    def script(sock: socket.socket) -> None:
        read(sock)
        write(sock, NO_REQUEST, WireFault(code=ErrorCode.BAD_FRAME, detail="too long"), final=True)

    play(script)
    with dial(path) as connection, pytest.raises(RemoteFault, match="too long"):
        ask(connection)


def test_what_was_said_before_the_other_side_closed_is_heard(path: Path, play: Callable[[Script], None]) -> None:
    left = threading.Event()

    def script(sock: socket.socket) -> None:
        write(sock, NO_REQUEST, WireFault(code=ErrorCode.TOO_BUSY, detail="come back"), final=True)
        sock.close()
        left.set()

    play(script)
    with dial(path) as connection:
        left.wait()
        with pytest.raises(RemoteFault, match="come back"):
            ask(connection)


# -- nobody there -------------------------------------------------------------------------------


def test_a_missing_socket_names_the_role_and_what_to_do(path: Path) -> None:
    with pytest.raises(PeerAway) as caught:
        dial(path)
    assert caught.value.code == "peer_away"
    assert caught.value.detail == (f"loopd is not running: nothing listens on {path}; see docs/runbook.md#peer_away")


def test_a_socket_that_a_killed_process_left_is_nobody_too(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with pytest.raises(PeerAway, match="loopd is not running"):
        dial(path)


def test_a_path_too_long_for_a_socket_is_said(tmp_path: Path) -> None:
    with pytest.raises(PeerAway, match="AF_UNIX path too long"):
        dial(tmp_path / ("x" * 120))


def test_a_closed_directory_is_another_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:  # root, as which tests may run, may enter anywhere
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(PeerDenied, match="may not connect to loopd") as caught:
        dial(path)
    assert caught.value.code == "peer_denied"


def test_a_full_queue_is_waited_for_and_then_given_up(path: Path, listener: socket.socket) -> None:
    with dial(path), pytest.raises(PeerSilent, match="did not accept a connection within 20 ms"):
        Connection(path, clock=CLOCK, connect_ms=20)


def test_a_full_queue_that_moves_lets_the_next_in(path: Path, listener: socket.socket) -> None:
    with dial(path):
        waiting: list[Connection] = []
        thread = threading.Thread(target=lambda: waiting.append(Connection(path, clock=CLOCK, connect_ms=LONG_MS)))
        thread.start()
        listener.accept()[0].close()
        thread.join()
        waiting[0].close()


# -- someone there who does not answer ----------------------------------------------------------


def test_silence_beyond_the_limit_is_an_error_and_closes(path: Path, play: Callable[[Script], None]) -> None:
    def script(sock: socket.socket) -> None:
        read(sock)
        assert sock.recv(1) == b""

    play(script)
    with dial(path) as connection:
        with pytest.raises(PeerSilent, match="loopd said nothing for 1 ms"):
            list(connection.request(LoopStatus(), idle_ms=1))
        with pytest.raises(PeerLeft, match="open another"):
            ask(connection)


def test_a_role_that_takes_nothing_is_an_error(
    path: Path, play: Callable[[Script], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bxcore import client

    monkeypatch.setattr(client, "SEND_MS", 20)
    over = threading.Event()
    play(lambda sock: over.wait())
    message = UserMessage(session=SessionId("main"), new=False, key=MessageKey("k"), text="x" * 900_000)
    with dial(path) as connection, pytest.raises(PeerSilent, match="did not take the request within 20 ms"):
        connection.request(message, idle_ms=LONG_MS)
    over.set()


def after_reading(raw: bytes) -> Script:
    def script(sock: socket.socket) -> None:
        read(sock)
        sock.sendall(raw)

    return script


ENDINGS: dict[str, Script] = {
    "before anything": read,
    "inside a header": after_reading(b"\0"),
    "inside a body": after_reading(b"\0\0\0\x09{"),
    "before the final frame": lambda sock: write(sock, read(sock).id, END, final=False),
}


@pytest.mark.parametrize("script", ENDINGS.values(), ids=ENDINGS.keys())
def test_a_role_that_leaves_before_its_final_frame_is_an_error(
    script: Script, path: Path, play: Callable[[Script], None]
) -> None:
    play(script)
    with dial(path) as connection, pytest.raises(PeerLeft, match="loopd left"):
        ask(connection)


UNCLEAR: dict[str, Script] = {
    "not JSON": after_reading(b"\0\0\0\1{"),
    "another version": after_reading(b"\0\0\0\x07" + b'{"v":2}'),
    "a length above the limit": after_reading(b"\xff\xff\xff\xff"),
    "another request": lambda sock: write(sock, read(sock).id + 1, END, final=True),
    "an answer without a request": lambda sock: write(sock, NO_REQUEST * read(sock).id, END, final=True),
}


@pytest.mark.parametrize("script", UNCLEAR.values(), ids=UNCLEAR.keys())
def test_what_is_no_answer_is_an_error_and_closes(script: Script, path: Path, play: Callable[[Script], None]) -> None:
    play(script)
    with dial(path) as connection:
        with pytest.raises(PeerUnclear):
            ask(connection)
        with pytest.raises(PeerLeft, match="open another"):
            ask(connection)


# -- answers that nobody reads ------------------------------------------------------------------


def test_giving_answers_up_closes_the_connection(path: Path, play: Callable[[Script], None]) -> None:
    def script(sock: socket.socket) -> None:
        write(sock, read(sock).id, END, final=False)
        assert sock.recv(1) == b""

    play(script)
    with dial(path) as connection:
        for _ in connection.request(LoopStatus(), idle_ms=LONG_MS):
            break
        with pytest.raises(PeerLeft, match="open another"):
            ask(connection)


def test_a_request_before_the_answers_were_read_is_refused(path: Path, play: Callable[[Script], None]) -> None:
    play(read)
    with dial(path) as connection:
        connection.request(LoopStatus(), idle_ms=LONG_MS)
        with pytest.raises(RuntimeError, match="not read to their end"):
            connection.request(LoopStatus(), idle_ms=LONG_MS)
