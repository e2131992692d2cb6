"""Log lines: one line a record on stderr, `key=value`, ids and sizes and durations, never content.

    level=info role=loopd at=2026-01-02T03:04:05.678Z turn ended session=main turn=4 ms=812

Arguments are quoted where they could be mistaken for another pair, control characters are
escaped, so no value can end a line or forge a field. Of an unexpected exception the type and the
places are kept and the text is not: a library may quote a value in it. For the same reason a library's
own records are kept from ERROR on, and only that there was one. Threads: any.
Standard library only: inferproxy imports this module.
"""

import logging
import sys
import threading
from types import TracebackType

from bxcore import timestamp
from bxcore.errors import BoxmakerError
from bxcore.timestamp import Timestamp

_PLACES = 12
"""Innermost stack frames that a trace names."""

_OURS = "boxmaker"
"""Loggers below this name are ours; any other belongs to a library."""


def configure(role: str) -> None:
    """Send every log record of this process to stderr under the name `role`. Called once, at start."""
    handler = _StderrHandler()
    handler.setFormatter(_LineFormatter(role))
    logging.basicConfig(level=logging.ERROR, handlers=[handler], force=True)
    logging.getLogger(_OURS).setLevel(logging.INFO)
    threading.excepthook = _log_dead_thread


def get(name: str) -> logging.Logger:
    """Return the logger of one of our modules."""
    return logging.getLogger(f"{_OURS}.{name}")


def escape(text: str) -> str:
    """Return `text` on one line: what is not printable, and the backslash, becomes an escape."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_escaped(character) for character in text)


def trace(error: BaseException) -> str:
    """Return `error` as `Type<place<place`, innermost place first; text only where we wrote it."""
    name = type(error).__name__
    if isinstance(error, BoxmakerError):
        name += f"({error})"
    elif isinstance(error, OSError):
        name += f"({error.strerror})"  # the kernel's words; str(error) would add a path
    places = "<".join(_places(error.__traceback__))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return f"{name}<{places}" + (f" from {trace(cause)}" if cause is not None else "")


def _places(innermost: TracebackType | None) -> list[str]:
    places: list[str] = []
    while innermost is not None:
        code = innermost.tb_frame.f_code
        file = "/".join(code.co_filename.split("/")[-2:])
        places.append(f"{file}:{innermost.tb_lineno}:{code.co_name}")
        innermost = innermost.tb_next
    return places[: -_PLACES - 1 : -1]


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    return character if character.isprintable() else f"\\u{{{ord(character):04X}}}"


def _quoted(argument: object) -> object:
    """Leave numbers to their format; put anything else in quotes unless it is one plain word."""
    if isinstance(argument, int | float):
        return argument
    word = escape(str(argument))
    if word and not any(character in ' "=' for character in word):
        return word
    return '"' + word.replace('"', '\\"') + '"'


class _LineFormatter(logging.Formatter):
    """Turns one record into one line."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        # Clamped: a line under an impossible clock is worth more than none.
        at = timestamp.to_text(Timestamp(max(0, min(int(record.created * 1000), timestamp.MAX_TIMESTAMP))))
        line = f"level={record.levelname.lower()} role={self._role} at={at} {self._message(record)}"
        if record.exc_info and record.exc_info[1] is not None:
            line += f" trace={_quoted(trace(record.exc_info[1]))}"
        return line

    def _message(self, record: logging.LogRecord) -> str:
        if record.name.partition(".")[0] != _OURS:
            # A library's words may be those of its peer.
            return f"a library complained logger={_quoted(record.name)} place={_quoted(record.module)}:{record.lineno}"
        if isinstance(record.args, tuple) and record.args:
            return escape(str(record.msg)) % tuple(map(_quoted, record.args))
        return escape(record.getMessage())


class _StderrHandler(logging.Handler):
    """Writes to stderr, and never lets a record that cannot be written show its arguments."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (TypeError, ValueError, KeyError, OSError):  # a bad log call must not fail the request
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the library's name
        place, kind = f"{record.module}:{record.lineno}", type(sys.exception()).__name__
        try:
            sys.stderr.write(f"level=error log record lost place={place} error={kind} code=internal\n")
        except (OSError, ValueError):
            pass  # stderr itself is gone: there is nobody left to tell


def _log_dead_thread(args: threading.ExceptHookArgs) -> None:
    error = args.exc_value
    if error is not None:
        get("logs").error("thread died code=internal", exc_info=error)
