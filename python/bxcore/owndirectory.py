"""Whether a directory is a role's own: what it keeps there must not be another's to read or to replace."""

import os
import stat
from pathlib import Path

from bxcore.errors import ConfigError
from bxcore.listener import UnsafeDirectory


def found(directory: Path) -> os.stat_result:
    """Return its status. Raises ConfigError where there is none, UnsafeDirectory where it is a link or a file."""
    try:
        status = directory.lstat()
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}; create it for this user, mode 0700") from None
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeDirectory(f"{directory}: must be a directory itself, not a link to one or a file")
    return status


def check(directory: Path) -> None:
    """Raise ConfigError unless it is there, belongs to this user, and is open to nobody else."""
    status = found(directory)
    if status.st_uid != os.geteuid():
        raise UnsafeDirectory(f"{directory}: owner is uid {status.st_uid}, must be uid {os.geteuid()}")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise UnsafeDirectory(f"{directory}: mode is {mode}, others may enter; chmod 0700 it")
