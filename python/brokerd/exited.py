"""How one container ended, as what started it tells it. Pure: types alone, for those that act and those that judge."""

from enum import Enum

import attrs


class Stop(Enum):
    """Why nothing more is read. END: the container closed its output; BROKEN: the stream was not Podman's.

    NOT_STARTED: its start is on record, and yet it was never asked for, so nothing ran.
    """

    END = "end"
    DEADLINE = "deadline"
    OUTPUT = "output"
    CANCELLED = "cancelled"
    BROKEN = "broken"
    NOT_STARTED = "not_started"


@attrs.frozen(kw_only=True)
class Exited:
    """How one container ended. `exit` is None where it was ended by us, or where Podman could not be asked.

    `stdout` is all of it, or as much as may come; `size` counts both streams.
    """

    stop: Stop
    exit: int | None
    stdout: bytes
    size: int
    out_of_memory: bool


UNSTARTED = Exited(stop=Stop.NOT_STARTED, exit=None, stdout=b"", size=0, out_of_memory=False)
