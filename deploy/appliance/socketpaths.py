"""What lies where a socket belongs, and its end. Started by root this is done in directories that roles' users write.

Invariant: no link is followed, and nothing is removed but a name that is no directory, or an empty directory.
"""

import os
import pwd
from pathlib import Path

from deploy.local.refusal import Refusal


def clear(path: Path) -> None:
    """Remove what lies there. Raises Refusal, with whose it is, where that is a directory with something in it."""
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _remove(path, directory)
    finally:
        os.close(directory)


def _remove(path: Path, directory: int) -> None:
    try:
        os.unlink(path.name, dir_fd=directory)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        try:
            os.rmdir(path.name, dir_fd=directory)
        except OSError as error:
            raise Refusal(_in_the_way(path, directory, error)) from None


def _in_the_way(path: Path, directory: int, error: OSError) -> str:
    owner = _name(os.stat(path.name, dir_fd=directory, follow_symlinks=False).st_uid)
    return (
        f"{path} is a directory of the user {owner}, and a socket belongs there ({error.strerror}). No part of "
        f"Boxmaker makes one: whoever acts as {owner} did. See what is in it, then remove it: rm -r {path}"
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
