"""What gatewayd could not do keeps its name on the way to bxctl."""

from bxcore.errors import BoxmakerError
from bxcore.wire.control import ErrorCode
from gatewayd import faults

NEVER_SAID = {faults.NotABot, faults.NobodyAllowed}
"""These end the start, so there is nobody to tell."""


def test_every_fault_is_an_error_that_the_wire_knows() -> None:
    kinds = {
        kind
        for kind in vars(faults).values()
        if isinstance(kind, type) and issubclass(kind, BoxmakerError) and kind.__module__ == faults.__name__
    }
    assert {kind.code for kind in kinds if kind not in NEVER_SAID} <= {code.value for code in ErrorCode}
