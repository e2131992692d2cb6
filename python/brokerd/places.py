"""Are brokerd's directories closed to everybody else? Asked once, before anything is opened.

The sockets' directories are judged where they are listened on (bxcore.listener), the audit log's where it is
opened (brokerd.auditstart), and the single grant files at each decision (brokerd.grantset).
"""

import os
import stat
from pathlib import Path

from bxcore import owndirectory
from bxcore.errors import ConfigError
from bxcore.listener import UnsafeDirectory
from bxcore.settings.brokerd import BrokerdSettings


def check(settings: BrokerdSettings) -> None:
    """Raise ConfigError unless what brokerd keeps is its own alone, and what it reads is not for everybody."""
    owndirectory.check(settings.state)
    owndirectory.found(settings.audit)
    _check_grants(settings.grants)


def _check_grants(directory: Path) -> None:
    # A grant says what the owner cares about, and who can read it knows what to ask for.
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return  # every call is denied until it is there
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}") from None
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IRWXO:
        raise UnsafeDirectory(f"{directory}: mode is {_mode(found)}, everybody may enter; chmod 0750 it")


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
