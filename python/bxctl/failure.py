"""An error -> a sentence on standard error and an exit code."""

import sys

from bxcore.client import RemoteFault
from bxcore.errors import BoxmakerError, ConfigError, UpstreamError, WireError
from bxcore.wire.control import ErrorCode
from bxctl.exits import Exit
from bxctl.message import Unsendable
from bxctl.render import safe_block

# The first row that fits decides; RemoteFault is an UpstreamError too.
_EXITS: tuple[tuple[type[BoxmakerError], Exit], ...] = (
    (Unsendable, Exit.USAGE),
    (RemoteFault, Exit.REFUSED),
    (ConfigError, Exit.FAILED),
    (UpstreamError, Exit.AWAY),
    (WireError, Exit.AWAY),
)


def tell(error: BoxmakerError) -> int:
    """Say what went wrong and return the exit code."""
    sys.stderr.write(f"bxctl: {safe_block(str(error))}\n")
    if error.code == ErrorCode.NOT_READY.value:
        return Exit.AWAY
    return next((code for group, code in _EXITS if isinstance(error, group)), Exit.FAILED)
