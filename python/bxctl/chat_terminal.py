"""Typing: one message at a time with line editing and history, and the keyboard while a turn runs.

GNU readline edits where it is there; it takes a bracketed paste as one line with line breaks in
it. On a terminal without such things the lines that wait together are one message, which is what a
paste looks like there. Writes: the history file, mode 0600; a failure is told once and is harmless.
"""

import contextlib
import io
import locale
import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, ModuleType

from bxcore import files, regularfile
from bxcore.errors import StateError

HISTORY_ENTRIES = 1_000
_PASTE_GAP_SECONDS = 0.03
_NOTICE_SECONDS = 0.25
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_BINDINGS = (
    "set enable-bracketed-paste on",
    r'"\e\C-m": "\C-v\C-j"',  # Alt-Enter puts a line break into the message
    r'"\e\C-j": "\C-v\C-j"',
)


def find_readline(environ: Mapping[str, str]) -> ModuleType | None:
    """Return the readline module where this terminal can use it."""
    if environ.get("TERM", "dumb") == "dumb":
        return None
    _speak_utf8()
    try:
        import readline  # late: it reads the owner's inputrc and prepares the terminal
    except ImportError:
        return None
    if "libedit" in (readline.__doc__ or ""):
        return None  # it knows neither the bindings nor bracketed paste
    return readline


def _speak_utf8() -> None:
    """Let readline read what Python reads.

    Under LC_ALL=C, and under a locale that is not installed, Python speaks UTF-8 all the same; the C library, by
    which readline goes, would take each byte for a character.
    """
    if (sys.stdin.encoding or "").lower().replace("-", "") == "utf8" and locale.nl_langinfo(locale.CODESET) != "UTF-8":
        with contextlib.suppress(locale.Error):  # a C library without it: such letters are then typed blindly
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")


class Editor:
    """Asks for messages on standard input and output, which must be a terminal."""

    def __init__(self, readline: ModuleType | None, history: "History") -> None:
        self._readline = readline
        self._history = history
        self._begun = ""
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # a byte that is no text must not end the conversation
        if readline is not None:
            readline.set_auto_history(False)
            for binding in _BINDINGS:
                readline.parse_and_bind(binding)
            for entry in history.load():
                self._recall(entry)

    def ask(self, prompt: str, more: str) -> str:
        """Return one message; lines that end in a backslash go on. Raises EOFError, KeyboardInterrupt."""
        self._begun = ""
        text = self._read(prompt)
        while ends_open(text):
            self._begun = text
            text = text[:-1] + "\n" + self._read(more)
        return text

    def interrupted_text(self) -> str:
        """Return what stood there when ask() was interrupted, as far as anybody but the terminal knows it."""
        line: str = self._readline.get_line_buffer() if self._readline is not None else ""
        return self._begun + line

    def remember(self, text: str) -> None:
        """Put `text` into the history."""
        self._recall(text)
        self._history.add(text)

    def _recall(self, text: str) -> None:
        if self._readline is not None:
            # What the locale cannot spell (a UnicodeEncodeError is a ValueError) is only not there to come back to.
            with contextlib.suppress(ValueError):
                self._readline.add_history(text)

    def _read(self, prompt: str) -> str:
        with signals_noticed():
            if self._readline is not None:
                return input(prompt)
            sys.stdout.write(prompt)
            sys.stdout.flush()
            return _read_plain(sys.stdin.fileno())


@contextlib.contextmanager
def signals_noticed() -> Iterator[None]:
    """Wake the wait for keys up now and then.

    A signal that comes after the prompt is drawn and before input() waits would otherwise be
    noticed with the next key only: Python runs handlers when a system call was interrupted.
    """
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: None)
    signal.setitimer(signal.ITIMER_REAL, _NOTICE_SECONDS, _NOTICE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ends_open(line: str) -> bool:
    """Say whether `line` ends in a backslash that is not itself behind one."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _read_plain(descriptor: int) -> str:
    """Read the lines that wait together. A terminal hands out one line a read; none is the end."""
    untrusted = os.read(descriptor, 65_536)
    if not untrusted:
        raise EOFError
    while select.select([descriptor], [], [], _PASTE_GAP_SECONDS)[0]:
        more = os.read(descriptor, 65_536)
        if not more:
            break
        untrusted += more
    return untrusted.decode("utf-8", "surrogateescape").removesuffix("\n")


class History:
    """The file that remembers what was typed: one message a line, its line breaks spelled out.

    `make_folder`: its directory is made where it is missing. A home is not: it may be a slip of the keyboard.
    """

    def __init__(self, path: Path, complain: Callable[[str], None], *, make_folder: bool = False) -> None:
        self._path = path
        self._make_folder = make_folder
        self._complain = complain
        self._broken = False

    def load(self) -> list[str]:
        """Return what was typed before, oldest first."""
        try:
            with os.fdopen(regularfile.descriptor(self._path, os.O_RDONLY), "rb") as file:
                lines = file.read().decode("utf-8", "replace").split("\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            self._fail(f"{self._path}: {error.strerror}")
            return []
        # After a power cut a file may end in zeros, which readline does not take.
        kept = [line for line in lines if line and "\0" not in line][-HISTORY_ENTRIES:]
        if len(lines) > 2 * HISTORY_ENTRIES:
            self._shorten(kept)
        return [_entry(line) for line in kept]

    def _shorten(self, lines: list[str]) -> None:
        try:
            files.DiskFiles().replace(self._path, "".join(f"{line}\n" for line in lines).encode())
        except StateError as error:
            self._fail(error.detail)

    def add(self, text: str) -> None:
        """Append `text`."""
        if self._broken or not text.strip() or "\0" in text:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        try:
            if self._make_folder:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = regularfile.descriptor(self._path, flags)
            try:
                os.write(descriptor, (_line(text) + "\n").encode("utf-8", "replace"))
            finally:
                os.close(descriptor)
        except OSError as error:
            self._fail(f"{self._path}: {error.strerror}")

    def _fail(self, why: str) -> None:
        if not self._broken:
            self._complain(f"what you type is not remembered: {why}")
        self._broken = True


def _line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _entry(line: str) -> str:
    pieces = (piece.replace("\\n", "\n").replace("\\r", "\r") for piece in line.split("\\\\"))
    return "\\".join(pieces)


def forget_keys(descriptor: int) -> None:
    """Throw away what was typed and not read: it was meant for us and not for the shell."""
    with contextlib.suppress(termios.error):  # a terminal that has gone away holds no keys
        termios.tcflush(descriptor, termios.TCIFLUSH)


@contextlib.contextmanager
def keys_held(descriptor: int, write: Callable[[str], None], *, paste: bool) -> Iterator[None]:
    """While a turn runs, what is typed shows up nowhere and waits for the next prompt. Ctrl-C still acts."""
    before = termios.tcgetattr(descriptor)
    held = termios.tcgetattr(descriptor)
    held[3] &= ~(termios.ECHO | termios.ICANON)
    held[3] |= termios.NOFLSH  # Ctrl-C would else throw away what was typed before it

    def hold(_number: int = 0, _frame: FrameType | None = None) -> None:
        # Also after Ctrl-Z and fg, since a shell may have given the terminal back as it likes it.
        termios.tcsetattr(descriptor, termios.TCSADRAIN, held)

    continued = signal.signal(signal.SIGCONT, hold)
    try:
        hold()
        if paste:
            write(_PASTE_ON)
        yield
    finally:
        signal.signal(signal.SIGCONT, continued)
        if paste:
            write(_PASTE_OFF)
        # A terminal that has gone away has no modes to restore.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
