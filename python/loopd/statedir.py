"""The state directory belongs to one loopd at a time, from its start to its end.

Writes: `<state>/.loopd.lock`, which holds nothing. Invariant: decided by flock and by nothing else, so a
killed loopd leaves nothing to clean up. Also shows at the start, and not at the first message, that
the directory is there and can be written.
"""

from pathlib import Path

from bxcore.files import Appender, Files, StateInUse, StateUnwritable

LOCK = ".loopd.lock"


def take(directory: Path, files: Files) -> Appender:
    """Take `directory` until the result is closed, or the process ends. Raises StateInUse, StateUnwritable."""
    try:
        return files.open_append(directory / LOCK)
    except StateInUse:
        raise StateInUse(
            f"{directory}: another loopd keeps its sessions here; stop it, or give this one a directory of its own"
        ) from None
    except StateUnwritable as error:
        raise StateUnwritable(
            f"{directory}: no session can be kept here ({error.detail}); "
            "it must be a directory that loopd's user may write, mode 0700"
        ) from None
