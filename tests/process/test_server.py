import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.client import Connection, PeerAway, PeerLeft, RemoteFault
from bxcore.deadline import SystemClock
from bxcore.errors import EXIT_CONFIG
from bxcore.ids import SessionId
from bxcore.wire.channel import LoopStatus, SelfTest, SessionList, SessionShow
from bxcore.wire.control import ErrorCode
from tests.process.role import ROOT, Role
from tests.process.small_server import REPORT

CLOCK = SystemClock()
LONG_MS = 3_600_000
MODULE = "tests.process.small_server"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("loop-owner", "loop-gateway"):
        (tmp_path / name).mkdir(mode=0o750)
    return tmp_path


@pytest.fixture
def server(home: Path) -> Iterator[Role]:
    with Role(MODULE, str(home), home=home) as role:
        yield role.wait_ready()


def connect(home: Path, door: str = "loop-owner") -> Connection:
    return Connection(home / door / "loop.sock", clock=CLOCK, connect_ms=LONG_MS)


def ask(connection: Connection) -> object:
    [answer] = connection.request(LoopStatus(), idle_ms=LONG_MS)
    return answer.msg


def check(home: Path, door: str = "loop-owner") -> None:
    with connect(home, door) as connection:
        assert ask(connection) == REPORT


def silent(home: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(home / "loop-owner/loop.sock"))
    return client


def test_a_hundred_clients_at_once_are_all_answered(home: Path, server: Role) -> None:
    together = threading.Barrier(100)
    answers: list[object] = []

    def client() -> None:
        together.wait()
        # The cap is 64 and the longest idle makes room, so a client may have to come again.
        for _ in range(1000):
            with contextlib.suppress(PeerLeft, PeerAway, RemoteFault), connect(home) as connection:
                answers.append(ask(connection))
                return

    threads = [threading.Thread(target=client) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [REPORT] * 100


def test_two_thousand_silent_connections_leave_both_doors_open(home: Path, server: Role) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2000):
            stack.enter_context(silent(home))
        check(home, "loop-gateway")
        check(home)
        assert server.threads() <= 64 + 2
        assert server.descriptors() <= 64 + 16
    assert server.terminate() == 0


def test_out_of_descriptors_it_waits_and_comes_back(home: Path) -> None:
    with Role(MODULE, str(home), "24", home=home) as server, contextlib.ExitStack() as stack:
        server.wait_ready()
        for _ in range(30):
            stack.enter_context(silent(home))
        while "accept paused" not in server.log():
            assert server.process.poll() is None
        stack.close()
        check(home)
        assert server.terminate() == 0
        assert "code=descriptors_exhausted" in server.log()


def test_a_peer_that_does_not_read_holds_up_nobody(home: Path, server: Role) -> None:
    with connect(home) as slow:
        assert next(slow.request(SessionShow(session=SessionId("main")), idle_ms=LONG_MS)).final is False
        check(home)
        check(home, "loop-gateway")
    check(home)


def test_a_message_at_the_wrong_door_is_forbidden(home: Path, server: Role) -> None:
    with connect(home, "loop-gateway") as connection, pytest.raises(RemoteFault) as caught:
        list(connection.request(SelfTest(), idle_ms=LONG_MS))
    assert caught.value.code == ErrorCode.FORBIDDEN.value
    check(home, "loop-gateway")


def test_a_fault_of_ours_is_logged_without_content_and_answered(home: Path, server: Role) -> None:
    with connect(home) as connection:
        with pytest.raises(RemoteFault) as caught:
            list(connection.request(SelfTest(), idle_ms=LONG_MS))
        assert ask(connection) == REPORT
    assert caught.value.code == ErrorCode.INTERNAL.value
    assert "trace=ZeroDivisionError<process/small_server.py:" in server.log()
    assert "the owner's words" not in server.log()


def test_sigterm_drains_cuts_what_is_left_and_ends_in_order(home: Path, server: Role) -> None:
    with connect(home) as held, connect(home) as idle:
        ask(idle)
        answers = held.request(SessionList(limit=1), idle_ms=LONG_MS)
        next(answers)
        assert server.terminate() == 0
        with pytest.raises(PeerLeft):
            next(answers)
        with pytest.raises(PeerLeft):
            ask(idle)
    assert "cut requests=1 code=drain_passed" in server.log()
    assert "stopped workers_left=0" in server.log()
    assert not (home / "loop-owner/loop.sock").exists()


def test_twenty_kills_in_a_row_and_it_comes_up_each_time(home: Path) -> None:
    for _ in range(20):
        with Role(MODULE, str(home), home=home) as server:
            server.wait_ready()
            check(home)
            server.kill()
        assert (home / "loop-owner/loop.sock").exists()


def test_of_two_starts_at_once_exactly_one_comes_up(home: Path) -> None:
    with Role(MODULE, str(home), home=home) as first, Role(MODULE, str(home), home=home) as second:
        ended = threading.Semaphore(0)

        def wait_for(role: Role) -> None:
            role.exit_code()
            ended.release()

        waits = [threading.Thread(target=wait_for, args=(role,)) for role in (first, second)]
        for wait in waits:
            wait.start()
        ended.acquire()  # one of the two has given up
        loser, winner = (first, second) if first.process.returncode is not None else (second, first)
        winner.wait_ready()
        assert loser.exit_code() == EXIT_CONFIG
        assert loser.log().strip().endswith("[already_running]")
        check(home)
        assert winner.terminate() == 0
        for wait in waits:
            wait.join()


def test_a_stopped_role_is_said_to_be_away(home: Path, server: Role) -> None:
    assert server.terminate() == 0
    with pytest.raises(PeerAway, match="loopd is not running"):
        connect(home)


def test_a_signal_that_another_thread_got_ends_the_wait_for_connections() -> None:
    program = (
        "import signal, threading\n"
        "from bxcore.listener import Entrance\n"
        "entrance = Entrance([])\n"
        "signal.signal(signal.SIGTERM, lambda *_: entrance.stop())\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
        "print('waits', flush=True)\n"
        "list(entrance.connections())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        process.terminate()
        assert process.wait() == 0
