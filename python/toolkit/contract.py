"""The agreement between brokerd and a tool's container: one order in, one text out, an exit code.

Reads one JSON line from stdin (toolkit.order), checks that the mounts are what was decided, runs one
tool, writes its text as UTF-8 to stdout. Exit 0: done. 1: the tool's own error, for the model. 2: misuse
or a fault of ours; stdout then holds one of the fixed markers or nothing. stdin stays open as a leash.
Nothing secret and no content goes to stderr. Specified in docs/tools.md, "The contract".
"""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bxcore import tools
from toolkit import beneath, order, ownmemory, textfile
from toolkit.leash import Leash
from toolkit.order import Misuse, Order, ToolError
from toolkit.place import Place

DONE, OWN_ERROR, MISUSE = 0, 1, 2

NOT_AS_DECIDED = b"boxmaker: not mounted as decided\n"
"""On stdout with exit code 2, where a mount is not the file or directory that brokerd decided on."""

NO_ORDER = b"boxmaker: no order\n"
"""On stdout with exit code 2, where the line on stdin cannot be understood."""

Program = Callable[[Any, Place], str]


def main() -> int:
    """Carry out the one order of this process, whatever comes of it."""
    try:
        return _obey()
    except beneath.NotAsDecided:
        return put(NOT_AS_DECIDED, MISUSE)
    except Misuse as misuse:
        sys.stderr.write(f"misuse: {misuse}\n")
        return put(NO_ORDER, MISUSE)
    except Exception as fault:  # noqa: BLE001 - outermost; Python's own exit code for it, 1, means something else
        sys.stderr.write(f"fault: {type(fault).__name__} at {_where(fault)}\n")
        return MISUSE


def _obey() -> int:
    line = read_line(0)
    if line is None:
        return MISUSE
    ownmemory.close()
    leash = Leash(0)
    leash.start()
    asked = order.read(line)
    roots = tuple(beneath.open_root(mount) for mount in asked.mounts)
    return carry_out(
        asked, Place(roots=roots, proxy=asked.proxy, leash=leash, most_chars=tools.TOOLS[asked.tool].result_chars)
    )


def carry_out(asked: Order, place: Place) -> int:
    """Run the tool and write what it has to say."""
    try:
        text, code = program(asked.tool)(asked.arguments, place), DONE
    except ToolError as error:
        text, code = f"error: {error}", OWN_ERROR
    except OSError as error:
        text, code = f"error: {_in_words(error)}", OWN_ERROR
    return put(as_bytes(text, place.most_chars), code)


def _in_words(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "a symbolic link lies on that path now; links are not followed"
    return (error.strerror or type(error).__name__).lower()


def _where(fault: BaseException) -> str:
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace else "?"


def program(tool: str) -> Program:
    """Return what runs the tool. Only that is imported: each module would cost every other call its time."""
    match tool:
        case "read_file":
            from toolkit import readfile

            return readfile.run
        case "write_file":
            from toolkit import writefile

            return writefile.run
        case "edit_file":
            from toolkit import editfile

            return editfile.run
        case "list_directory":
            from toolkit import listdirectory

            return listdirectory.run
        case "search_files":
            from toolkit import searchfiles

            return searchfiles.run
        case "shell":
            from toolkit import shell

            return shell.run
        case "http_fetch":
            from toolkit import httpfetch

            return httpfetch.run
    raise Misuse("a tool without a program")


def read_line(fd: int) -> bytes | None:
    """Return the line without its end, or None where brokerd left before it or the line is too long."""
    parts: list[bytes] = []
    size = 0
    while size <= order.MOST_BYTES:
        part = os.read(fd, 65_536)
        if not part:
            return None
        parts.append(part)
        size += len(part)
        if part.endswith(b"\n"):
            return b"".join(parts)[:-1]
    return None


def as_bytes(text: str, most_chars: int) -> bytes:
    """Return the text in UTF-8, cut visibly at `most_chars`. A byte of a file that is no UTF-8 shows as an escape."""
    shown = textfile.printed(text)
    if len(shown) > most_chars:
        mark = f"\n{tools.CUT}: {len(shown)} characters, of which these are the first]"
        shown = shown[: most_chars - len(mark)] + mark
    return shown.encode()


def put(data: bytes, code: int) -> int:
    """Write `data` to stdout and return the exit code; where nobody reads it any more, nobody is told."""
    rest: Sequence[int] | memoryview = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(1, rest) :]  # type: ignore[arg-type]
    except BrokenPipeError:
        return MISUSE
    return code
