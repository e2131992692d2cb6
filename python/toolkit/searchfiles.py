"""search_files: the lines that hold a text, in the files below a directory. No link is followed, no file read twice.

Bounded in files, bytes, hits and time; whatever was left out is said. Files that are no text, and
files that may not be read, are counted and passed over.
"""

import fnmatch
import os
import stat
import time
from collections.abc import Iterator

import attrs

from bxcore import tools
from bxcore.tools import SearchFiles
from toolkit import beneath, textfile
from toolkit.order import ToolError
from toolkit.place import Place

MOST_FILES = 20_000
MOST_NAMES = 250_000
MOST_FILE_BYTES = 4 * 1024 * 1024
MOST_BYTES = 512 * 1024 * 1024
MOST_HITS = 200
MOST_HITS_A_FILE = 20
MOST_SECONDS = 30
MOST_LINE_CHARS = 240


@attrs.define(kw_only=True)
class Tally:
    """What a search has done so far. `stopped` says which limit ended it."""

    end: float
    files: int = 0
    bytes: int = 0
    passed_over: int = 0
    hits: list[str] = attrs.field(factory=list)
    matching: int = 0
    stopped: str | None = None

    def enough(self) -> bool:
        """Say whether a limit is reached, and remember which."""
        if self.stopped is None:
            self.stopped = next((limit for limit, reached in self._limits() if reached), None)
        return self.stopped is not None

    def _limits(self) -> Iterator[tuple[str, bool]]:
        yield f"{MOST_HITS} lines", len(self.hits) >= MOST_HITS
        yield f"{MOST_FILES} files", self.files >= MOST_FILES
        yield f"{MOST_BYTES} bytes", self.bytes >= MOST_BYTES
        yield f"{MOST_SECONDS} seconds", time.monotonic() >= self.end


def run(asked: SearchFiles, place: Place) -> str:
    tally = Tally(end=time.monotonic() + MOST_SECONDS)
    fd = beneath.open_path(place.roots, asked.path, os.O_RDONLY)
    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            _search(fd, asked.path, asked.query.encode(), tally)
        elif stat.S_ISDIR(found.st_mode):
            _walk(fd, asked, tally)
        else:
            raise ToolError(f"that is {textfile.kind_of(found)}, neither a directory nor a file")
    finally:
        os.close(fd)
    return _report(tally, place.most_chars)


def _walk(top: int, asked: SearchFiles, tally: Tally) -> None:
    """Visit everything below, in the order of the names. Each step is opened anew from the top, without links."""
    todo = ["."]
    while todo and not tally.enough():
        inside = todo.pop()
        try:
            fd = beneath.open_below(top, inside, os.O_RDONLY)
        except OSError:
            tally.passed_over += 1
            continue
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                names = _names(fd, asked.glob, tally)
                todo += [name if inside == "." else f"{inside}/{name}" for name in reversed(names)]
            elif stat.S_ISREG(mode):
                _search(fd, f"{asked.path.rstrip('/')}/{inside}", asked.query.encode(), tally)
        finally:
            os.close(fd)


def _names(directory: int, glob: str | None, tally: Tally) -> list[str]:
    """Return the directories, and the files of the wanted names: a link, a pipe or a device is not even opened."""
    names: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(names) == MOST_NAMES:
                tally.stopped = f"{MOST_NAMES} names in a directory"
                break
            is_file = entry.is_file(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False) or (is_file and _wanted(entry.name, glob)):
                names.append(entry.name)
    return sorted(names, key=os.fsencode)


def _wanted(name: str, glob: str | None) -> bool:
    return glob is None or fnmatch.fnmatchcase(name, glob)


def _search(fd: int, path: str, query: bytes, tally: Tally) -> None:
    try:
        content = textfile.read_open(fd, most=MOST_FILE_BYTES)
    except OSError:
        tally.passed_over += 1
        return
    tally.files += 1
    tally.bytes += len(content.data)
    if not textfile.is_text(content.data):
        tally.passed_over += 1
        return
    tally.passed_over += not content.whole
    lines = list(_lines_with(content.data, query))
    tally.matching += bool(lines)
    shown = textfile.printed(textfile.shown(path))
    tally.hits += [f"{shown}:{number}: {line}" for number, line in lines[:MOST_HITS_A_FILE]]
    if len(lines) > MOST_HITS_A_FILE:
        tally.hits.append(f"{shown}: more lines of this file are not shown")


def _lines_with(data: bytes, query: bytes) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that hold `query`, one more than are shown at most."""
    number, counted, at = 1, 0, data.find(query)
    for _ in range(MOST_HITS_A_FILE + 1):
        if at < 0:
            return
        number += data.count(b"\n", counted, at)
        counted = at
        start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield number, _around(data[start:end], at - start)
        at = data.find(query, end)


def _around(line: bytes, at: int) -> str:
    """Return the line, or the part of a long one in which the hit lies."""
    start = max(0, at - MOST_LINE_CHARS // 3) if len(line) > MOST_LINE_CHARS else 0
    part = line[start : start + MOST_LINE_CHARS].decode("utf-8", "replace" if start else "surrogateescape")
    before, after = "..." if start else "", "..." if start + MOST_LINE_CHARS < len(line) else ""
    return textfile.printed(f"{before}{part.rstrip()}{after}")


def _report(tally: Tally, most_chars: int) -> str:
    passed = f"; {tally.passed_over} passed over (no text, too large or not readable)" if tally.passed_over else ""
    head = f"[found in {tally.matching} of {tally.files} files{passed}]"
    room, rows = most_chars - len(head) - 200, [head]
    for hit in tally.hits[:MOST_HITS]:
        room -= len(hit) + 1
        if room < 0:
            tally.stopped = "the length of a result"
            break
        rows.append(hit)
    if tally.stopped:
        rows.append(f"{tools.CUT}: stopped at {tally.stopped}; search a smaller directory or a rarer text]")
    return "\n".join(rows)
