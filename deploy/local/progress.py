"""What the launcher and the demo say, on standard error only: standard output belongs to the answer.

On a terminal lines break at spaces, and what is being waited for is one line that is written over and disappears;
elsewhere each new thing is a line of its own.
"""

import shutil
import time
from typing import TextIO

from bxctl import render


class Progress:
    """Lines and the one passing line. `speaker` is what was typed: the words that they begin with."""

    def __init__(self, stream: TextIO, *, speaker: str = "make chat") -> None:
        self._stream = stream
        self._speaker = speaker
        self._terminal = stream.isatty()
        self._passing = ""
        self._since = 0.0

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        self._write(f"{self._broken(text)}\n")

    def interject(self, text: str) -> None:
        """Write a line while another program has the terminal, without wiping what that one has written."""
        self.clear()
        below = "\r\n" if self._terminal else ""
        self._write(f"{below}{self._broken(text)}\n")

    def doing(self, what: str) -> None:
        """Show what is being waited for. May be called often."""
        if what != self._passing:
            self._passing, self._since = what, time.monotonic()
            if not self._terminal:
                self._write(f"{self._speaker}: {what}\n")
        if self._terminal:
            self._overwrite(what)

    def clear(self) -> None:
        """Take the passing line away."""
        if self._passing and self._terminal:
            self._write("\r\x1b[K")
        self._passing = ""

    def _broken(self, text: str) -> str:
        line = f"{self._speaker}: {text}"
        return render.wrap(line, shutil.get_terminal_size().columns - 1, hang=2) if self._terminal else line

    def _overwrite(self, what: str) -> None:
        seconds = int(time.monotonic() - self._since)
        text = f"{self._speaker}: {what}…" + (f" {seconds} s" if seconds else "")
        # One column is left free: a full line would wrap, and the next one could not overwrite it.
        width = max(20, shutil.get_terminal_size().columns - 1)
        self._write(f"\r\x1b[K{text[:width]}")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads it any more; the conversation goes on without it
