"""bxctl's exit codes, one table for the code, the help text and docs/bxctl.md."""

from collections.abc import Mapping
from enum import IntEnum


class Exit(IntEnum):
    """What the shell gets."""

    OK = 0
    FAILED = 1
    USAGE = 2
    AWAY = 3
    REFUSED = 4
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


MEANINGS: Mapping[Exit, str] = {
    Exit.OK: "answered, or everything asked for was shown",
    Exit.FAILED: "the turn ended without a whole answer, a check failed, a file has faults, nothing is there yet",
    Exit.USAGE: "wrong usage, or a message that cannot be sent",
    Exit.AWAY: "loopd, brokerd or gatewayd cannot be reached, is not ready, or was lost",
    Exit.REFUSED: "loopd, brokerd or gatewayd refused the request, or an answer to a question had no effect",
    Exit.INTERRUPTED: "cancelled with Ctrl-C",
    Exit.BROKEN_PIPE: "the reader of the output went away",
    Exit.TERMINATED: "ended by SIGTERM or SIGHUP",
}
