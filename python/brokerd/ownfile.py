"""Reads a small file of brokerd's own whole, if nobody else can have written it.

Invariant: a link, a pipe, another user's file, one that others may write and one that is too long are
refused, not read: what brokerd believes about a session must be what brokerd wrote.
"""

import os
import stat
from pathlib import Path

from bxcore import files
from bxcore.files import StateUnreadable


def read(path: Path, *, most: int) -> bytes:
    """Return the content, of at most `most` bytes. StateMissing where there is none, StateUnreadable otherwise."""
    with files.open_read(path) as file:
        try:
            status = os.fstat(file.fileno())
            content = file.read(most + 1)
        except OSError as error:
            raise files.unreadable(path, error) from None
    why = strange(status, user=os.geteuid())
    if len(content) > most:
        why = "longer than anything that brokerd writes there"
    if why is not None:
        raise StateUnreadable(f"{path.parent.name}/{path.name}: {why}")
    return content


def check_directory(path: Path) -> None:
    """Raise StateUnreadable where others may put files into `path`, or it is no directory."""
    try:
        status = path.lstat()
    except OSError as error:
        raise files.unreadable(path, error) from None
    why = strange(status, user=os.geteuid())
    if not stat.S_ISDIR(status.st_mode):
        why = "not a directory"
    if why is not None:
        raise StateUnreadable(f"{path.parent.name}/{path.name}: {why}")


def strange(status: os.stat_result, *, user: int) -> str | None:
    """Say why a thing of that status may hold another's words, None where it cannot."""
    if status.st_uid != user:
        return "belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write it"
    return None
