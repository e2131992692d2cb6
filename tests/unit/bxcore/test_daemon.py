import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bxcore import daemon
from bxcore.errors import ConfigError, StateError, UpstreamError


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, threading.excepthook)
    yield
    root.handlers[:], threading.excepthook = before[0], before[2]
    root.setLevel(before[1])


def raising(error: BaseException) -> Callable[[], int]:
    def main() -> int:
        raise error

    return main


CODES = {
    "a wrong configuration": (ConfigError("a.toml:3: ttl: expected a number"), 78),
    "state that cannot be written": (StateError("log.jsonl: no space left"), 74),
    "a fault of ours": (ZeroDivisionError("text of a library"), 1),
    "an error that nobody handled": (UpstreamError("server away"), 1),
    "Ctrl-C before anything ran": (KeyboardInterrupt(), 0),
}


@pytest.mark.parametrize(("error", "code"), CODES.values(), ids=CODES.keys())
def test_each_group_of_errors_has_its_exit_code(error: BaseException, code: int) -> None:
    assert daemon.run(raising(error), role="loopd") == code


def test_an_orderly_end_passes_its_code_on() -> None:
    assert daemon.run(lambda: 0, role="loopd") == 0


def test_the_owners_error_is_a_readable_line(capsys: pytest.CaptureFixture[str]) -> None:
    daemon.run(raising(ConfigError("a.toml:3: ttl: expected a number")), role="loopd")
    assert capsys.readouterr().err == "loopd: a.toml:3: ttl: expected a number [config]\n"


def test_several_faults_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    daemon.run(raising(ConfigError("a.toml:3: x\na.toml:4: \x1b[2Jy")), role="loopd")
    assert capsys.readouterr().err == "loopd: a.toml:3: x\nloopd: a.toml:4: \\u{001B}[2Jy [config]\n"


def test_a_fault_of_ours_is_one_line_without_the_text_of_a_library(capsys: pytest.CaptureFixture[str]) -> None:
    daemon.run(raising(ZeroDivisionError("text of a library")), role="loopd")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "code=internal exit=1 trace=ZeroDivisionError<" in line
    assert "text of a library" not in line


def test_readiness_reaches_the_service_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        daemon.notify("READY=1")
        assert manager.recv(100) == b"READY=1"


def test_readiness_reaches_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # the kernel chooses an abstract name
        name = manager.getsockname()
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name[1:].decode())
        daemon.notify("STATUS=waiting")
        assert manager.recv(100) == b"STATUS=waiting"


def test_a_manager_that_is_away_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    daemon.notify("READY=1")
    assert "notify failed errno=2" in capfd.readouterr().err


def send_for_ever(sender: socket.socket) -> None:
    while True:
        sender.send(b"STATUS=x")


@contextmanager
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A manager whose socket takes nothing more, until somebody reads."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + manager.getsockname()[1:].decode())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            other.connect(manager.getsockname())
            with pytest.raises(BlockingIOError):
                send_for_ever(other)
        yield manager


@pytest.mark.parametrize("state", ["STATUS=connected", "STOPPING=1"])
def test_a_manager_without_room_is_not_waited_for(
    state: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with full(monkeypatch):
        daemon.notify(state)
    assert f"notify failed errno={errno.EAGAIN}" in capfd.readouterr().err


def test_readiness_waits_for_room(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(daemon, "_READY_SECONDS", 60.0)
    with full(monkeypatch) as manager:
        teller = threading.Thread(target=daemon.notify, args=("READY=1",))
        teller.start()
        while manager.recv(100) != b"READY=1":
            pass
        teller.join()
    assert capfd.readouterr().err == ""


def test_without_a_manager_nothing_is_said(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    daemon.notify("READY=1")
    assert capfd.readouterr().err == ""


@pytest.fixture
def signals_restored() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [(number, signal.getsignal(number)) for number in numbers]
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.usefixtures("signals_restored")
def test_a_signal_to_stop_stops(number: signal.Signals) -> None:
    stopped: list[bool] = []
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever this test run was started with
    daemon.stop_on_signal(lambda: stopped.append(True))
    signal.raise_signal(number)
    assert stopped == [True]


@pytest.mark.usefixtures("signals_restored")
def test_one_that_nohup_started_outlives_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    daemon.stop_on_signal(lambda: pytest.fail("stopped"))
    signal.raise_signal(signal.SIGHUP)
