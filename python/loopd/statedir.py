"""The sessions belong to one loopd at a time, from its start to its end.

Writes: `<state>/sessions/`, where it is missing, and `.loopd.lock` in it, which holds nothing: an appliance's loopd is
given that directory alone, and the one around it is read-only. Invariant: decided by flock and by nothing else, so
a killed loopd leaves nothing to clean up. Also shows at the start, and not at the first message, that sessions can
be kept.
"""

from pathlib import Path

from bxcore.files import Appender, Files, StateInUse, StateUnwritable

SESSIONS = "sessions"
LOCK = ".loopd.lock"
"""No session's name: it begins with a dot."""


def take(directory: Path, files: Files) -> Appender:
    """Take the sessions in `directory` until the result is closed, or the process ends.

    Raises StateInUse, StateUnwritable.
    """
    try:
        files.make_dir(directory / SESSIONS)
        return files.open_append(directory / SESSIONS / LOCK)
    except StateInUse:
        raise StateInUse(
            f"{directory}: another loopd keeps its sessions here; stop it, or give this one a directory of its own"
        ) from None
    except StateUnwritable as error:
        raise StateUnwritable(
            f"{directory}: no session can be kept here ({error.detail}); "
            "it must be a directory of loopd's user, mode 0700, or hold one named sessions that is"
        ) from None
