"""The running processes of one `make chat`: started in order, watched, and stopped in the reverse order.

Invariant: when the context is left, by whatever way, none of them is left. Threads: one.
"""

import signal
import subprocess
import termios
import time
from collections.abc import Sequence

from deploy.local import logfiles, processes
from deploy.local.home import Home
from deploy.local.plan import Part
from deploy.local.processes import Process
from deploy.local.progress import Progress
from deploy.local.refusal import Refusal
from deploy.local.wakeups import FROM_KEYBOARD, Wakeups

_LOOK_SECONDS = 0.5
_LEAVE_SECONDS = 5.0
_KILL_SECONDS = 5.0
_SHOWN_LINES = 15


class Interrupted(Exception):
    """A signal told the launcher to end."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


class Stack:
    """See the module's header."""

    def __init__(self, home: Home, wakeups: Wakeups, progress: Progress) -> None:
        self._home = home
        self._wakeups = wakeups
        self._progress = progress
        self._processes: list[Process] = []

    def __enter__(self) -> "Stack":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, part: Part) -> Process:
        """Start `part` and go on at once."""
        process = processes.start(part, self._home)
        self._processes.append(process)
        return process

    def wait_ready(self, *awaited: Process) -> None:
        """Return when all of them are ready. Raises Refusal where one ends or takes too long, or Interrupted."""
        begun = time.monotonic()
        while waiting := [process for process in awaited if not process.news.ready]:
            descriptors = [number for process in waiting for number in process.news.descriptors()]
            pause(self._wakeups, self._progress, _said(waiting[-1]), descriptors)
            for process in waiting:
                process.news.read()
            for process in awaited:
                self._check(process, time.monotonic() - begun)

    def pause(self, doing: str) -> None:
        """Wait a little, saying what for. Raises Refusal where a process has ended, or Interrupted."""
        pause(self._wakeups, self._progress, doing)
        for process in self._processes:
            self._check(process, 0)

    def report_ended(self) -> None:
        """Say which processes have ended although nobody asked them to."""
        for process in self._processes:
            if process.exit_code is not None:
                self._progress.say(_last_words(process, "ended during the conversation"))

    def stop(self) -> None:
        """Stop all, the last one first, each with its deadline; a second Ctrl-C kills what is left."""
        for process in reversed(self._processes):
            process.signal(signal.SIGTERM)
            self._wait_end(process, process.part.stop_seconds)
            process.signal(signal.SIGKILL)
            self._wait_end(process, _KILL_SECONDS)
            if process.exit_code is None:
                self._progress.say(f"{process.part.name} (process {process.pid}) does not end, even killed")
            process.close()
        self._processes.clear()

    def _wait_end(self, process: Process, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while process.exit_code is None and (left := deadline - time.monotonic()) > 0:
            if FROM_KEYBOARD.intersection(self._wakeups.wait(left)):
                return

    def _check(self, process: Process, waited_seconds: float) -> None:
        if process.exit_code is not None:
            raise Refusal(_last_words(process, "did not start"))
        if not process.news.ready and waited_seconds > process.part.ready_seconds:
            raise Refusal(_last_words(process, f"was not ready after {process.part.ready_seconds} s"))


def pause(wakeups: Wakeups, progress: Progress, doing: str, descriptors: Sequence[int] = ()) -> None:
    """Wait a little, or until there is something to read, saying what for. Raises Interrupted."""
    progress.doing(doing)
    for number in wakeups.wait(_LOOK_SECONDS, descriptors):
        raise Interrupted(number)


def converse(argv: tuple[str, ...], wakeups: Wakeups) -> int:
    """Give the terminal to a program until it ends, and return its exit code as a shell would.

    Ctrl-C is the program's. What ends the launcher (SIGTERM, SIGHUP) ends the program first, then raises Interrupted.
    """
    modes = _terminal_modes()
    program = processes.in_foreground(argv)
    while program.poll() is None:
        told = [number for number in wakeups.wait(None) if number not in FROM_KEYBOARD]
        if told:
            _end(program)
            _restore_terminal(modes)
            raise Interrupted(told[0])
    if program.returncode >= 0:
        return program.returncode
    _restore_terminal(modes)
    return 128 - program.returncode


def _end(program: "subprocess.Popen[bytes]") -> None:
    program.terminate()
    try:
        program.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def _said(process: Process) -> str:
    status = process.news.status
    return f"{process.part.doing} ({status})" if status else process.part.doing


def _last_words(process: Process, what: str) -> str:
    how = f" ({process.ending})" if process.exit_code is not None else ""
    lines = [f"  {line}" for line in logfiles.last_lines(process.log, _SHOWN_LINES)]
    return "\n".join([f"{process.part.name} {what}{how}; its log is {process.log}", *lines])


def _terminal_modes() -> "list[object] | None":
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None  # standard input is not a terminal


def _restore_terminal(modes: "list[object] | None") -> None:
    """A program that was killed could not do it itself; after one that could, this changes nothing."""
    if modes is not None:
        try:
            termios.tcsetattr(0, termios.TCSADRAIN, modes)  # type: ignore[arg-type]  # the list it gave us
        except termios.error:
            pass  # the terminal is gone
