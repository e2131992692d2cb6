"""A terminal for a program under test: a pty of its own, keys in, everything shown out.

The program runs in a session of its own with the pty as its controlling terminal, so Ctrl-C typed
here reaches it as a person's would.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence

PATIENCE_SECONDS = 30

# The child itself makes the pty its controlling terminal: between fork and exec of a process with
# threads nothing but exec is safe.
_TAKE_TERMINAL = (
    "import fcntl,os,signal,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); "  # a shell starts what it puts behind itself deaf to Ctrl-C
    "os.execv(sys.argv[1], sys.argv[1:])"
)

CTRL_C, CTRL_D, ESCAPE, ENTER, UP = "\x03", "\x04", "\x1b", "\r", "\x1b[A"
PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"


class Terminal:
    """Runs one program; `shown` is all that it wrote so far."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], *, rows: int = 24, columns: int = 80) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(rows=rows, columns=columns)
        self.first_modes = self.modes()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *argv],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=dict(environ),
            start_new_session=True,
        )
        self.shown = ""
        self._seen = 0
        self._bytes = b""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._slave)
        os.close(self._master)

    def resize(self, *, rows: int, columns: int) -> None:
        """Change the window; the kernel tells the program."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> int:
        """Return the local modes of the terminal (ECHO, ICANON)."""
        modes: int = termios.tcgetattr(self._master)[3]
        return modes

    def unread_bytes(self) -> int:
        """Return how much was typed that no program has read."""
        count = fcntl.ioctl(self._slave, termios.FIONREAD, b"\0\0\0\0")
        return int.from_bytes(count, sys.byteorder)

    def send(self, keys: str) -> None:
        """Type."""
        data = keys.encode("utf-8", "surrogateescape")
        while data:
            # Read meanwhile: a program that shows what is typed would else wait for us.
            readable, writable, _ = select.select([self._master], [self._master], [], PATIENCE_SECONDS)
            if readable:
                self._read()
            if writable:
                data = data[os.write(self._master, data[:1024]) :]

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until `pattern` shows up after what the last expect() matched; return the match."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            if match := re.compile(pattern, re.DOTALL).search(self.shown, self._seen):
                self._seen = match.end()
                return match
            left = until - time.monotonic()
            assert left > 0, f"{pattern!r} did not show up in {self._rest()!r}"
            # We hold the other end open ourselves, so only its exit tells that nothing more will come.
            ended = self._process.poll() is not None
            if not self._read_within(0 if ended else min(left, 0.1)) and ended:
                raise AssertionError(f"{pattern!r} never came; the program ended: {self._rest()!r}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Read until the program has ended and return its exit code."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self._process.poll() is None:
            assert time.monotonic() < until, f"still running: {self._rest()!r}"
            self._read_within(0.05)
        while self._read_within(0):
            pass
        return self._process.returncode

    def _rest(self) -> str:
        return self.shown[self._seen :][-2_000:]

    def _read_within(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        self._read()
        return True

    def _read(self) -> None:
        self._bytes += os.read(self._master, 65_536)
        self.shown = self._bytes.decode("utf-8", "replace")
