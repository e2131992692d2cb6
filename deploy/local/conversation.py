"""Gives the terminal to one program until it ends, or waits where nobody is at one.

Invariant: the program has ended, and the terminal is as it was, when this returns or raises.
"""

import signal
import subprocess
import termios
from collections.abc import Callable, Sequence

from deploy.local import processes
from deploy.local.wakeups import FROM_KEYBOARD, Interrupted, ServiceEnded, Wakeups

_LEAVE_SECONDS = 5.0
_ENDS_SERVICE = frozenset({signal.SIGINT, signal.SIGTERM})


def converse(argv: Sequence[str], wakeups: Wakeups, tend: Callable[[], Sequence[int]]) -> int:
    """Run `argv` and return its exit code as a shell would.

    `tend` is called at first and whenever something happens; it returns the descriptors on which something may.
    Ctrl-C is the program's. What ends the launcher (SIGTERM, SIGHUP) ends the program first, then raises Interrupted.
    """
    modes = _terminal_modes()
    program = processes.in_foreground(argv)
    try:
        while program.poll() is None:
            for number in wakeups.wait(None, tend()):
                if number not in FROM_KEYBOARD:
                    raise Interrupted(number)
    finally:
        _end(program)
        if program.returncode < 0:
            _restore_terminal(modes)
    return program.returncode if program.returncode >= 0 else 128 - program.returncode


def attend(wakeups: Wakeups, tend: Callable[[], Sequence[int]]) -> int:
    """Stay without a conversation until a signal ends the launcher: Ctrl-C and SIGTERM raise ServiceEnded."""
    while True:
        for number in wakeups.wait(None, tend()):
            raise ServiceEnded(number) if number in _ENDS_SERVICE else Interrupted(number)


def _end(program: "subprocess.Popen[bytes]") -> None:
    """See the program gone: at once where it has ended, with a deadline where we end it."""
    program.terminate()
    try:
        program.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def _terminal_modes() -> "list[object] | None":
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None  # standard input is not a terminal


def _restore_terminal(modes: "list[object] | None") -> None:
    """A program that was killed could not do it itself."""
    if modes is not None:
        try:
            termios.tcsetattr(0, termios.TCSADRAIN, modes)  # type: ignore[arg-type]  # the list it gave us
        except termios.error:
            pass  # the terminal is gone
