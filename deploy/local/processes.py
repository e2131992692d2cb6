"""One started process: when it is ready, how it ended, and its end. The launcher's only file that starts programs.

Every daemon is the leader of a session of its own: the terminal's signals do not reach it, and what it
starts itself is ended with it. Whatever ends the launcher, the kernel ends them.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.local import isolation, logfiles, plan
from deploy.local.home import Home
from deploy.local.plan import Part
from deploy.local.readiness import FirstLine, NotifySocket, Readiness


class Process:
    """A part of the stack that was started. Made by `start`."""

    def __init__(self, part: Part, popen: "subprocess.Popen[bytes]", news: Readiness, log: Path) -> None:
        self.part = part
        self.pid = popen.pid
        self.news = news
        self.log = log
        self._popen = popen

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where one ended it."""
        if self._popen.returncode is None and self._has_ended():
            # What it had started goes with it, and now: while it is not reaped, nobody else has its number.
            self.signal(signal.SIGKILL)
            self._popen.wait()
        return self._popen.returncode

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return ended(self.exit_code or 0)

    def signal(self, number: signal.Signals) -> None:
        """Send `number` to the process and to everything that it started, unless it has ended."""
        if self._popen.returncode is not None:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass  # ended meanwhile; exit_code will tell

    def close(self) -> None:
        """Give the descriptors back, after the process has ended."""
        self.news.close()

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def start(part: Part, home: Home) -> Process:
    """Start `part` with its log; its readiness comes later."""
    log = home.log / f"{part.name}.log"
    environment = plan.environment(os.environ)
    notify = None
    if not part.first_line_is_ready:
        notify = NotifySocket(home.notify_socket(part.name))
        environment["NOTIFY_SOCKET"] = str(home.notify_socket(part.name))
    with logfiles.begin(log) as output:
        popen = subprocess.Popen(
            isolation.command(
                (*part.argv, *part.once), dies_by=signal.SIGKILL, network=part.network, powers=part.powers
            ),
            stdin=subprocess.DEVNULL,
            stdout=output if notify else subprocess.PIPE,
            stderr=output,
            cwd=home.path,
            env=environment,
            umask=part.umask,
            start_new_session=True,
        )
    news = notify or FirstLine(_taken(popen))
    return Process(part, popen, news, log)


def in_foreground(argv: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start a program with our terminal, our environment and our process group: Ctrl-C and Ctrl-Z are its own."""
    # Not KILL: it has the terminal's modes to restore.
    command = isolation.command(argv, dies_by=signal.SIGTERM, network=True)
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": plan.environment({})["PYTHONPATH"]})


def no_network_refused() -> str | None:
    """Return why this machine cannot start a program without a network; None where it can."""
    command = isolation.command(["/bin/true"], dies_by=signal.SIGKILL, network=False)
    tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if tried.returncode == 0:
        return None
    return tried.stderr.decode("utf-8", "replace").strip().removeprefix("/bin/true: ") or ended(tried.returncode)


def ended(exit_code: int) -> str:
    """Say in words how a process ended."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-exit_code}"


def _taken(popen: "subprocess.Popen[bytes]") -> int:
    """Take the reading end of its standard output over."""
    assert popen.stdout is not None
    descriptor = os.dup(popen.stdout.fileno())
    popen.stdout.close()
    return descriptor
