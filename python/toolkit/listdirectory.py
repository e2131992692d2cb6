"""list_directory: what lies in one directory, sorted, links named as links and never followed."""

import os
import stat
import time

from bxcore import tools
from bxcore.tools import ListDirectory
from toolkit import beneath, textfile
from toolkit.place import Place

MOST_NAMES = 250_000
"""Beyond these nothing is read, so that a directory without end ends."""

MOST_SHOWN = 500

_WORDS = {
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "file",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}


def run(asked: ListDirectory, place: Place) -> str:
    fd = beneath.open_path(place.roots, asked.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        names, complete = _names(fd)
        total = f"{len(names)} entries" if complete else f"more than {len(names)} entries"
        rows, room = [f"[{total}; type, size in bytes, last change in UTC, name]"], place.most_chars - 200
        for name in names[:MOST_SHOWN]:
            row = _row(fd, name)
            room -= len(row) + 1
            if room < 0:
                break
            rows.append(row)
    finally:
        os.close(fd)
    left_out = len(names) - len(rows) + 1
    if left_out or not complete:
        rows.append(f"{tools.CUT}: {'more than ' if not complete else ''}{left_out} entries are not shown]")
    return "\n".join(rows)


def _names(directory: int) -> tuple[list[str], bool]:
    """Return the names in an open directory, sorted by their bytes, and whether these are all."""
    names: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(names) == MOST_NAMES:
                return sorted(names, key=os.fsencode), False
            names.append(entry.name)
    return sorted(names, key=os.fsencode), True


def _row(directory: int, name: str) -> str:
    shown = textfile.printed(textfile.shown(name))
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return f"gone - - {shown}"
    word = _WORDS.get(stat.S_IFMT(found.st_mode), "device")
    size = str(found.st_size) if stat.S_ISREG(found.st_mode) else "-"
    return f"{word} {size} {_moment(found.st_mtime)} {shown}{_target(directory, name) if word == 'link' else ''}"


def _moment(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "-"  # a time that no calendar has


def _target(directory: int, name: str) -> str:
    try:
        return f" -> {textfile.printed(textfile.shown(os.readlink(name, dir_fd=directory)))}"
    except OSError:
        return ""
